"""What belongs to a particle, on its device or in memory of the host."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from stepvan._errors import InvalidError, cut

_HOST = torch.device("cpu")
_seeding = threading.Lock()  # the random numbers of torch belong to the process


class Mover:
    """Moves tensors between a device and the host. The tensors stay the same objects.

    moved: how many bytes it has copied. Tensors that share a storage go on sharing it, and it is copied once.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.moved = 0

    def misplaced(self, tensor: torch.Tensor, inside: bool) -> bool:
        """Whether a tensor has to move, so that it is on the device (inside), or in memory of the host."""
        index = self.device.index
        here = tensor.device.type == self.device.type and (index is None or tensor.device.index == index)
        return here != inside and (inside or self.device != _HOST)

    def copy(self, memory: torch.Tensor, inside: bool) -> torch.Tensor:
        """Bytes on the device (inside), or in memory of the host."""
        made: torch.Tensor = memory.to(self.device if inside else _HOST)
        return made

    def move(self, tensors: Iterable[torch.Tensor], inside: bool) -> list[torch.Tensor]:
        """Moves tensors to the device (inside) or off it, and returns those that were elsewhere."""
        found = [t for t in {id(t): t for t in tensors}.values() if self.misplaced(t, inside)]
        made: dict[int, torch.Tensor] = {}
        after = []
        for t in found:  # all are copied before one changes, so that a device without room leaves all as they were
            after.append(self._copied(t, inside, made))
        for t, data in zip(found, after, strict=True):
            t.data = data
        return found

    def _copied(self, tensor: torch.Tensor, inside: bool, made: dict[int, torch.Tensor]) -> torch.Tensor:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided or tensor.is_quantized:
            self.moved += tensor.numel() * tensor.element_size()
            made_alone: torch.Tensor = tensor.data.to(self.device if inside else _HOST)
            return made_alone
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor._storage()
        key = storage._cdata
        if key not in made:
            memory = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            self.moved += memory.numel()
            made[key] = self.copy(memory, inside)
        new = made[key]
        whole = new.untyped_storage() if hasattr(new, "untyped_storage") else new._storage()
        empty = torch.empty(0, dtype=tensor.dtype, device=new.device)
        shown: torch.Tensor = empty.set_(whole, tensor.storage_offset(), tensor.size(), tensor.stride())
        return shown


class Held:
    """A particle: its module, optimizer and scheduler. It begins in memory of the host."""

    def __init__(self, module: Any, mover: Mover) -> None:
        self.module = module
        self.optimizer: Any = None
        self.scheduler: Any = None
        self.trained: Any = module  # whose parameters the optimizer gets
        self._mover = mover
        self._state: list[torch.Tensor] = []  # what the optimizer and the scheduler had on the device

    def load(self) -> None:
        """Brings it to the device."""
        self._mover.move([*_of_module(self.module), *self._state], True)
        self._state = []

    def evict(self) -> None:
        """Brings it to memory of the host: parameters, buffers, gradients, and what optimizer and scheduler have."""
        own = {id(t) for t in _of_module(self.module)}
        values = [self.optimizer.state, self.optimizer.param_groups] if isinstance(self.optimizer, torch.optim.Optimizer) else []
        if self.scheduler is not None:
            values.append({k: v for k, v in vars(self.scheduler).items() if k != "optimizer"})
        state = [t for value in values for t in _tensors(value, set())]
        moved = self._mover.move([*_of_module(self.module), *state], False)
        self._state = [t for t in moved if id(t) not in own]

    def prepare(self, mk_optim: Any, mk_scheduler: Any = None) -> None:
        """Makes optimizer and scheduler."""
        if mk_optim is not None:
            self.optimizer = _called("mk_optim", mk_optim, self.trained.parameters())
        if mk_scheduler is not None:
            if self.optimizer is None:
                raise InvalidError("mk_scheduler: there is no optimizer: let mk_optim return one")
            self.scheduler = _called("mk_scheduler", mk_scheduler, self.optimizer)

    def replace(self, module: Any) -> None:
        """Gives the particle another module. The optimizer continues with its parameters."""
        if not isinstance(module, torch.nn.Module):
            raise InvalidError(f"module is {cut(module)}: it must be a torch.nn.Module")
        old, new = (list(m.parameters()) for m in (self.module, module))
        if [p.shape for p in old] != [p.shape for p in new]:
            raise InvalidError(
                f"module: other parameters (got {[tuple(p.shape) for p in new]}, want {[tuple(p.shape) for p in old]}): "
                "give a module that the same function has made"
            )
        to = {id(a): b for a, b in zip(old, new, strict=True)}
        if isinstance(self.optimizer, torch.optim.Optimizer):
            for group in self.optimizer.param_groups:
                group["params"] = [to.get(id(p), p) for p in group["params"]]
            state = {to.get(id(p), p): value for p, value in self.optimizer.state.items()}
            self.optimizer.state.clear()
            self.optimizer.state.update(state)
        if self.trained is self.module:
            self.trained = module
        self.module = module


def make(mk_module: Callable[..., Any], args: Iterable[Any], mover: Mover, prior: bool, train_key: int | None) -> Held:
    """Makes the module of a particle, in memory of the host."""
    if train_key is not None and (not isinstance(train_key, int) or isinstance(train_key, bool)):
        raise InvalidError(f"train_key is {cut(train_key)}: it must be a number that seeds torch, or None")
    with _seeding:
        if train_key is not None:
            torch.manual_seed(train_key)
        module = _called("mk_module", mk_module, *args)
        if not isinstance(module, torch.nn.Module):
            raise InvalidError(f"mk_module has returned {cut(module)}: it must return a torch.nn.Module")
        held = Held(module, mover)
        if prior:
            _initialize(held)
    return held


def _initialize(held: Held) -> None:
    """Applies ``init_weights`` to the module, or to the part of it that is trained."""
    held.trained = part = getattr(held.module, "trainable", held.module)
    if not isinstance(part, torch.nn.Module):
        raise InvalidError(f"prior: trainable of the module is {cut(part)}: it must be a torch.nn.Module")
    function = getattr(held.module, "init_weights", None) or getattr(part, "init_weights", None)
    if function is None:
        raise InvalidError(f"prior: {type(held.module).__name__} has no init_weights: define it, or leave prior out")
    wanted = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD]
    if wanted:
        part.apply(function)
    else:
        function()


def _called(name: str, function: Any, *args: Any) -> Any:
    if not callable(function):
        raise InvalidError(f"{name} is {cut(function)}: it must be a function")
    return function(*args)


def _of_module(module: Any) -> Iterator[torch.Tensor]:
    for p in module.parameters():
        yield p
        if p.grad is not None:
            yield p.grad
    yield from module.buffers()


def _tensors(value: Any, above: set[int]) -> Iterator[torch.Tensor]:
    """The tensors in a value, at any depth of its containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list | tuple | set) or hasattr(value, "appendleft"):
        if id(value) in above:
            return
        above = above | {id(value)}
        for item in [*value.keys(), *value.values()] if isinstance(value, dict) else value:
            if not isinstance(item, torch.nn.Parameter):
                yield from _tensors(item, above)
