"""Mail of peers, and windows."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from stepvan import _core
from stepvan._errors import ClosedError, Error, PeerLostError, StaleError
from stepvan._local import Local
from stepvan._loop import completion

if TYPE_CHECKING:
    from stepvan._peering import Peering


class Mail(NamedTuple):
    """A message: the rank of its sender, and its bytes."""

    source: int
    body: bytes


class Mailbox(Local):
    """The messages on a topic: the result of ``node.peer.listen``. It is an iterator, also an asynchronous one.

    It ends when the node is stopped or closed, or when the mailbox is closed. Any thread may call it.
    """

    def __init__(self, peer: Peering, number: int) -> None:
        self._peer = peer  # which keeps the node
        self._number = number
        self._closer = weakref.finalize(self, _close, number)

    def get(self, timeout: float | None = None) -> Mail:
        """Waits for the next message. Errors: TimeoutError; ClosedError; PeerLostError when the cluster has failed."""
        return Mail(*_core.mailbox_next(self._number, timeout))

    def close(self) -> None:
        """Ends it. Messages in it are lost, and later ones wait for the next ``listen``."""
        self._closer()

    def __iter__(self) -> Mailbox:
        return self

    def __next__(self) -> Mail:
        try:
            return self.get()
        except (ClosedError, StaleError):
            raise StopIteration from None

    def __aiter__(self) -> Mailbox:
        return self

    async def __anext__(self) -> Mail:
        while True:
            try:
                await completion(_core.mailbox_notify, 0, self._number)
                return self.get(0)
            except TimeoutError:  # another task took it
                continue
            except (ClosedError, StaleError):
                raise StopAsyncIteration from None

    def __enter__(self) -> Mailbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def deliver(mailbox: Mailbox, function: Callable[[int, bytes], object]) -> None:
    """Calls a function with each message, on a thread that ends with the mailbox."""

    def run() -> None:
        try:
            for source, body in mailbox:
                function(source, body)
        except PeerLostError:  # the cluster has failed, as other calls say
            pass

    threading.Thread(target=run, name="stepvan mail", daemon=True).start()


class Window(Local):
    """Memory of this peer that others reach by themselves: the result of ``node.peer.expose``.

    token: 32 bytes that name it, to be told to the others in any way, such as ``mail`` or the board. It cannot be guessed.
    notes: a Mailbox with the notes of ``put``; None unless ``on_note`` was given as True.
    """

    def __init__(self, peer: Peering, x: Any, write: bool, peers: Iterable[int], on_note: Callable[[int, bytes], object] | bool | None) -> None:
        self._peer = peer
        self._number, self.token, notes = _core.expose(peer._at, x, write, peers, bool(on_note))
        self._open = True
        mailbox = Mailbox(peer, notes) if notes else None
        self.notes = mailbox if on_note is True else None
        self._mailbox = mailbox
        if mailbox is not None and callable(on_note):
            deliver(mailbox, on_note)

    token: bytes
    notes: Mailbox | None

    def close(self, timeout: float | None = None) -> None:
        """Ends it, and waits until no peer reaches the memory. After TimeoutError, call it again."""
        if self._open:
            _core.unexpose(self._number, timeout)
            self._open = False
            if self._mailbox is not None:
                self._mailbox.close()

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _close(number: int) -> None:
    try:
        _core.mailbox_close(number)
    except Error:  # it ended with its node, or in a forked child
        pass
