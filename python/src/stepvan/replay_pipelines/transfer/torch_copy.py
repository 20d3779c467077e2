"""Copies by torch, for devices without streams: the caller makes them."""

from __future__ import annotations

import threading
import time
from typing import Any

import torch

from stepvan._errors import Error
from stepvan.replay_pipelines.base import ReplayTickMetadata
from stepvan.replay_pipelines.transfer._slots import Slots

__all__ = ["TorchCopyReplayTransferBackend"]

_IDLE, _COPYING, _READY, _FAILED = range(4)


class TorchCopyReplayTransferBackend(Slots):
    """``submit_h2d`` makes the copy itself, on any device of torch. The processor's own memory counts as a device."""

    h2d_submitter = "torch_copy"
    host_memory_kind = "pageable_shared"
    supports_async_submit = False
    supports_timing_events = False

    def __init__(self, *, device: torch.device, ring_depth: int) -> None:
        super().__init__(device, ring_depth)
        self.device_family = device.type
        self._states = [_IDLE] * ring_depth
        self._copies = [0] * ring_depth
        """Of each slot, a number that is another one after each submit and clear. A copy ends for its own alone."""
        self._changed = threading.Condition()
        self._waiting = 0

    def register_host_slots(self, slots: list[torch.Tensor]) -> None:
        pass

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
        src = self._check_copy(slot, dst, src)
        copy = self._turn(slot, _COPYING)
        try:
            dst.copy_(src)
        except BaseException:
            self._end(slot, copy, _FAILED)
            raise
        self._end(slot, copy, _READY)
        return (time.perf_counter_ns() - began) / 1e9

    def clear_ready(self, slot: int) -> None:
        self._check_slot(slot)
        self._turn(slot, _IDLE)

    def ready_query(self, slot: int) -> bool:
        self._check_slot(slot)
        return self._states[slot] == _READY

    def synchronize_ready(self, slot: int) -> None:
        self._check_slot(slot)
        if self._states[slot] == _COPYING:
            self._wait(slot)
        if self._states[slot] == _FAILED:
            raise Error(f"replay transfer: slot {slot}: its copy has failed: submit it again")

    def wait_current_stream_for_ready(self, slot: int) -> None:
        self.synchronize_ready(slot)

    def close(self) -> None:
        self._closed = True
        for slot in range(self._ring_depth):
            if self._states[slot] == _COPYING:
                self._wait(slot)

    def _turn(self, slot: int, state: int) -> int:
        """Begins something else with a slot. Returns its number."""
        with self._changed:
            self._copies[slot] += 1
            self._states[slot] = state
            if self._waiting:
                self._changed.notify_all()
            return self._copies[slot]

    def _end(self, slot: int, copy: int, state: int) -> None:
        """Ends a copy, unless something else has begun with its slot."""
        with self._changed:
            if self._copies[slot] == copy:
                self._states[slot] = state
                if self._waiting:
                    self._changed.notify_all()

    def _wait(self, slot: int) -> None:
        """Waits until the slot is not being copied. Ctrl-C ends it."""
        with self._changed:
            self._waiting += 1
            try:
                while self._states[slot] == _COPYING:
                    self._changed.wait()
            finally:
                self._waiting -= 1
