"""What two ranks tell each other of the moves between them, so that both know that they fit."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import NamedTuple

import torch

from stepvan._errors import InvalidError, ProtocolError
from stepvan.resharding import _dtypes

# Direction, type at the source, type at the destination (0 from the source), occurrence, task, elements, and whether
# the memory stays.
_ENTRY = struct.Struct("<BBBIQQQ")
_HEAD = struct.Struct("<8sQQ16s")
_MAGIC = b"stvmoves"
_NO_TASK = 2**64 - 1
HEAD_BYTES = _HEAD.size


class Key(NamedTuple):
    """What both sides know a move by: its direction (0: to the higher rank), its task and its occurrence."""

    direction: int
    task: int
    occurrence: int


class Pending(NamedTuple):
    """One side of a move: its tensor, whether that stays where it is, and the name of the parameter.

    source: of a receive, the type at the source where that differs.
    """

    tensor: torch.Tensor
    stays: bool = False
    label: str = ""
    source: torch.dtype | None = None

    @property
    def comes(self) -> torch.dtype:
        """The type at the source."""
        return self.tensor.dtype if self.source is None else self.source


class Agreed(NamedTuple):
    """What the other side says of a move.

    stays: whether its memory stays. wire: the type that elements have on their way, where the sides have two.
    """

    stays: bool
    wire: torch.dtype | None


class Moves:
    """The moves between this rank and another."""

    def __init__(self, rank: int, peer: int) -> None:
        self.rank, self.peer = rank, peer
        self.found: dict[Key, Pending] = {}
        self._counts: dict[tuple[int, int], int] = {}

    def add(self, is_send: bool, task: int | None, pending: Pending) -> None:
        """Adds a send or a receive, behind those of the same task."""
        direction = int((self.rank < self.peer) != is_send)
        number = _NO_TASK if task is None else task
        if not 0 <= number < 2**64:
            raise InvalidError(f"reshard: task_id is out of range (got {task}, want 0 to 2**64-2): let the planner make the plan")
        count = self._counts.get((direction, number), 0)
        self._counts[direction, number] = count + 1
        self.found[Key(direction, number, count)] = pending

    @property
    def keys(self) -> list[Key]:
        """In the order that both sides have."""
        return sorted(self.found)

    def is_send(self, key: Key) -> bool:
        return (key.direction == 0) == (self.rank < self.peer)

    def manifest(self) -> bytes:
        """What this rank says of the moves. Apart from the last number of each, both sides say the same."""
        return b"".join(self._entry(key, True) for key in self.keys)

    def _entry(self, key: Key, own: bool) -> bytes:
        one = self.found[key]
        lands = 0 if self.is_send(key) or not own else _dtypes.code(one.label, one.tensor.dtype)
        return _ENTRY.pack(key.direction, _dtypes.code(one.label, one.comes), lands, key.occurrence, key.task, one.tensor.numel(), own and one.stays)

    def head(self, manifest: bytes, attempt: int) -> bytes:
        """What comes first: the length of the manifest, a number, and what the manifest says, in short."""
        return _HEAD.pack(_MAGIC, len(manifest), attempt, self._digest())

    def _digest(self) -> bytes:
        return hashlib.blake2b(b"".join(self._entry(key, False) for key in self.keys), digest_size=16).digest()

    def read_head(self, head: bytes) -> tuple[int, int, bool]:
        """The length of the other manifest, the other number, and whether both say the same."""
        magic, length, attempt, digest = _HEAD.unpack(head)
        if magic != _MAGIC or length % _ENTRY.size or length > 2**32:
            raise ProtocolError(f"reshard: rank {self.peer} does not say what it moves (got {head[:16]!r}...): use the same version of stepvan at all ranks")
        return length, attempt, digest == self._digest()

    def compare(self, manifest: bytes) -> list[Agreed]:
        """What the other side says of each move. It refuses moves that do not fit."""
        theirs: dict[Key, tuple[int, int, int, bool]] = {}
        for direction, dtype, lands, occurrence, task, elements, stays in _ENTRY.iter_unpack(manifest):
            theirs[Key(direction, task, occurrence)] = (dtype, elements, lands, bool(stays))
        for key in sorted(theirs.keys() | self.found.keys()):
            if key not in theirs or key not in self.found:
                raise self._one_sided(key, theirs)
            tensor, _, label, _ = one = self.found[key]
            dtype, elements, _, _ = theirs[key]
            if (_dtypes.code(label, one.comes), tensor.numel()) != (dtype, elements):
                raise InvalidError(
                    f"reshard: {self._name(key, label)}: both sides differ (got {one.comes} x {tensor.numel()} at rank {self.rank}, "
                    f"{_dtypes.name(dtype)} x {elements} at rank {self.peer}): give both the same type and as many elements"
                )
        return [Agreed(theirs[key][3], self._wire(key, theirs[key][2])) for key in self.keys]

    def _wire(self, key: Key, lands: int) -> torch.dtype | None:
        """The type that elements have on their way; None: that of both sides."""
        one = self.found[key]
        to = one.tensor.dtype
        if self.is_send(key):
            if lands in (0, _dtypes.code(one.label, to)):
                return None
            to = _dtypes.dtype(lands)
        if not _dtypes.converts(one.comes, to):
            if one.comes != to:
                raise ProtocolError(f"reshard: rank {self.peer} wants {one.comes} as {to}, which nobody converts: use the same version of stepvan at all ranks")
            return None
        return _dtypes.on_the_way(one.comes, to)

    def _one_sided(self, key: Key, theirs: Mapping[Key, object]) -> InvalidError:
        counts = [sum(other[:2] == key[:2] for other in side) for side in (self.found, theirs)]
        pending = self.found.get(key._replace(occurrence=0))
        what = ("sends", "receives") if self.is_send(key) else ("receives", "sends")
        return InvalidError(
            f"reshard: {self._name(key, pending.label if pending else '')}: both sides differ (got {counts[0]} {what[0]} at rank {self.rank}, "
            f"{counts[1]} {what[1]} at rank {self.peer}): submit as many of both"
        )

    @staticmethod
    def _name(key: Key, label: str) -> str:
        task = "a move without task" if key.task == _NO_TASK else f"task {key.task}"
        return f"parameter {label!r} ({task})" if label else task


