"""The messages of rings and collectors, as package replay in Go has them. docs/replay.md has the tables."""

from __future__ import annotations

import struct
from typing import NamedTuple

from stepvan._errors import InvalidError, ProtocolError

__all__ = ["ASK", "END", "JOIN", "LEAVE", "NOTE", "OPEN", "PING", "REFUSAL", "SPLITMIX", "TORCH", "Ask", "Head", "Note", "check_name", "topic"]

_MAGIC, _VERSION = 0x4C505252, 1
ASK, END, PING, NOTE, REFUSAL, LEAVE, JOIN, OPEN = range(1, 9)
TORCH, SPLITMIX = 1, 2
"""The generators that pick rows."""

_HEAD = struct.Struct("<IBBBBQQQ")
_ASK = struct.Struct("<QQIIQQQ32s")
_NOTE = struct.Struct("<IIQQQQ")
_MAX_REFUSAL = 1024
_MAX_NAME = 64


class Head(NamedTuple):
    """What every message has. ring: a random number; attempt: of the ring to have a tick packed, they count up."""

    kind: int
    ring: int = 0
    tick: int = 0
    attempt: int = 0
    picks: int = 0
    dtype: int = 0

    def pack(self) -> bytes:
        return _HEAD.pack(_MAGIC, _VERSION, self.kind, self.picks, self.dtype, self.ring, self.tick, self.attempt)

    @classmethod
    def parse(cls, body: bytes) -> Head:
        if len(body) < _HEAD.size:
            raise ProtocolError(f"replay: {len(body)} bytes are not a message of a ring")
        magic, version, kind, picks, dtype, ring, tick, attempt = _HEAD.unpack_from(body)
        if magic != _MAGIC:
            raise ProtocolError(f"replay: {len(body)} bytes are not a message of a ring")
        if version != _VERSION:
            raise ProtocolError(f"replay: a message has another version (got {version}, want {_VERSION}): use one version of stepvan")
        return cls(kind, ring, tick, attempt, picks, dtype)

    def refusal(self, text: str) -> bytes:
        """The answer to an ask that cannot be packed."""
        return self._replace(kind=REFUSAL, picks=0, dtype=0).pack() + text.encode()[:_MAX_REFUSAL]

    @staticmethod
    def reason(body: bytes) -> str:
        """The text of a refusal."""
        try:
            return body[_HEAD.size : _HEAD.size + _MAX_REFUSAL].decode() or "it gives no reason"
        except UnicodeDecodeError:
            return "it gives no reason"


class Ask(NamedTuple):
    """What a collector has to pack: rows from row first on, of a batch of total rows.

    least: the rows that must have been written to its buffer before. token: of the window of the slot.
    """

    head: Head
    seed: int
    least: int
    slot: int
    width: int
    total: int
    first: int
    rows: int
    token: bytes

    def pack(self) -> bytes:
        return self.head.pack() + _ASK.pack(*self[1:])

    @classmethod
    def parse(cls, head: Head, body: bytes) -> Ask:
        if len(body) != _HEAD.size + _ASK.size:
            raise ProtocolError(f"replay: an ask has another length (got {len(body)}, want {_HEAD.size + _ASK.size} bytes)")
        ask = cls(head, *_ASK.unpack_from(body, _HEAD.size))
        if not 0 < ask.rows <= ask.total - ask.first or ask.total >= 2**32:
            raise ProtocolError(f"replay: an ask is for {ask.rows} rows from row {ask.first} on, of a batch of {ask.total}")
        if not 0 < ask.width < 2**31:
            raise ProtocolError(f"replay: an ask is for rows of {ask.width} columns")
        return ask


class Note(NamedTuple):
    """Which rows are whole. written, held: of the buffer when they were picked."""

    head: Head
    slot: int
    first: int
    rows: int
    written: int
    held: int

    def pack(self) -> bytes:
        return self.head.pack() + _NOTE.pack(self.slot, 0, self.first, self.rows, self.written, self.held)

    @classmethod
    def parse(cls, head: Head, body: bytes) -> Note:
        if len(body) != _HEAD.size + _NOTE.size:
            raise ProtocolError(f"replay: a note has another length (got {len(body)}, want {_HEAD.size + _NOTE.size} bytes)")
        slot, _, first, rows, written, held = _NOTE.unpack_from(body, _HEAD.size)
        return cls(head, slot, first, rows, written, held)


def topic(name: str, side: str) -> str:
    """The topic of the mail to a side of a ring: "ring" or "collector"."""
    return f"replay/{name}/{side}"


def check_name(name: str) -> None:
    if not isinstance(name, str) or not 0 < len(name.encode()) <= _MAX_NAME:
        raise InvalidError(f"replay: name: not a name of a ring (got {name!r}, want text of 1 to {_MAX_NAME} bytes)")
