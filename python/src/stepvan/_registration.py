"""Registered memory, of a worker or a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepvan import _core
from stepvan._errors import StaleError
from stepvan._local import Local

if TYPE_CHECKING:
    from stepvan._node import Node


class Registration(Local):
    """Registered memory. It lasts until ``unregister`` or the end of the node, also without references to this object.

    As a context manager it unregisters at the end.
    """

    __slots__ = ("_chunks", "_ended", "_node", "_number")

    def __init__(self, node: Node, number: int, chunks: Any = None) -> None:
        self._node = node
        self._number = number
        self._chunks = chunks
        self._ended = False
        if chunks is not None:
            node._registrations[number] = self

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the workers know of a receive buffer, after its registration timed out."""
        _core.registration_wait(self._number, timeout)
        if self._chunks is not None and not self._chunks.shared:
            self._forget()  # the library releases the memory by itself

    def unregister(self, timeout: float | None = None) -> None:
        """Ends the registration. Later pushes arrive in pooled memory. A second call has no effect.

        BusyError: a request on it is unanswered, and nothing has changed. TimeoutError: it has ended, but a worker may
        still use the memory: call again.
        """
        try:
            if not self._ended:
                _core.unregister(self._number, timeout)
        except StaleError:
            if not self._ended:  # another thread has ended it meanwhile
                raise
        self._ended = True
        self._forget()

    def _forget(self) -> None:
        self._chunks = None
        self._node._registrations.pop(self._number, None)

    def __int__(self) -> int:
        return self._number

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.unregister()
