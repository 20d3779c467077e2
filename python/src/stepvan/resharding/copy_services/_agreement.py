"""What two ranks tell each other of the moves between them, so that both know that they fit."""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

import torch

from stepvan._errors import InvalidError, ProtocolError
from stepvan.resharding import _dtypes

_ENTRY = struct.Struct("<BBIQQQ")  # direction, type, occurrence, task, elements, whether the memory stays
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
    """One side of a move: its tensor, whether that stays where it is, and the name of the parameter."""

    tensor: torch.Tensor
    stays: bool = False
    label: str = ""


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
        tensor, stays, label = self.found[key]
        return _ENTRY.pack(key.direction, _dtypes.code(label, tensor.dtype), key.occurrence, key.task, tensor.numel(), own and stays)

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

    def compare(self, manifest: bytes) -> list[bool]:
        """Whether the memory of each move stays at the other side. It refuses moves that do not fit."""
        theirs: dict[Key, tuple[int, int, bool]] = {}
        for direction, dtype, occurrence, task, elements, stays in _ENTRY.iter_unpack(manifest):
            theirs[Key(direction, task, occurrence)] = (dtype, elements, bool(stays))
        for key in sorted(theirs.keys() | self.found.keys()):
            if key not in theirs or key not in self.found:
                raise self._one_sided(key, theirs)
            tensor, _, label = self.found[key]
            dtype, elements, _ = theirs[key]
            if (_dtypes.code(label, tensor.dtype), tensor.numel()) != (dtype, elements):
                raise InvalidError(
                    f"reshard: {self._name(key, label)}: both sides differ (got {tensor.dtype} x {tensor.numel()} at rank {self.rank}, "
                    f"{_dtypes.name(dtype)} x {elements} at rank {self.peer}): give both the same type and as many elements"
                )
        return [theirs[key][2] for key in self.keys]

    def _one_sided(self, key: Key, theirs: dict[Key, tuple[int, int, bool]]) -> InvalidError:
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


