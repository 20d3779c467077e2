"""What is measured, and by which keys. See bench/options.go, bench/keys.go and bench/answer.go."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from stepvan._bench.work import Work

# Bits 0-15 of a key are the slot, 16-47 the worker's rank; bit 48 marks a pull.
_RANK_SHIFT = 16
_PULL = 1 << 48


@dataclass(frozen=True)
class Spec:
    """What a node must know of the measurement. Sizes are bytes."""

    workload: str
    van: str
    workers: int
    push: int
    pull: int
    inflight: int
    in_place: bool
    work: Work = Work()

    @staticmethod
    def read(spec: dict[str, Any]) -> Spec:
        """That of a command, without what concerns nodes in Go alone."""
        return Spec(**{f.name: spec[f.name] for f in fields(Spec)} | {"work": Work.read(spec["work"])})

    @property
    def echoes(self) -> bool:
        """Whether a server answers with what it gets."""
        return self.workload in ("echo", "fanout", "batch", "idle")

    @property
    def returns_pushes(self) -> bool:
        """Whether it answers with the tensors of the pushes."""
        return self.echoes and not self.work.fresh

    @property
    def policy(self) -> Any:
        """Of get_batch."""
        return "lockstep" if self.workload in ("afd", "batch") else "any"

    @property
    def end_slot(self) -> int:
        """The slot of the request with which a worker ends a round; those of exchanges are below."""
        return self.inflight

    def mark(self, server: int) -> int:
        """What a server adds to each byte of its answer."""
        return 0 if self.echoes else (server + 1) & 0xFF


def push_key(rank: int, slot: int) -> int:
    """The key of what worker ``rank`` pushes."""
    return rank << _RANK_SHIFT | slot


def pull_key(rank: int, slot: int) -> int:
    """The key of what worker ``rank`` pulls."""
    return _PULL | push_key(rank, slot)


def answer_to(pushed: Any, size: int, mark: int) -> Any:
    """The answer to pushed bytes: ``mark`` added, repeated to the length; a shorter answer is the sum of its pieces."""
    if size >= len(pushed):
        return np.resize(pushed, size) + np.uint8(mark)
    padded = np.zeros(-(-len(pushed) // size) * size, np.uint8)
    padded[: len(pushed)] = pushed
    return padded.reshape(-1, size).sum(axis=0, dtype=np.uint8) + np.uint8(mark)


def pattern(seed: int, size: int) -> Any:
    """Bytes to push, of which two of one seed at different places are rarely the same."""
    places = np.arange(size)
    return (seed + places + (places >> 8) & 0xFF).astype(np.uint8)


def check_answer(answer: Any, pushed: Any, spec: Spec, server: int) -> None:
    """Looks at every byte of what came back."""
    wrong = np.flatnonzero(answer != answer_to(pushed, len(answer), spec.mark(server)))
    if len(wrong) > 0:
        raise AssertionError(f"byte {wrong[0]} of the answer of server {server} is wrong")


class Meter:
    """What this process uses from now on."""

    def __init__(self) -> None:
        self._cpu = time.process_time_ns()
        self._began = time.perf_counter_ns()

    def read(self) -> dict[str, Any]:
        """As part of a reply, in ns."""
        elapsed = time.perf_counter_ns() - self._began
        return {"elapsed": elapsed, "cpu": time.process_time_ns() - self._cpu}
