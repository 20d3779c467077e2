"""Which backend a device gets."""

from __future__ import annotations

import torch

from stepvan._errors import InvalidError
from stepvan.replay_pipelines.transfer.base import ReplayTransferBackend
from stepvan.replay_pipelines.transfer.cuda_like import CudaLikeReplayTransferBackend
from stepvan.replay_pipelines.transfer.torch_copy import TorchCopyReplayTransferBackend
from stepvan.replay_pipelines.transfer.xpu import XpuReplayTransferBackend

__all__ = ["build_replay_transfer_backend"]


def build_replay_transfer_backend(*, device: torch.device, ring_depth: int) -> ReplayTransferBackend:
    """The backend for a device: for CUDA and ROCm, for XPU, or for any other. ring_depth: how many slots there are."""
    if not isinstance(device, torch.device):
        raise InvalidError(f"replay transfer: device: not a device (got {device!r}, want a torch.device)")
    if device.type == "cuda":
        return CudaLikeReplayTransferBackend(device=device, ring_depth=ring_depth)
    if device.type == "xpu":
        return XpuReplayTransferBackend(device=device, ring_depth=ring_depth)
    return TorchCopyReplayTransferBackend(device=device, ring_depth=ring_depth)
