"""Batches for a learner that are packed while it reads the one before.

The rows come from a buffer of this process, or from collectors in any process of the cluster::

    pipeline = DoubleBufferReplayPipeline(device="cuda", sample_count=8192, fields=fields, node=node, collectors=[1, 2])
    for tick in range(ticks):
        batch = pipeline.sample_large_batch(tick, 8192)  # a tensor for each field, on the device
        pipeline.start_prepare(tick + 1, 8192)           # the next one is packed meanwhile
        learn(batch)
        pipeline.after_tick()

A collector has a ``ReplayBuffer`` and a ``ReplayCollector``. See docs/replay.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from stepvan._errors import ClosedError, InvalidError, TimeoutError
from stepvan.replay_pipelines._buffer import ReplayBuffer
from stepvan.replay_pipelines._collector import ReplayCollector
from stepvan.replay_pipelines._ring import Local, Remote, Request, Source
from stepvan.replay_pipelines._rows import Rows, picks_code
from stepvan.replay_pipelines.base import ReplayTickMetadata
from stepvan.replay_pipelines.transfer import build_replay_transfer_backend

__all__ = ["DoubleBufferReplayPipeline", "ReplayBuffer", "ReplayCollector"]

_SEEDS = 2**64
_SPIN = 200e-6  # seconds of looking for the end of a copy without sleep
_NAP = 50e-6


class DoubleBufferReplayPipeline:
    """A ring of slots: the learner reads the hot one, and the cold one is filled.

    device: of the batches. sample_count: the rows of each batch. base_seed: the seed of a batch is this and its tick.
    ring_depth: slots, 2 or more.

    The rows come from one of these:
        buffer: a ReplayBuffer of this process, whose rows a thread packs.
        collectors: the ranks of peers that each have a ReplayCollector, or a ``replay.Collector`` in Go, for the ring
            ``name``. Each packs a share. node has the role peer. fields and dtype say what a row holds, as at the buffers.

    picks: the generator of the rows: "torch" for those of ``torch.randint(0, size, (sample_count,))``, or "splitmix" for
        those that collectors in Go can pick, too.
    trace_recorder, trace_cuda_events: see ReplayTransferBackend.submit_h2d.

    Any thread may call it. Errors of collectors, of the packing thread and of copies are raised by the call that asks for
    the batch. They stay until ``start_prepare`` begins a tick again.
    """

    def __init__(
        self,
        *,
        device: torch.device | str,
        sample_count: int,
        buffer: ReplayBuffer | None = None,
        fields: Mapping[str, int | None] | None = None,
        dtype: torch.dtype = torch.float32,
        node: Any = None,
        collectors: Iterable[int] = (),
        name: str = "replay",
        base_seed: int = 0,
        ring_depth: int = 2,
        picks: str = "torch",
        trace_recorder: Any = None,
        trace_cuda_events: bool = True,
    ) -> None:
        if not isinstance(sample_count, int) or not 0 < sample_count < 2**32:
            raise InvalidError(f"replay: sample_count: not a number of rows (got {sample_count!r}, want 1 to {2**32 - 1})")
        if not isinstance(ring_depth, int) or ring_depth < 2:
            raise InvalidError(f"replay: ring_depth: too few slots (got {ring_depth!r}, want 2 or more): one is hot while another one is filled")
        collectors = list(collectors)
        if (buffer is None) == (not collectors):
            raise InvalidError("replay: rows: they come from a buffer or from collectors: give one of the two")
        self._rows = buffer._rows if buffer is not None else Rows(fields or {}, dtype)
        self._count, self._base_seed = sample_count, base_seed
        self._recorder, self._trace_events = trace_recorder, trace_cuda_events
        self._changed = threading.Condition()
        self._closed = False
        self._hot, self._held = 0, False
        self._hot_metadata: ReplayTickMetadata | None = None
        self._request: Request | None = None
        self._state = "idle"
        self._metadata: ReplayTickMetadata | None = None
        self._error: BaseException | None = None
        self._told = False
        self._submitted = [False] * ring_depth
        self._backend = build_replay_transfer_backend(device=torch.device(device), ring_depth=ring_depth)
        code = picks_code(picks)
        self._kept: list[torch.Tensor] = []
        """Slots that the device has pinned, until the end."""
        self._source: Source | None = None
        try:
            if buffer is not None:
                self._executor = "packing_thread"
                self._source = Local(self, buffer, sample_count, ring_depth, code)
            else:
                self._executor = "collectors"
                self._source = Remote(self, node, name, self._rows, sample_count, ring_depth, code, collectors, self._register)
            self._backend.register_host_slots(self._source.slots)
            self._slots = self._backend.allocate_device_slots(count=ring_depth, shape=(sample_count, self._rows.width), dtype=self._rows.dtype)
            self._views = [self._rows.views(slot) for slot in self._slots]
            """Made once: a view costs some microseconds, and the learner waits for all of them."""
        except BaseException:
            if self._source is not None:
                self._source.close(None)
            self._backend.close()
            raise

    @property
    def lost(self) -> list[int]:
        """The collectors that have died or left."""
        return list(getattr(self._source, "lost", ()))

    @property
    def state(self) -> str:
        """How far the batch is that is prepared: "idle", "requested", "submitted", "ready" or "failed"."""
        with self._changed:
            self._refresh()
            return self._state

    @property
    def metadata(self) -> ReplayTickMetadata | None:
        """What the hot batch was sampled from; None without one. Of several collectors the counts of rows are sums."""
        return self._hot_metadata

    def _register(self, slot: torch.Tensor) -> None:
        self._backend.register_host_slots([slot])
        if self._backend.host_pinned:
            self._kept.append(slot)

    def _check_count(self, sample_count: int) -> None:
        if sample_count != self._count:
            raise InvalidError(f"replay: sample_count: not the pipeline's (got {sample_count}, want {self._count}): make a pipeline for batches of that size")

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("replay: the pipeline is closed: make another one")

    def _refresh(self) -> None:
        """Looks whether the copy has ended."""
        if self._state == "submitted" and self._request is not None and self._backend.ready_query(self._request.slot):
            self._state = "ready"

    def _raise(self) -> None:
        if self._state == "failed" and self._error is not None:
            self._told = True
            raise self._error

    def start_prepare(self, tick_id: int, sample_count: int, min_snapshot_ptr: int | None = None) -> bool:
        """Has the batch of a tick packed into the cold slot. It does not wait for that.

        False says that this batch was asked for before. min_snapshot_ptr: how many rows each buffer must have been given
        before its rows are picked.

        InvalidError: sample_count is not the pipeline's, or the batch of another tick has not been sampled. ClosedError. The
        error of the last batch, when no call has raised it.
        """
        self._check_count(sample_count)
        with self._changed:
            self._check_open()
            self._refresh()
            if self._state == "failed":
                if not self._told:
                    self._raise()
            elif self._request is not None:
                if self._request.tick == tick_id:
                    return False
                raise InvalidError(f"replay: tick {tick_id}: the batch of tick {self._request.tick} was not taken: sample it first")
            slot = (self._hot + 1) % len(self._slots)
            request = Request(tick_id, (self._base_seed + tick_id) % _SEEDS, min_snapshot_ptr or 0, slot)
            self._request, self._state, self._error, self._metadata = request, "requested", None, None
            copied = self._submitted[slot]
        assert self._source is not None
        if copied:  # the slot was read by the copy of an earlier batch
            self._await_copy(slot, None)
        self._backend.clear_ready(slot)
        self._source.begin(request)
        return True

    def _await_copy(self, slot: int, until: float | None) -> bool:
        """Waits for the end of a copy. False when the time is over before."""
        began = time.monotonic()
        while not self._backend.ready_query(slot):
            now = time.monotonic()
            if self._closed or until is not None and now >= until:
                return False
            if now - began > _SPIN:
                time.sleep(_NAP)
        return True

    def packed(self, request: Request, written: int, held: int) -> None:
        """Begins the copy of a slot whose rows are there. The source calls it."""
        metadata = ReplayTickMetadata(request.tick, written, held, request.seed, self._count, request.slot, request.slot)
        with self._changed:
            if self._closed or self._request is not request:
                return
        assert self._source is not None
        src = self._source.slots[request.slot]
        try:
            self._backend.submit_h2d(
                slot=request.slot,
                dst=self._slots[request.slot],
                src=src,
                metadata=metadata,
                trace_recorder=self._recorder,
                trace_cuda_events=self._trace_events,
                h2d_bytes=src.numel() * src.element_size(),
                pack_layout="packed",
                pack_executor=self._executor,
            )
        except BaseException as error:  # noqa: BLE001: it surfaces in the learner
            self.failed(request, error)
            return
        with self._changed:
            self._submitted[request.slot] = True
            self._metadata, self._state = metadata, "submitted"
            self._changed.notify_all()

    def failed(self, request: Request, error: BaseException) -> None:
        """Notes that a batch has failed. The source calls it."""
        with self._changed:
            if self._request is request and not self._closed:
                self._state, self._error, self._told = "failed", error, False
                self._submitted[request.slot] = False
                self._changed.notify_all()

    def batch_ready(self, tick_id: int, sample_count: int) -> bool:
        """Whether ``sample_large_batch`` would return at once. It never waits. Raises the error of a failed batch."""
        self._check_count(sample_count)
        with self._changed:
            self._check_open()
            if self._held:
                return self._hot_metadata is not None and self._hot_metadata.tick_id == tick_id
            if self._request is None or self._request.tick != tick_id:
                return False
            self._refresh()
            self._raise()
            return self._state == "ready"

    def wait_until_ready(self, tick_id: int, sample_count: int, timeout: float | None = None) -> bool:
        """Waits until the batch of a tick is ready, and returns True. It begins to prepare it when nothing is prepared.

        TimeoutError: after so many seconds; call it again. InvalidError: another tick is prepared. PeerLostError: the
        collectors have died. RemoteError: a collector cannot pack its rows, and says why.
        """
        self._check_count(sample_count)
        until = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            self._check_open()
            if self._request is None and self._held and self._hot_metadata is not None and self._hot_metadata.tick_id == tick_id:
                return True
            begin = self._request is None
        if begin:
            self.start_prepare(tick_id, sample_count)
        with self._changed:
            request = self._request
            if request is None or request.tick != tick_id:
                prepared = "none" if request is None else f"that of tick {request.tick}"
                raise InvalidError(f"replay: tick {tick_id}: another batch is prepared ({prepared}): take that one first")
            left = None if until is None else max(until - time.monotonic(), 0)
            if not self._changed.wait_for(lambda: self._closed or self._state != "requested", left):
                raise TimeoutError(f"replay: tick {tick_id}: rows are missing: wait again")
            self._check_open()
            self._raise()
        if not self._await_copy(request.slot, until):
            self._check_open()
            raise TimeoutError(f"replay: tick {tick_id}: the copy to the device still runs: wait again")
        return True

    def sample_large_batch(self, tick_id: int, sample_count: int) -> dict[str, torch.Tensor]:
        """Takes the batch of a tick, and waits for it. Returns a view of each field, on the device.

        Its slot becomes hot. The views are the learner's until ``after_tick``. The same tick again, before that, gives the
        same batch. Errors are those of ``wait_until_ready``.
        """
        self._check_count(sample_count)
        if not self._swapped(tick_id):
            self.wait_until_ready(tick_id, sample_count)
            if not self._swapped(tick_id):
                raise InvalidError(f"replay: tick {tick_id}: another thread has taken its batch: sample from one thread")
        return dict(self._views[self._hot])

    def _swapped(self, tick_id: int) -> bool:
        """Makes the slot of a batch hot. False: it is not ready."""
        with self._changed:
            self._check_open()
            if self._held:
                held = self._hot_metadata
                if held is not None and held.tick_id != tick_id:
                    raise InvalidError(f"replay: tick {tick_id}: the learner holds the batch of tick {held.tick_id}: call after_tick first")
                return True
            request = self._request
            if request is None or request.tick != tick_id:
                return False
            self._refresh()
            if self._state != "ready":
                return False
            self._backend.wait_current_stream_for_ready(request.slot)
            self._hot, self._held, self._hot_metadata = request.slot, True, self._metadata
            self._request, self._state, self._metadata = None, "idle", None
            return True

    def after_tick(self) -> None:
        """Gives the hot slot back. Without a batch it does nothing."""
        with self._changed:
            self._held, self._hot_metadata = False, None

    def close(self, timeout: float | None = None) -> None:
        """Ends the pipeline and tells its collectors. Waits for copies, and until nobody writes to the slots.

        After TimeoutError, call it again.
        """
        with self._changed:
            self._closed, self._held = True, False
            self._changed.notify_all()
        assert self._source is not None
        self._source.close(timeout)
        self._backend.close()

    def __enter__(self) -> DoubleBufferReplayPipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
