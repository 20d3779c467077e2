"""Copies to Intel's devices, by torch.xpu."""

from __future__ import annotations

from typing import Any

import torch

from stepvan.replay_pipelines.transfer._streamed import Streamed

__all__ = ["XpuReplayTransferBackend"]


class XpuReplayTransferBackend(Streamed):
    """Copies on a stream of its own, out of memory of the host that is not registered."""

    device_family = "xpu"
    h2d_submitter = "torch_xpu_copy_stream"
    host_memory_kind = "pageable_shared"
    host_pinned = False
    direct_pinned_shared = False
    supports_async_submit = True
    supports_timing_events = False

    def __init__(self, *, device: torch.device, ring_depth: int) -> None:
        xpu: Any = getattr(torch, "xpu", None)
        if xpu is None or not hasattr(xpu, "Stream") or not xpu.is_available():
            raise RuntimeError(
                f"replay transfer: {device}: torch {torch.__version__} finds no device of XPU: "
                "install torch for XPU, and the driver of the device"
            )
        super().__init__(device, ring_depth, xpu)

    def register_host_slots(self, slots: list[torch.Tensor]) -> None:
        pass
