"""Values with tensors inside, brought to a device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from stepvan._errors import InvalidError
from stepvan.particles._devices import torch_device

__all__ = ["detach_to_cpu", "detach_to_device", "to_device"]


def detach_to_cpu(val: Any) -> Any:
    """The value with its tensors detached and in memory of the CPU.

    It looks into dicts and lists, at any depth. Everything else stays the same object, tuples too.
    """
    return _walk(val, lambda t: t.detach().cpu(), (dict, list), [])


def detach_to_device(device: Any, val: Any, requires_grad: bool = False) -> Any:
    """The value with its tensors detached and on a device.

    It looks into dicts, lists and tuples, at any depth. Everything else stays the same object.

    device: the number of a device, or one of torch.
    requires_grad: True: a tensor of floats keeps its graph; one without a graph gets to require gradients. The caller's
        tensors stay as they are.
    """
    place = torch_device(device)

    def move(t: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor
        if requires_grad and t.is_floating_point():
            made = t.to(place) if t.requires_grad else t.detach().to(place).requires_grad_()
        else:
            made = t.detach().to(place)
        return made

    return _walk(val, move, (dict, list, tuple), [])


def to_device(device: Any, val: Any) -> Any:
    """The value with its tensors on a device. They keep their graphs.

    It looks into dicts, lists and tuples, at any depth. device: the number of a device, or one of torch.
    """
    place = torch_device(device)
    return _walk(val, lambda t: t.to(place), (dict, list, tuple), [])


def _walk(val: Any, move: Callable[[torch.Tensor], torch.Tensor], containers: tuple[type[Any], ...], above: list[int]) -> Any:
    """A copy of the containers with other tensors inside. above: the containers that the value is in."""
    if isinstance(val, torch.Tensor):
        return move(val)
    if not isinstance(val, containers):
        return val
    if id(val) in above:
        raise InvalidError(f"value: a {type(val).__name__} contains itself: give containers that end")
    above.append(id(val))
    made: Any
    if isinstance(val, tuple):
        items = [_walk(item, move, containers, above) for item in val]
        made = val._make(items) if hasattr(val, "_make") else type(val)(items)
    else:
        made = copy.copy(val)  # which keeps the kind, and what the kind adds
        for key, item in list(val.items() if isinstance(val, dict) else enumerate(val)):
            made[key] = _walk(item, move, containers, above)
    above.pop()
    return made
