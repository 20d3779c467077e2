"""Makes particles and calls them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from stepvan._errors import Error, InvalidError, cut
from stepvan._local import Local
from stepvan.particles import messages
from stepvan.particles._nodes import Nodes, nodes_of
from stepvan.particles.node_event_loop import NodeEventLoop
from stepvan.particles.pfuture import PFuture
from stepvan.particles.waitable import Waitable

__all__ = ["Nodes", "PusH", "serve"]

_DRIVER = 0  # the rank of the peer that makes particles
_END = 0x7061727469636C65  # the tag of the transfer by which the driver ends another loop; it fails when the driver dies
_PATIENCE = 30.0  # seconds


class PusH(Local, Waitable):
    """The driver of particles: a context manager, whose end closes the loops of all processes.

    mk_module(*args) makes the module of each particle.
    cache_size: how many particles are on a device at a time. view_size: how many views of others a loop remembers.
    multi: False: the particles are in this process. True: in the processes of its job, as torchrun has started them. A
        stepvan.Node with the role "peer", or Nodes: in the processes of that cluster. Each process but the first one, with
        the rank 0, calls ``serve``.
    """

    def __init__(self, mk_module: Callable[..., Any], *args: Any, cache_size: int = 4, view_size: int = 4, multi: Any = False) -> None:
        nodes = nodes_of(multi)
        self._stack = contextlib.ExitStack()
        node = self._stack.enter_context(nodes.opened())
        try:
            if node.peer is None or node.peer.rank != _DRIVER:
                raise InvalidError(f"PusH: this process is not the driver: call serve in all processes but that with the rank {_DRIVER}")
            self.nel = NodeEventLoop.on(node, nodes, mk_module, args, cache_size, view_size, _DRIVER)
        except BaseException as error:
            self._stack.__exit__(type(error), error, error.__traceback__)
            raise
        self._node = node
        self._places: dict[int, tuple[int, int]] = {}
        self._ended = False

    def p_create(
        self, mk_optim: Callable[[Any], Any] | None, mk_scheduler: Callable[[Any], Any] | None = None, prior: bool = False,
        train_key: int | None = None, device: Any = 0, receive: Mapping[str, Callable[..., Any]] = {}, state: Any = {},  # noqa: B006
    ) -> int:  # fmt: skip
        """Makes a particle, and returns its ID. IDs count from 0.

        mk_optim: makes the optimizer of parameters; None for none. mk_scheduler: makes the scheduler of the optimizer.
        prior: whether the module initializes its weights: see ParticleCache.create.
        train_key: seeds torch before the module is made.
        device: the number of a device. The devices of all processes are counted by rank, when each has as many as the
            driver. Or a rank and a device of that process.
        receive: functions by the names of messages: fn(particle, *args).
        state: what they find as ``particle.state``. In another process it is a copy.

        Functions for another process must be those of modules that both have loaded.
        """
        if not isinstance(receive, Mapping):
            raise InvalidError(f"receive is {cut(receive)}: it must be a dict of functions by the names of messages")
        rank, index = self._place(device)
        own = dict(state) if type(state) is dict and not state else state  # the default is one object for all calls
        number = self.nel.devices[index] if rank == _DRIVER else index
        message = messages.ReceiveParticleInitPDMSG(number, self.num_particles(), mk_optim, mk_scheduler, prior, train_key, dict(receive), own)
        pid = self.nel.create(message, rank, index)
        self._places[pid] = rank, index
        return pid

    def _place(self, device: Any) -> tuple[int, int]:
        """The rank and the index of a device."""
        size = self._node.peer.size if self._node.peer is not None else 1
        many = len(self.nel.devices)
        match device:
            case int() if type(device) is int and 0 <= device < size * many:
                return divmod(device, many)
            case (int(rank), int(number)) if type(rank) is type(number) is int and 0 <= rank < size and number >= 0:
                if rank != _DRIVER:
                    return rank, number
                if number in self.nel.devices:
                    return rank, self.nel.devices.index(number)
        raise InvalidError(
            f"device is {cut(device)}: it must be a number below {size * many}, of {size} processes with {many} devices, or (rank, device)"
        )

    def p_launch(self, pid: int, msg: str, *args: Any) -> PFuture:
        """Has a particle call its function for a message."""
        return self.nel.send(None, -1, pid, msg, *args)

    def p_wait(self, futures: Iterable[PFuture]) -> dict[int, Any]:
        """Waits for futures. Returns their values in the same order, by the futures or their IDs."""
        listed = list(futures)
        values = self.nel.wait(listed)
        return {future._fid: value for future, value in zip(listed, values, strict=True)}

    def p_parameters(self, pid: int) -> list[Any]:
        """Copies of the parameters of a particle, in memory of the CPU."""
        return list(self.nel.parameters(pid).wait().params)

    def particle_ids(self) -> list[int]:
        """The IDs of all particles."""
        return list(self._places)

    def num_particles(self) -> int:
        """How many particles there are."""
        return len(self._places)

    def save(self) -> None:
        """Has each particle write its state dict to ``./particles`` of its process: see ParticleCache.save_to_disk."""
        self.nel.wait([self.nel.save(pid) for pid in self._places])

    def _wait(self, fid: int) -> Any:
        return self.nel._wait(fid)

    def close(self, timeout: float | None = _PATIENCE) -> None:
        """Closes the loops of all processes. TimeoutError: the message names a function that has not ended."""
        self._end(timeout, None)

    def _end(self, timeout: float | None, error: BaseException | None) -> None:
        peer = self._node.peer
        for rank in range(peer.size if peer is not None and not self._ended else 0):
            if rank != _DRIVER and peer is not None:
                with contextlib.suppress(Error):  # one that has ended needs no word
                    peer.send(torch.ones(1, dtype=torch.uint8), to=rank, tag=_END)
        self._ended = True
        try:
            self.nel.close(timeout)
        except Error as failed:
            self._stack.__exit__(type(failed), failed, failed.__traceback__)
            if error is None:
                raise
            return
        self._stack.__exit__(type(error) if error is not None else None, error, None)

    def __enter__(self) -> PusH:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._end(_PATIENCE if error is None else 2.0, error)

    def __repr__(self) -> str:
        return f"<PusH: {self.num_particles()} particles>"


def serve(mk_module: Callable[..., Any], *args: Any, cache_size: int = 4, view_size: int = 4, multi: Any = True) -> None:
    """Runs the loop of a process that is not the driver, until the driver ends. The arguments are as for PusH.

    PeerLostError: the driver has died.
    """
    nodes = nodes_of(multi)
    with nodes.opened() as node:
        peer = node.peer
        if peer is None or peer.rank == _DRIVER:
            raise InvalidError(f"serve: this process has the rank {_DRIVER}: it is the driver, which makes a PusH")
        loop = NodeEventLoop.on(node, nodes, mk_module, args, cache_size, view_size, _DRIVER)
        try:
            peer.recv(torch.empty(1, dtype=torch.uint8), source=_DRIVER, tag=_END).wait()
        finally:
            loop.close(_PATIENCE)
