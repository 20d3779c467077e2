"""Copies to devices of CUDA and ROCm, out of memory that is registered with the driver."""

from __future__ import annotations

from typing import Any

import torch

from stepvan._errors import ClosedError, InvalidError
from stepvan.replay_pipelines.transfer._streamed import Streamed

__all__ = ["CudaLikeReplayTransferBackend"]


class CudaLikeReplayTransferBackend(Streamed):
    """Copies on a stream of its own. ``register_host_slots`` pins the slots, so the device reads them itself.

    torch has the same functions for ROCm as for CUDA.
    """

    h2d_submitter = "torch_copy_stream"
    host_memory_kind = "registered_pinned_shared"
    supports_timing_events = True

    def __init__(self, *, device: torch.device, ring_depth: int) -> None:
        cuda: Any = torch.cuda
        if not cuda.is_available():
            raise RuntimeError(
                f"replay transfer: {device}: torch {torch.__version__} finds no device: "
                "install torch for CUDA or ROCm, and the driver of the device"
            )
        super().__init__(device, ring_depth, cuda)
        self.device_family = "rocm" if getattr(torch.version, "hip", None) else "cuda"
        self._runtime: Any = cuda.cudart()
        self._registered: dict[int, torch.Tensor] = {}
        """The slots that this backend has registered, by address. The values keep the memory."""

    def register_host_slots(self, slots: list[torch.Tensor]) -> None:
        with self._lock:
            if self._closed:
                raise ClosedError("replay transfer: the backend is closed: make another one")
            added: list[int] = []
            try:
                for i, slot in enumerate(slots):
                    self._register(i, slot, added)
            except BaseException:
                for address in added:
                    self._unregister(address)
                raise
            self.host_pinned = self.direct_pinned_shared = True

    def _register(self, i: int, slot: torch.Tensor, added: list[int]) -> None:
        """Pins a slot, and adds its address. A slot that somebody else has pinned stays theirs."""
        if slot.device.type != "cpu" or not slot.is_contiguous():
            raise InvalidError(f"replay transfer: host slot {i}: not contiguous memory of the host (it is on {slot.device})")
        address, size = slot.data_ptr(), slot.numel() * slot.element_size()
        for other, held in self._registered.items():
            if other < address + size and address < other + held.numel() * held.element_size():
                raise InvalidError(f"replay transfer: host slot {i}: its memory is registered already: register each slot once")
        if size == 0 or _is_pinned(slot):
            return
        result = self._runtime.cudaHostRegister(address, size, 0)
        if int(result) != 0:
            self._forget_error()
            raise RuntimeError(
                f"replay transfer: host slot {i}: the driver does not register {size} bytes ({result}): "
                "see that the process can write to all of it, and that nobody has registered a part of it"
            )
        self._registered[address] = slot
        added.append(address)
        if not _is_pinned(slot):
            raise RuntimeError(f"replay transfer: host slot {i}: torch does not see that the memory is pinned")

    def _unregister(self, address: int) -> None:
        del self._registered[address]
        if int(self._runtime.cudaHostUnregister(address)) != 0:
            self._forget_error()

    def _forget_error(self) -> None:
        """Takes the error that the runtime keeps. The next operation of torch would raise it as its own."""
        try:
            torch.zeros(1, device=self.device).add_(1)
        except (RuntimeError, AssertionError):
            pass

    def close(self) -> None:
        super().close()
        with self._lock:
            for address in list(self._registered):
                self._unregister(address)
            self.host_pinned = self.direct_pinned_shared = False


def _is_pinned(slot: torch.Tensor) -> bool:
    """Whether all of a slot is pinned. torch looks at the first address alone."""
    return bool(slot.is_pinned() and slot.view(-1)[-1:].is_pinned())
