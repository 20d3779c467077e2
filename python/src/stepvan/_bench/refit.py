"""What a process of resharding has and moves. See package bench/refit, whose JSON this reads."""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepvan._bench.spec import Meter

_ELEMENT = 2  # bytes of a bfloat16

# Elements of a row, of a column and of parameters differ by these numbers, as in bench/refit/share.go.
_STEP = 3
_STEP_ROW = 40503
_STEP_PARAMETER = 7919
_STEP_VERSION = 257

CHECKS = 5  # runs of a check while it looks at the memory


@dataclass(frozen=True)
class Side:
    """Where a box begins in the memory of one process, in bytes, and its strides in elements."""

    at: int
    strides: tuple[int, ...]

    @staticmethod
    def read(side: dict[str, Any]) -> Side:
        return Side(side["at"], tuple(side["strides"]))


@dataclass(frozen=True)
class Move:
    """A box that goes from a source to a destination."""

    number: int
    peer: int
    extent: tuple[int, ...]
    mine: Side
    theirs: Side
    parameter: int
    place: tuple[int, int]

    @staticmethod
    def read(move: dict[str, Any]) -> Move:
        place = move["global"]
        return Move(
            move["id"],
            move["peer"],
            tuple(move["extent"]),
            Side.read(move["mine"]),
            Side.read(move["theirs"]),
            move["parameter"],
            (place[0], place[1]),
        )

    @property
    def size(self) -> int:
        """Bytes."""
        return int(np.prod(self.extent)) * _ELEMENT

    def values(self, version: int) -> Any:
        """The bits of the elements."""
        rows = self.extent[0] if len(self.extent) > 1 else 1
        first = self.parameter * _STEP_PARAMETER + version * _STEP_VERSION
        down = (self.place[0] + np.arange(rows, dtype=np.int64)) * _STEP_ROW
        across = (self.place[1] + np.arange(self.extent[-1], dtype=np.int64)) * _STEP
        bits = (first + down[:, None] + across[None, :]).astype(np.uint16)
        return bits.reshape(self.extent)


class Share:
    """What one process has of the model."""

    def __init__(self, share: dict[str, Any]) -> None:
        self.receives: bool = share["destination"]
        self.size: int = share["bytes"]
        self.moves = [Move.read(m) for m in share["moves"] or []]

    def peers(self) -> list[int]:
        """The processes at the other ends of the moves."""
        return sorted({m.peer for m in self.moves})


def own_memory() -> int:
    """The memory of this process in bytes. Pages that n processes share count as 1/n."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    raise RuntimeError("the kernel does not report Pss: use one with /proc/self/smaps_rollup")


class Refit:
    """A process of a resharding by another library. Subclasses move the elements. One thread."""

    def __init__(self, rank: int, share: Share, memory: Any) -> None:
        """``memory`` is the model as an array of uint16."""
        self.share, self.rank, self._bits = share, rank, memory
        self.ends = array("q")
        self.version = 0
        self.before = own_memory()

    def run_once(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Leaves the others."""

    def view(self, move: Move) -> Any:
        """The bits of a box."""
        strides = [s * _ELEMENT for s in move.mine.strides]
        return np.lib.stride_tricks.as_strided(self._bits[move.mine.at // _ELEMENT :], move.extent, strides)

    def prepared(self) -> dict[str, Any]:
        """The reply to the command to prepare."""
        reply: dict[str, Any] = {"memory": self.before}
        if self.share.receives:
            reply |= {"moved": sum(m.size for m in self.share.moves), "pairs": len(self.share.peers())}
        return reply

    def check(self, _: int) -> dict[str, Any]:
        """Moves a version of its own, and compares all elements that have come."""
        self.version += 1
        if self.share.receives:
            self._bits[:] = 0
        else:
            for move in self.share.moves:
                self.view(move)[...] = move.values(self.version)
        self.run_once()
        if self.share.receives:
            for move in self.share.moves:
                if not np.array_equal(self.view(move), move.values(self.version)):
                    raise AssertionError(f"an element of parameter {move.parameter} from peer {move.peer} is wrong")
        most = 0
        for _ in range(CHECKS):
            self.run_once()
            most = max(most, own_memory())
        return {"memory": most}

    def measure(self, count: int) -> dict[str, Any]:
        """Runs ``count`` times, and keeps when each ended, by the clock of the machine."""
        self.ends = array("q", [time.monotonic_ns()])
        meter = Meter()
        for _ in range(count):
            self.run_once()
            self.ends.append(time.monotonic_ns())
        return meter.read()

    def report(self) -> dict[str, Any]:
        """The reply to the command to report."""
        return {"ends": list(self.ends)}
