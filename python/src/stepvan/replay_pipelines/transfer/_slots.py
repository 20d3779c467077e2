"""What all backends check of slots and tensors."""

from __future__ import annotations

import torch

from stepvan._errors import ClosedError, InvalidError

__all__ = ["Slots"]


class Slots:
    """The slots of a backend, by number. The backends derive from it."""

    host_pinned = False
    direct_pinned_shared = False

    def __init__(self, device: torch.device, ring_depth: int) -> None:
        if not isinstance(device, torch.device):
            raise InvalidError(f"replay transfer: device: not a device (got {device!r}, want a torch.device)")
        if not isinstance(ring_depth, int) or ring_depth < 1:
            raise InvalidError(f"replay transfer: ring_depth: not a number of slots (got {ring_depth!r}, want 1 or more)")
        self.device = device
        self._ring_depth = ring_depth
        self._closed = False

    def allocate_device_slots(self, *, count: int, shape: tuple[int, int], dtype: torch.dtype) -> list[torch.Tensor]:
        return [torch.empty(shape, dtype=dtype, device=self.device) for _ in range(count)]

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < self._ring_depth:
            raise InvalidError(f"replay transfer: slot {slot}: there is no such slot (want 0 to {self._ring_depth - 1})")

    def _check_copy(self, slot: int, dst: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
        """Refuses what cannot be copied. Returns src in the shape of dst."""
        self._check_slot(slot)
        if self._closed:
            raise ClosedError(f"replay transfer: slot {slot}: the backend is closed: make another one")
        if dst.dtype != src.dtype or dst.numel() != src.numel():
            got = f"got {src.numel()} elements of {src.dtype}, want {dst.numel()} of {dst.dtype}"
            raise InvalidError(f"replay transfer: slot {slot}: src does not fit dst ({got})")
        if not (dst.is_contiguous() and src.is_contiguous()):
            name = "src" if dst.is_contiguous() else "dst"
            raise InvalidError(f"replay transfer: slot {slot}: {name} has gaps: make it contiguous")
        if src.device.type != "cpu":
            raise InvalidError(f"replay transfer: slot {slot}: src is not in memory of the host (got {src.device}, want cpu)")
        if dst.device != self.device and not self._is_ours(dst.device):
            raise InvalidError(f"replay transfer: slot {slot}: dst is on another device (got {dst.device}, want {self.device})")
        return src if src.shape == dst.shape else src.view(dst.shape)

    def _is_ours(self, device: torch.device) -> bool:
        """Whether a device, which is not written as the backend's, is the same."""
        return device.type == self.device.type and self.device.index is None
