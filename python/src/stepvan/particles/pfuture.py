"""What an operation of a particle will give."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from stepvan._local import Local

if TYPE_CHECKING:
    from stepvan.particles.waitable import Waitable

__all__ = ["PFuture"]


class PFuture(Local):
    """The future of an operation. ``await future`` waits in an event loop. Any thread may wait, any number of times.

    Two futures are equal if they have the same ID, and a future is equal to its ID. So each is a key for the other.
    """

    def __init__(self, waitable: Waitable, pid_curr: int, pid: int, fid: int) -> None:
        self._waitable = waitable
        self._fid = fid
        self.pid_curr = pid_curr
        self.pid = pid

    def wait(self, timeout: float | None = None) -> Any:
        """The value of the operation. It waits at most ``timeout`` seconds.

        RemoteError: the function has failed; the message has its traceback. PeerLostError: a loop that it needs has ended,
        and ``subject`` names it. TimeoutError: the operation continues. InvalidError: the function would wait for itself.
        """
        return self._waitable._wait(self._fid) if timeout is None else self._waitable._wait_for(self._fid, timeout)  # type: ignore[attr-defined]

    def done(self) -> bool:
        """Whether ``wait`` would return at once."""
        return bool(self._waitable._is_done(self._fid))  # type: ignore[attr-defined]

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.done():
            yield from self._waitable._completion(self._fid).__await__()  # type: ignore[attr-defined]
        return self.wait(0)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PFuture):
            return self._fid == other._fid
        return self._fid == other if isinstance(other, int) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fid)

    def __del__(self) -> None:
        forget = getattr(getattr(self, "_waitable", None), "_forget", None)
        if forget is not None:
            forget(self._fid)

    def __repr__(self) -> str:
        return f"<PFuture {self._fid} of particle {self.pid}>"
