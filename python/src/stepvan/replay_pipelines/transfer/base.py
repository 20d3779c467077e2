"""What a backend does for a replay pipeline."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from stepvan.replay_pipelines.base import ReplayTickMetadata

__all__ = ["ReplayTransferBackend"]


class ReplayTransferBackend(Protocol):
    """Copies slots of the host to slots of a device.

    Any thread may call the methods. A slot outside of 0 to ring_depth - 1 raises InvalidError.

    device: where the copies go. device_family: 'cuda', 'rocm', 'xpu' or the type of the device. h2d_submitter: what
    makes the copies. host_memory_kind: the memory that they come from. host_pinned, direct_pinned_shared: whether that
    is registered with the driver, so that the device reads it itself. supports_async_submit: whether ``submit_h2d``
    returns before the copy ends. supports_timing_events: whether it can tell a trace when a copy began and ended.
    """

    device: torch.device
    device_family: str
    h2d_submitter: str
    host_memory_kind: str
    host_pinned: bool
    direct_pinned_shared: bool
    supports_async_submit: bool
    supports_timing_events: bool

    def register_host_slots(self, slots: list[torch.Tensor]) -> None:
        """Prepares memory of the host for copies, until ``close``. When one slot fails, none of them is registered."""
        ...

    def allocate_device_slots(self, *, count: int, shape: tuple[int, int], dtype: torch.dtype) -> list[torch.Tensor]:
        """Makes slots on the device. Their elements are not initialized."""
        ...

    def submit_h2d(
        self,
        *,
        slot: int,
        dst: torch.Tensor,
        src: torch.Tensor,
        metadata: ReplayTickMetadata | None,
        trace_recorder: Any,
        trace_cuda_events: bool,
        h2d_bytes: int,
        pack_layout: str,
        pack_executor: str,
    ) -> float:
        """Begins to copy src to dst. Both are contiguous, with as many elements of the same type.

        Returns the seconds that the call took. src and dst must stay until the slot is ready. With trace_recorder,
        trace_cuda_events and a backend that supports timing events, the copy becomes a span of the trace. metadata,
        h2d_bytes (bytes), pack_layout and pack_executor describe it there, and are not looked at otherwise.
        """
        ...

    def clear_ready(self, slot: int) -> None:
        """Forgets the copy that was submitted last for the slot: it is not ready until the next one ends."""
        ...

    def ready_query(self, slot: int) -> bool:
        """Whether the copy of the slot has ended. Never waits. False where no copy was submitted."""
        ...

    def synchronize_ready(self, slot: int) -> None:
        """Waits for the copy of the slot. Returns at once where none was submitted. Ctrl-C ends the wait."""
        ...

    def wait_current_stream_for_ready(self, slot: int) -> None:
        """Has the current stream of torch wait for the copy of the slot.

        Where the device has no streams, the caller waits.
        """
        ...

    def close(self) -> None:
        """Waits for the copies, and gives the registered memory back. Does nothing the second time."""
        ...
