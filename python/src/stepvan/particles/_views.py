"""Parameters and gradients of a particle, as its loop gives them to others, and as others see them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from stepvan._errors import InvalidError, ProtocolError
from stepvan._node import Node

_ALIGNMENT = 64  # bytes


class Publication:
    """The copy of a particle that others see: one piece of memory, in which nothing changes while somebody sees it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._block: Any = None
        self._layout: Any = None

    def fill(self, module: Any) -> tuple[bytes, list[Any]]:
        """Copies parameters, gradients and buffers, and returns what to share: a description, and the memory."""
        parameters = list(module.parameters())
        tensors = [*parameters, *module.buffers()]
        present = [p.grad is not None for p in parameters]
        tensors += [p.grad.to_dense() if p.grad.layout is not torch.strided else p.grad for p in parameters if p.grad is not None]
        rows: list[tuple[str, list[int], int]] = []
        end = 0
        for t in tensors:
            rows.append((str(t.dtype).removeprefix("torch."), list(t.shape), end))
            end += -(-t.numel() * t.element_size() // _ALIGNMENT) * _ALIGNMENT
        if self._block is None or self._block.numel() != end:
            self._block = self._node.empty(end, torch.uint8)
        with torch.no_grad():
            for t, (_, shape, at) in zip(tensors, rows, strict=True):
                _part(self._block, t.dtype, shape, at).copy_(t)
        return msgspec.msgpack.encode([len(parameters), present, rows]), [self._block]

    def leave(self) -> None:
        """Leaves the memory to the views of it. The next copy is made in other memory."""
        self._block = None


def _part(block: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], at: int) -> Any:
    count = 1
    for n in shape:
        count *= n
    size = count * torch.empty(0, dtype=dtype).element_size()
    if at < 0 or at % _ALIGNMENT or at + size > block.numel():
        raise ProtocolError(f"view: a tensor of {size} bytes at {at} is not within the {block.numel()} bytes that came")
    return block[at : at + size].view(dtype).view(list(shape))


def unpack(data: bytes, tensors: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Parameters, gradients (None for none) and buffers of a view. ProtocolError: the bytes do not describe one."""
    try:
        count, present, rows = msgspec.msgpack.decode(data, type=tuple[int, list[bool], list[tuple[str, list[int], int]]])
        (block,) = tensors
        made = [_part(block, getattr(torch, dtype), shape, at) for dtype, shape, at in rows]
        if len(present) != count or len(made) < count + sum(present):
            raise ProtocolError(f"view: {len(made)} tensors came for {count} parameters")
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        if isinstance(error, ProtocolError):
            raise
        raise ProtocolError(f"view: its bytes do not describe one: {error}") from None
    grads = iter(made[len(made) - sum(present) :])
    return made[:count], [next(grads) if there else None for there in present], made[count : len(made) - sum(present)]


class Template:
    """A module without elements. Views of all particles are made of it."""

    def __init__(self, module: Any) -> None:
        parameters, buffers = list(module.parameters()), list(module.buffers())
        self._parameters = [torch.nn.Parameter(torch.empty(0), requires_grad=False) for _ in parameters]
        self._buffers = [torch.empty(0) for _ in buffers]
        holes = [*self._parameters, *self._buffers]
        memo: dict[int, Any] = {id(t): hole for t, hole in zip([*parameters, *buffers], holes, strict=True)}
        memo.update({id(p.grad): None for p in parameters if p.grad is not None})
        try:
            self._module = copy.deepcopy(module, memo)
        except Exception as error:
            raise InvalidError(f"view: {type(module).__name__} cannot be copied ({type(error).__name__}: {error}): let it have __deepcopy__") from None

    def module(self, parameters: Sequence[Any], grads: Sequence[Any], buffers: Sequence[Any]) -> Any:
        """A module that shows a view. Its parameters and gradients are only for reading, its buffers are copies."""
        if (len(parameters), len(buffers)) != (len(self._parameters), len(self._buffers)):
            raise ProtocolError(
                f"view: other tensors (got {len(parameters)} parameters and {len(buffers)} buffers, want "
                f"{len(self._parameters)} and {len(self._buffers)}): let all processes make the same module"
            )
        memo: dict[int, Any] = {}
        for hole, data, grad in zip(self._parameters, parameters, grads, strict=True):
            shown = torch.Tensor._make_subclass(ReadOnlyParameter, data, False)
            if grad is not None:
                with _plainly():
                    shown.grad = torch.Tensor._make_subclass(ReadOnly, grad, False)
            memo[id(hole)] = shown
        memo.update({id(hole): data.clone() for hole, data in zip(self._buffers, buffers, strict=True)})
        return copy.deepcopy(self._module, memo)


_torch: Any = torch
_plainly: Any = getattr(_torch._C, "DisableTorchFunctionSubclass", None) or _torch._C.DisableTorchFunction
_changing = {"__setitem__", "__set__", "__delete__", "set_", "resize_", "__idiv__", "__ilshift__", "__irshift__", "__iand__", "__ior__", "__ixor__"}
_changing |= {f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")}


class _Guarded:
    """Refuses what would write to the memory of another particle, and gives views of it the same guard."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        writes = name in _changing or (name.endswith("_") and not name.endswith("__")) or kwargs.get("inplace")
        if (writes and args and _has_guarded(args[0])) or _has_guarded(kwargs.get("out")):
            raise InvalidError(f"view: {name}: a view of another particle is only for reading: use .clone()")
        with _plainly():
            result = func(*args, **kwargs)
            if name == "numpy":
                result.flags.writeable = False
            return _guarded(result, args)


class ReadOnly(_Guarded, torch.Tensor):
    """A tensor of another particle."""


class ReadOnlyParameter(_Guarded, torch.nn.Parameter):
    """A parameter of another particle."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        with _plainly():
            made = torch.nn.Parameter(self.detach().clone(), self.requires_grad)
            if self.grad is not None:
                made.grad = self.grad.detach().clone()
        return memo.setdefault(id(self), made)


def _has_guarded(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(isinstance(item, _Guarded) for item in value)
    return isinstance(value, _Guarded)


def _guarded(result: Any, args: Any) -> Any:
    if isinstance(result, list | tuple) and any(isinstance(item, torch.Tensor) for item in result):
        items = [_guarded(item, args) for item in result]
        return items if isinstance(result, list) else tuple(items) if type(result) is tuple else result
    if not isinstance(result, torch.Tensor) or isinstance(result, _Guarded) or result.layout is not torch.strided:
        return result
    address = _storage(result)
    if any(isinstance(arg, _Guarded) and _storage(arg) == address for arg in args):
        return torch.Tensor._make_subclass(ReadOnly, result, False) if not result.requires_grad else result.as_subclass(ReadOnly)
    return result


def _storage(tensor: Any) -> int:
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor._storage()
    return int(storage._cdata)
