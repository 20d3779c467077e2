"""What the programs do besides exchanging: see package bench/work, whose bytes these are."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from time import perf_counter_ns, sleep
from typing import Any

import numpy as np

# The first word of a push: the time in ns, and above it a number that differs from push to push.
_TIME_BITS = 36
_TIME_MASK = (1 << _TIME_BITS) - 1
_NUMBERS = 1 << 27

_WORD_MASK = (1 << 64) - 1

_SEED = 0x7374657076616E


@dataclass(frozen=True)
class Part:
    """Some of the exchanges: ``share`` of them, with times in ns that lie evenly from ``least`` to ``most``."""

    share: float
    least: int
    most: int


@dataclass(frozen=True)
class Work:
    """What both sides do."""

    think: tuple[Part, ...] = ()  # how long the server computes
    fresh: bool = False  # each side writes all that it sends, and reads all that it gets
    sleep: bool = False  # the server sleeps for its time instead of computing

    @staticmethod
    def read(work: dict[str, Any]) -> Work:
        """That of a command."""
        return Work(tuple(Part(**part) for part in work["think"] or ()), work["fresh"], work["sleep"])

    def __bool__(self) -> bool:
        return bool(self.think) or self.fresh

    def answer(self, pushed: Words, answer: Words) -> None:
        """The work between push and answer."""
        word = pushed.first[0]
        if self.fresh and not pushed.are(word):
            raise AssertionError("the pushed bytes are not those that the other side wrote")
        if self.think:
            ns = min(word & _TIME_MASK, max(part.most for part in self.think))
            if self.sleep:
                sleep(ns / 1e9)
            else:
                compute(ns)
        if self.fresh:
            answer.write(answer_word(word))


class Words:
    """The words of a tensor, in its memory."""

    def __init__(self, tensor: Any, fresh: bool) -> None:
        memory = np.asarray(tensor)
        self.first = memory[:8].data.cast("Q")
        self._all = memory.view(np.uint64) if fresh else np.empty(0, np.uint64)

    def write(self, word: int) -> None:
        """Writes a word to all of the memory."""
        self._all.fill(word)

    def are(self, word: int) -> bool:
        """Reads all of the memory: whether its sum fits copies of the word."""
        return int(self._all.sum()) == len(self._all) * word & _WORD_MASK


def answer_word(word: int) -> int:
    """What a fresh answer consists of."""
    return word ^ _TIME_MASK


def compute(ns: int) -> None:
    """Keeps the core busy."""
    end = perf_counter_ns() + ns
    while perf_counter_ns() < end:
        pass


def draw(think: tuple[Part, ...]) -> Iterator[int]:
    """The times of exchanges, without an end."""
    random = Random(_SEED)
    shares = [part.share for part in think]
    while True:
        if not think:
            yield 0
            continue
        [part] = random.choices(think, shares)
        yield part.least if part.least == part.most else random.randint(part.least, part.most)


class Asker:
    """The work of a side that pushes."""

    def __init__(self, work: Work, pushed: Any, answers: list[Any]) -> None:
        self._fresh = work.fresh
        self._pushed, self._answers = Words(pushed, work.fresh), [Words(tensor, work.fresh) for tensor in answers]
        self._times, self._number, self._word = draw(work.think), 0, 0

    def draw(self, count: int) -> array[int]:
        """The times of the next exchanges in ns, drawn before they are measured."""
        return array("q", [next(self._times) for _ in range(count)])

    def write(self, think: int) -> None:
        """Writes the push of an exchange for which the server computes ``think``."""
        if not self._fresh:
            self._pushed.first[0] = think
            return
        self._number = (self._number + 1) % _NUMBERS
        self._word = self._number << _TIME_BITS | think
        self._pushed.write(self._word)

    def read(self) -> None:
        """Reads the answers."""
        if not self._fresh:
            return
        for server, answer in enumerate(self._answers):
            if not answer.are(answer_word(self._word)):
                raise AssertionError(f"answer {server} is not that to the push")
