"""The board of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from stepvan import _core
from stepvan._errors import Error
from stepvan._local import Local

if TYPE_CHECKING:
    from stepvan._node import Node


class Entry(NamedTuple):
    """An entry of the board.

    key, value: text, and bytes.
    order: numbers the entries in the order in which they were made.
    owner: the node that has posted it: "peer 3".
    """

    key: str
    value: bytes
    order: int
    owner: str


class Board(Local):
    """Small entries that the nodes of a cluster post, and all see: ``node.board``.

    Programs that were started apart meet here.

    An entry lives until its node removes it, leaves or dies. Any thread may call it.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    def post(self, key: str, value: bytes, timeout: float | None = None) -> None:
        """Puts an entry on the board, or replaces the value of an entry of this node.

        key: printable text of at most 256 bytes. value: at most 4 KiB. A node may have 1,024 entries with 1 MiB.

        RemoteError: the key belongs to the node ``subject``, or there are too many entries. After TimeoutError the entry may
        be there all the same.
        """
        number = self._node.number
        _core.wait(number, _core.post(number, key, value), timeout)

    def remove(self, key: str, timeout: float | None = None) -> None:
        """Takes an entry of this node off the board. RemoteError: it has no such entry."""
        number = self._node.number
        _core.wait(number, _core.unpost(number, key), timeout)

    def watch(self, prefix: str, until: Callable[[list[Entry]], object] | None = None, timeout: float | None = None) -> list[Entry]:
        """Waits for entries whose keys begin with ``prefix``, and returns those for which ``until`` is true.

        until: is called with all such entries, and again when they have changed. None: the first list is returned.
        """
        for entries in self.changes(prefix, timeout):
            if until is None or until(entries):
                return entries
        raise AssertionError("the watch has ended")

    def changes(self, prefix: str, timeout: float | None = None) -> Iterator[list[Entry]]:
        """All entries whose keys begin with ``prefix``, and again whenever they have changed.

        timeout: how long to wait for each. Each list is the board as it was at one moment.
        """
        watch = _core.watch(self._node.number, prefix)
        try:
            while True:
                yield [Entry(*row) for row in _core.watch_next(watch, timeout)]
        finally:
            try:
                _core.watch_close(watch)
            except Error:  # it ended with the node
                pass
