"""A particle as its own functions see it, and a view of another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from stepvan._local import Local

if TYPE_CHECKING:
    import torch

    from stepvan.particles._views import Template
    from stepvan.particles.node_event_loop import NodeEventLoop
    from stepvan.particles.pfuture import PFuture

__all__ = ["Particle", "ParticleView"]


class Particle(Local):
    """The first argument of each function of a particle. Operations return futures.

    pid, device: its ID, and the number of its device. module: its module, on the device. state: what was given with the
    function, or with the particle.
    """

    def __init__(self, loop: NodeEventLoop, device: Any, pid: int, module: torch.nn.Module, state: Any) -> None:
        self._loop = loop
        self.device = device
        self.pid = pid
        self.module = module
        self.state = state

    def particle_ids(self) -> list[int]:
        """The IDs of all particles."""
        return self._loop.particles()

    def other_particles(self) -> list[int]:
        """The IDs of all particles but this one."""
        return [pid for pid in self._loop.particles() if pid != self.pid]

    def register_receive(self, msg: str, fn: Callable[..., Any], state: Any) -> None:
        """Has the particle call fn(particle, *args) for a message, with particle.state = state."""
        self._loop.register_receive(self.pid, msg, fn, state)

    def send(self, pid: int, msg: str, *args: Any) -> PFuture:
        """Has another particle call its function for a message. The future has what that returns."""
        return self._loop.send(self, self.pid, pid, msg, *args)

    def get(self, pid: int) -> PFuture:
        """A future of a ParticleView of another particle."""
        return self._loop.get(self.pid, pid)

    def wait(self, pfutures: Sequence[PFuture]) -> list[Any]:
        """Waits for futures, and returns their values in the same order."""
        return self._loop.wait(pfutures)

    def zero_grad(self) -> PFuture:
        """Sets the gradients to zero."""
        return self._loop.zero_grad(self.pid)

    def forward(self, x: Any, *args: Any) -> PFuture:
        """Calls the module. The value has its graph."""
        return self._loop.forward(self.pid, x, *args)

    def step(self, loss_fn: Callable[..., Any], data: Any, label: Any, *args: Any) -> PFuture:
        """One step of training: see NodeEventLoop.step."""
        return self._loop.step(self.pid, loss_fn, data, label, *args)

    def scheduler_step(self, *args: Any) -> PFuture:
        """A step of the scheduler of the learning rate. The arguments are not used."""
        return self._loop.scheduler_step(self.pid, *args)

    def __repr__(self) -> str:
        return f"<Particle {self.pid} on device {self.device}>"


class ParticleView(Local):
    """Another particle as it was at one moment, between two of its operations. pid: its ID."""

    def __init__(self, pid: int, template: Callable[[], Template], parts: tuple[Sequence[Any], Sequence[Any], Sequence[Any]]) -> None:
        self.pid = pid
        self._template = template
        self._parts = parts
        self._module: Any = None

    def view(self) -> torch.nn.Module:
        """A module with the parameters and gradients of the particle. They are only for reading: write to a ``clone``.

        Buffers are copies. InvalidError: something writes to a parameter.
        """
        if self._module is None:
            self._module = self._template().module(*self._parts)
        return self._module  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<ParticleView of particle {self.pid}>"
