"""Caches of particles: as many as fit are on the device, the others in memory of the host.

Both caches keep parameters, buffers and gradients, and what the optimizer and the scheduler have, when a particle makes
room for another one. The module stays the same object. A pinned particle stays on the device.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from stepvan._errors import BusyError, InvalidError, cut
from stepvan.particles._devices import torch_device
from stepvan.particles._held import Held, Mover, make
from stepvan.particles.utils import detach_to_cpu

__all__ = ["ParticleCache", "ParticleCacheLRU"]


class _Cache:
    """What both caches have in common: particles, and their pins."""

    def __init__(self, mk_module: Callable[..., Any], args: Sequence[Any], cache_size: int, device: Any) -> None:
        if not callable(mk_module):
            raise InvalidError(f"mk_module is {cut(mk_module)}: it must be a function that makes a module")
        if not isinstance(cache_size, int) or isinstance(cache_size, bool) or cache_size < 1:
            raise InvalidError(f"cache_size is {cut(cache_size)}: it must be a number of particles from 1 on")
        self.mk_module = mk_module
        self.args = args
        self.cache_size = cache_size
        self.device = device
        self._mover = Mover(torch_device(device))
        self._held: dict[int, Held] = {}
        self._pins: dict[int, int] = {}

    @property
    def moved_bytes(self) -> int:
        """How many bytes it has copied to the device and off it."""
        return self._mover.moved

    def optimizer(self, pid: int) -> Any:
        """The optimizer of a particle, or None."""
        return self._known(pid).optimizer

    def scheduler(self, pid: int) -> Any:
        """The scheduler of a particle, or None."""
        return self._known(pid).scheduler

    def _known(self, pid: int) -> Held:
        held = self._held.get(pid)
        if held is None:
            raise InvalidError(f"particle {cut(pid)}: it is not known on device {self.device}: create it before")
        return held

    def _check_new(self, pid: Any) -> None:
        if not isinstance(pid, int) or isinstance(pid, bool) or pid < 0:
            raise InvalidError(f"pid is {cut(pid)}: it must be a number from 0 on")
        if pid in self._held:
            raise InvalidError(f"particle {pid}: it exists on device {self.device}: give another ID")

    def _pin(self, pid: int) -> None:
        self._pins[pid] = self._pins.get(pid, 0) + 1

    def _unpin(self, pid: int) -> None:
        self._known(pid)
        if pid not in self._pins:
            raise InvalidError(f"particle {pid}: it is not pinned: call unpin once for each pin")
        self._pins[pid] -= 1
        if self._pins[pid] == 0:
            del self._pins[pid]


class ParticleCache(_Cache):
    """A direct-mapped cache: the n-th particle that it made has position n modulo cache_size.

    mk_module(*args) makes the module of each particle.
    device: the number of a device, or one of torch.
    lock: guards the cache, so that any thread may call the methods. No caller may hold it, unless it is an RLock.
    """

    def __init__(self, mk_module: Callable[..., Any], args: Sequence[Any], cache_size: int, device: Any, lock: Any) -> None:
        super().__init__(mk_module, args, cache_size, device)
        if not hasattr(lock, "__enter__"):
            raise InvalidError(f"lock is {cut(lock)}: it must be a lock, such as threading.Lock()")
        self.lock = lock
        self._positions: dict[int, int] = {}
        self._occupants: list[int | None] = [None] * cache_size

    def create(
        self, pid: int, mk_optim: Callable[[Any], Any] | None, mk_scheduler: Callable[[Any], Any] | None = None,
        prior: bool = False, train_key: int | None = None,
    ) -> torch.nn.Module:  # fmt: skip
        """Makes a particle on the device, and returns its module.

        mk_optim: makes the optimizer of parameters. mk_scheduler: makes the scheduler of the optimizer.
        prior: whether the module's ``init_weights`` is applied. Where the module has ``trainable``, it is applied to that
            part, and the optimizer gets the parameters of that part.
        train_key: seeds torch before the module is made.

        BusyError: the particle in its position is pinned. InvalidError: the ID is in use.
        """
        with self.lock:
            self._check_new(pid)
            position = len(self._held) % self.cache_size
            occupant = self._occupants[position]
            if occupant in self._pins:
                raise BusyError(f"particle {pid}: its position on device {self.device} has particle {occupant}, which is pinned: unpin it before")
            held = make(self.mk_module, self.args, self._mover, prior, train_key)
            self._enter(position, held)
            held.prepare(mk_optim, mk_scheduler)
            self._held[pid], self._positions[pid], self._occupants[position] = held, position, pid
            return held.module  # type: ignore[no-any-return]

    def try_read(self, pid: int, pin: bool = False, msg: str | None = None) -> torch.nn.Module | None:
        """The module of a particle on the device, which is brought there if need be.

        None: another particle has its position, and is pinned.

        pin: whether to pin it, until ``unpin``. Pins are counted.
        msg: says what the caller is about, for its own purposes.
        """
        with self.lock:
            held, position = self._known(pid), self._positions[pid]
            occupant = self._occupants[position]
            if occupant != pid:
                if occupant in self._pins:
                    return None
                self._enter(position, held)
                self._occupants[position] = pid
            if pin:
                self._pin(pid)
            return held.module  # type: ignore[no-any-return]

    def _enter(self, position: int, held: Held) -> None:
        """Brings a particle to the device, in place of the one in its position."""
        occupant = self._occupants[position]
        if occupant is not None:
            self._held[occupant].evict()
            self._occupants[position] = None
        held.load()

    def try_pin(self, pid: int) -> bool:
        """Pins a particle. False: it is not on the device."""
        with self.lock:
            self._known(pid)
            if self._occupants[self._positions[pid]] != pid:
                return False
            self._pin(pid)
            return True

    def unpin(self, pid: int) -> None:
        """Takes one pin of a particle back."""
        with self.lock:
            self._unpin(pid)

    def release(self, pid: int, thread: threading.Thread) -> None:
        """Waits for the end of a thread, and takes one pin of the particle back. Others may use the cache meanwhile."""
        thread.join()
        self.unpin(pid)

    def contains(self, pid: int) -> bool:
        """Whether the cache knows a particle, on the device or not."""
        with self.lock:
            return pid in self._held

    def particles(self) -> list[int]:
        """The IDs of all particles that it knows, in the order in which they were made."""
        with self.lock:
            return list(self._held)

    def save_to_disk(self, pid: int, path: str | os.PathLike[str] = "./particles") -> None:
        """Writes the state dict of a particle to ``path/device{device}_particle{pid}.pth``.

        The folder is made. A file of that name is replaced only when all is written.
        """
        with self.lock:
            bytes_of = BytesIO()
            torch.save(detach_to_cpu(self._known(pid).module.state_dict()), bytes_of)
        write_file(Path(path) / f"device{self.device}_particle{pid}.pth", bytes_of.getbuffer(), f"particle {pid}")


class ParticleCacheLRU(_Cache):
    """A cache in which the particle that was used least recently makes room. One thread at a time uses it.

    The parameters are those of ParticleCache.
    """

    def __init__(self, mk_module: Callable[..., Any], args: Sequence[Any], cache_size: int, device: Any) -> None:
        super().__init__(mk_module, args, cache_size, device)
        self._residents: dict[int, None] = {}  # by their last use

    def create(self, pid: int, mk_optim: Callable[[Any], Any] | None) -> torch.nn.Module:
        """Makes a particle on the device, and returns its module. BusyError: all particles there are pinned."""
        self._check_new(pid)
        leaves = self._leaving(pid)
        held = make(self.mk_module, self.args, self._mover, False, None)
        self._enter(leaves, held)
        held.prepare(mk_optim)
        self._held[pid] = held
        self._residents[pid] = None
        return held.module  # type: ignore[no-any-return]

    def read(self, pid: int) -> torch.nn.Module:
        """The module of a particle on the device, which counts as a use. BusyError: all particles there are pinned."""
        held = self._known(pid)
        if pid in self._residents:
            del self._residents[pid]
        else:
            self._enter(self._leaving(pid), held)
        self._residents[pid] = None
        return held.module  # type: ignore[no-any-return]

    def write(self, pid: int, module: torch.nn.Module) -> None:
        """Gives a particle another module, on the device. That counts as a use. The optimizer continues with it.

        InvalidError: its parameters have other shapes. BusyError: all particles on the device are pinned.
        """
        held = self._known(pid)
        self.read(pid)
        held.replace(module)
        held.load()

    def try_pin(self, pid: int) -> bool:
        """Pins a particle. False: it is not on the device."""
        self._known(pid)
        if pid not in self._residents:
            return False
        self._pin(pid)
        return True

    def unpin(self, pid: int) -> None:
        """Takes one pin of a particle back."""
        self._unpin(pid)

    def contains(self, pid: int) -> bool:
        """Whether a particle is on the device."""
        return pid in self._residents

    def particles(self) -> list[int]:
        """The IDs of the particles on the device, least recently used first."""
        return list(self._residents)

    def _leaving(self, pid: int) -> int | None:
        """The particle that makes room for another one; None: there is room."""
        if len(self._residents) < self.cache_size:
            return None
        for resident in self._residents:
            if resident not in self._pins:
                return resident
        raise BusyError(f"particle {pid}: all {self.cache_size} particles on device {self.device} are pinned: unpin one before")

    def _enter(self, leaves: int | None, held: Held) -> None:
        if leaves is not None:
            self._held[leaves].evict()
            del self._residents[leaves]
        held.load()


def write_file(path: Path, data: Any, what: str) -> None:
    """Writes a file beside its place, and moves it there when it is whole. After an error the old file is as it was."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(beside, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        text = f"save: {what}: {path} cannot be written ({error.strerror}); a file that was there before is as it was: choose another folder, or make room"
        raise OSError(error.errno, text) from None
