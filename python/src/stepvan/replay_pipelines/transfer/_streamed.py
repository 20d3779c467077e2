"""Copies on a stream of their own, for devices that have streams."""

from __future__ import annotations

import threading
import time
from typing import Any

import torch

from stepvan.replay_pipelines.base import ReplayTickMetadata
from stepvan.replay_pipelines.transfer._slots import Slots

__all__ = ["Streamed"]

_SPIN = 200_000  # ns of looking at an event without sleep: a copy of 10 MiB over PCIe 5.0 takes as long
_NAP = 50e-6  # seconds between looks after that. Ctrl-C comes through between them.


class Streamed(Slots):
    """The copies of a backend on a stream of its own, with an event for each slot.

    A copy must not overwrite what kernels of the learner still read. So a stream that a slot was handed to, by
    ``wait_current_stream_for_ready`` or ``synchronize_ready``, is its *reader*. When the stream is handed another slot,
    its work up to there gets an event, and the next copy to the first slot waits for that. The learner must not queue
    reads of a slot after its stream was handed the next one.

    api: torch.cuda, or what has the same functions for another kind of device.
    """

    supports_async_submit = True
    supports_timing_events = False
    h2d_submitter: str

    def __init__(self, device: torch.device, ring_depth: int, api: Any) -> None:
        super().__init__(device, ring_depth)
        self._api = api
        with api.device(device):
            self._stream = api.Stream(device=device)
            self._ready = [api.Event() for _ in range(ring_depth)]
        self._submitted = [False] * ring_depth
        self._held: dict[Any, int] = {}
        """The slot that each reader was handed last."""
        self._read: list[list[Any]] = [[] for _ in range(ring_depth)]
        """Of each slot, the events behind the reads of those that were handed another one."""
        self._lock = threading.Lock()

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
        began = time.perf_counter_ns()
        traced = trace_recorder is not None and trace_cuda_events and self.supports_timing_events
        start = end = None
        with self._lock:
            src = self._check_copy(slot, dst, src)
            self._submitted[slot] = False
            with self._api.device(self.device), self._api.stream(self._stream):
                self._await_readers(slot)
                if traced:
                    start, end = self._api.Event(enable_timing=True), self._api.Event(enable_timing=True)
                    start.record(self._stream)
                dst.copy_(src, non_blocking=True)
                if end is not None:
                    end.record(self._stream)
                self._ready[slot].record(self._stream)
            self._submitted[slot] = True
        took = (time.perf_counter_ns() - began) / 1e9
        if traced:
            args: dict[str, object] = {
                "slot": slot,
                "h2d_bytes": h2d_bytes,
                "pinned_memory": self.host_pinned,
                "pack_layout": pack_layout,
                "pack_executor": pack_executor,
                "h2d_submitter": self.h2d_submitter,
                "direct_pinned_shared": self.direct_pinned_shared,
            }
            if metadata is not None:
                args |= vars(metadata)
            trace_recorder.add_cuda_pending_span(
                "gpu/replay_pipeline_batch_h2d",
                category="gpu",
                cpu_begin_ns=began,
                start_event=start,
                end_event=end,
                args=args,
            )
        return took

    def clear_ready(self, slot: int) -> None:
        self._check_slot(slot)
        with self._lock:
            self._submitted[slot] = False

    def ready_query(self, slot: int) -> bool:
        self._check_slot(slot)
        return self._submitted[slot] and bool(self._ready[slot].query())

    def synchronize_ready(self, slot: int) -> None:
        self._check_slot(slot)
        with self._lock:
            if not self._submitted[slot]:
                return
            self._hand_out(slot)
        self._wait(self._ready[slot])

    def wait_current_stream_for_ready(self, slot: int) -> None:
        self._check_slot(slot)
        with self._lock:
            if self._submitted[slot]:
                self._hand_out(slot).wait_event(self._ready[slot])

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._stream.synchronize()

    def _hand_out(self, slot: int) -> Any:
        """Makes the current stream the reader of a slot, and returns it. It has read the slot before."""
        reader = self._api.current_stream(self.device)
        before = self._held.get(reader)
        if before is not None and before != slot:
            self._read[before].append(reader.record_event())
        self._held[reader] = slot
        return reader

    def _await_readers(self, slot: int) -> None:
        """Has the stream of the copies wait for the reads of a slot."""
        for reader in [reader for reader, held in self._held.items() if held == slot]:
            self._stream.wait_stream(reader)
            del self._held[reader]
        for event in self._read[slot]:
            self._stream.wait_event(event)
        self._read[slot].clear()

    def _wait(self, event: Any) -> None:
        """Waits for an event. torch's own wait cannot be interrupted."""
        began = time.perf_counter_ns()
        while not event.query():
            if time.perf_counter_ns() - began > _SPIN:
                time.sleep(_NAP)
