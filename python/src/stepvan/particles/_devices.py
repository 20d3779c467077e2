"""Numbers of devices."""

from __future__ import annotations

from typing import Any

import torch

from stepvan._errors import InvalidError, cut


def torch_device(device: Any) -> torch.device:
    """The device of torch that a number stands for: CUDA or XPU where there is one, and else the CPU.

    On a machine without accelerator all numbers stand for the CPU.
    """
    if isinstance(device, torch.device | str):
        try:
            return torch.device(device)
        except RuntimeError as error:
            raise InvalidError(f"device is {cut(device)}: torch has no such device ({str(error).splitlines()[0]}): give a number from 0 on") from None
    if not isinstance(device, int) or isinstance(device, bool) or device < 0:
        raise InvalidError(f"device is {cut(device)}: it must be a number from 0 on, or a torch.device")
    kind, count = accelerators()
    if count == 0:
        return torch.device("cpu")
    if device >= count:
        raise InvalidError(f"device is {device}: torch has {count} devices of {kind}: give a number below {count}")
    return torch.device(kind, device)


def accelerators() -> tuple[str, int]:
    """The kind of accelerator that torch has here, and how many."""
    for kind in ("cuda", "xpu"):
        module: Any = getattr(torch, kind, None)
        if module is not None and module.is_available():
            return kind, int(module.device_count())
    return "cpu", 0
