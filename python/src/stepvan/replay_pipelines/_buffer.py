"""The buffer of a collector."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

import torch

from stepvan._errors import InvalidError, TimeoutError
from stepvan.replay_pipelines._rows import Rows

__all__ = ["ReplayBuffer", "Snapshot"]


class ReplayBuffer:
    """The last rows that a collector has made, in memory of the host. Any thread may call it.

    fields: the columns of each field by name, such as ``{"obs": 48, "action": 12, "reward": None}``. None stands for
        one column, whose views have one dimension.
    capacity: how many rows it keeps. dtype: of every column.
    """

    def __init__(self, fields: Mapping[str, int | None], capacity: int, dtype: torch.dtype = torch.float32) -> None:
        self._rows = Rows(fields, dtype)
        if not isinstance(capacity, int) or not 0 < capacity < 2**32:
            raise InvalidError(f"replay: capacity: not a number of rows (got {capacity!r}, want 1 to {2**32 - 1})")
        self._memory = torch.zeros((capacity, self._rows.width), dtype=dtype)
        self._written = 0
        self._picking = 0
        self._changed = threading.Condition()
        self.capacity = capacity

    @property
    def written(self) -> int:
        """How many rows were ever added."""
        return self._written

    @property
    def held(self) -> int:
        """How many rows it holds."""
        return min(self._written, self.capacity)

    def add(
        self,
        rows: torch.Tensor | Mapping[str, torch.Tensor | Iterable[float]],
        timeout: float | None = None,
    ) -> None:
        """Adds rows, all of them or none: a matrix with the columns of all fields, or the columns of each field.

        A batch has all rows of an ``add`` or none. Where they would replace rows that a batch may pick at the moment,
        it waits until those are packed. TimeoutError: that lasts longer.
        """
        if isinstance(rows, Mapping):
            rows = self._rows.join(rows)
        if rows.dim() != 2 or rows.shape[1] != self._rows.width or rows.dtype != self._rows.dtype or len(rows) > self.capacity:
            want = f"at most {self.capacity} rows of {self._rows.width} {self._rows.dtype}"
            raise InvalidError(f"replay: rows: they do not fit the buffer (got {list(rows.shape)} of {rows.dtype}, want {want})")
        with self._changed:
            free = self._changed.wait_for(lambda: not self._picking or self._written + len(rows) <= self.capacity, timeout)
            if not free:
                raise TimeoutError("replay: a batch is being packed from the rows that these would replace: try again")
            at = self._written % self.capacity
            first = min(len(rows), self.capacity - at)
            self._memory[at : at + first] = rows[:first]
            self._memory[: len(rows) - first] = rows[first:]
            self._written += len(rows)
            self._changed.notify_all()

    def snapshot(self, least: int, ended: Callable[[], bool]) -> Snapshot | None:
        """The rows that a batch picks from, once so many were written. None when ``ended()`` is true."""
        with self._changed:
            self._changed.wait_for(lambda: self._written >= max(least, 1) or ended())
            if ended():
                return None
            self._picking += 1
            return Snapshot(self, self._written, self.held)

    def snapshot_now(self, least: int) -> Snapshot | None:
        """``snapshot`` without a wait. None: so many rows were not written."""
        with self._changed:
            if self._written < max(least, 1):
                return None
            self._picking += 1
            return Snapshot(self, self._written, self.held)

    def wake(self) -> None:
        """Has those that wait for a snapshot look whether they have ended."""
        with self._changed:
            self._changed.notify_all()


class Snapshot:
    """The rows of a buffer at some time. They stay as they are until the end of the ``with`` block."""

    def __init__(self, buffer: ReplayBuffer, written: int, held: int) -> None:
        self._buffer, self.written, self.held = buffer, written, held

    @property
    def memory(self) -> torch.Tensor:
        """The matrix that has the rows."""
        return self._buffer._memory

    def gather(self, places: torch.Tensor, to: torch.Tensor) -> None:
        torch.index_select(self._buffer._memory, 0, places, out=to)

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        with self._buffer._changed:
            self._buffer._picking -= 1
            self._buffer._changed.notify_all()

