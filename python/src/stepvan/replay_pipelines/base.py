"""What a batch of experience was sampled from."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ReplayTickMetadata"]


@dataclass(frozen=True)
class ReplayTickMetadata:
    """One batch.

    tick_id: which batch of the learner. snapshot_ptr, snapshot_size: how many rows had been written to the buffer, and
    how many it held, when it was sampled. sample_seed: the seed of the random generator that picked the rows.
    sample_count: how many rows. batch_host_slot, batch_gpu_slot: where the rows lie at the host and on the device.
    """

    tick_id: int
    snapshot_ptr: int
    snapshot_size: int
    sample_seed: int
    sample_count: int
    batch_host_slot: int | None = None
    batch_gpu_slot: int | None = None
