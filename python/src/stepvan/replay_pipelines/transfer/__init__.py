"""Copies slots from memory of the host to a device, while the device computes.

A *slot* is a tensor that holds one batch. Slot i of the host goes to slot i of the device::

    backend = build_replay_transfer_backend(device=torch.device("cuda"), ring_depth=2)
    backend.register_host_slots(host)
    slots = backend.allocate_device_slots(count=2, shape=(8192, 100), dtype=torch.float32)
    backend.submit_h2d(slot=0, dst=slots[0], src=host[0], ...)  # returns before the copy ends, where the device can
    backend.wait_current_stream_for_ready(0)  # kernels that are queued from here on see the batch

All classes can be imported everywhere. Making one whose driver is missing raises RuntimeError.
"""

from stepvan.replay_pipelines.transfer.base import ReplayTransferBackend
from stepvan.replay_pipelines.transfer.cuda_like import CudaLikeReplayTransferBackend
from stepvan.replay_pipelines.transfer.factory import build_replay_transfer_backend
from stepvan.replay_pipelines.transfer.torch_copy import TorchCopyReplayTransferBackend
from stepvan.replay_pipelines.transfer.xpu import XpuReplayTransferBackend

__all__ = [
    "CudaLikeReplayTransferBackend",
    "ReplayTransferBackend",
    "TorchCopyReplayTransferBackend",
    "XpuReplayTransferBackend",
    "build_replay_transfer_backend",
]
