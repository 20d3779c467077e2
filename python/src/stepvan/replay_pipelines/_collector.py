"""Packs rows for the ring of a learner, in any process of the cluster."""

from __future__ import annotations

import threading
from typing import Any

from stepvan import _core
from stepvan._errors import ClosedError, Error, InvalidError, PeerLostError, StaleError, TimeoutError, WouldBlockError
from stepvan._frameworks import element
from stepvan._mail import deliver
from stepvan.replay_pipelines import _wire
from stepvan.replay_pipelines._buffer import ReplayBuffer, Snapshot
from stepvan.replay_pipelines._rows import pick
from stepvan.replay_pipelines._wire import Ask, Head, Note

__all__ = ["ReplayCollector"]

_PIECE = 64 << 20  # bytes that are put at once; between two pieces the collector looks whether it is still wanted
_FEW = 1 << 20  # bytes that the thread of the mail picks itself
_PROBE = 0.1  # seconds between looks whether the other side lives


class ReplayCollector:
    """Packs rows of a buffer into the slots of a learner's ring, on a thread of its own, whenever the ring asks.

    buffer: has the fields and the dtype of the ring. The program adds rows to it. node: has the role peer. learner: the
    rank of the peer that has the ring. name: of the ring.

    It ends when the ring is closed, when the learner dies, or with ``close``.
    """

    def __init__(self, buffer: ReplayBuffer, *, node: Any, learner: int, name: str = "replay") -> None:
        _wire.check_name(name)
        self._buffer, self._peer, self._learner = buffer, node.peer, learner
        if self._peer is None or not 0 <= learner < self._peer.size:
            raise InvalidError(f"replay: learner: the cluster has no such peer (got {learner!r}): give the rank of the peer with the ring")
        self._to_ring = _wire.topic(name, "ring")
        rows = buffer._rows
        self._dtype = element(rows.dtype)[0]
        row_bytes = rows.width * buffer._memory.element_size()
        self._each, self._few = max(_PIECE // row_bytes, 1), max(_FEW // row_bytes, 1)
        self._changed = threading.Condition()
        self._packing = threading.Lock()
        """Held while rows are packed."""
        self._next: Ask | None = None
        self._ring = 0
        self._closed = False
        self.error: Error | None = None
        """Why it packs no more; None where it was closed, or its ring."""
        self._mailbox = self._peer.listen(_wire.topic(name, "collector"))
        self._tell(Head(_wire.JOIN).pack())
        deliver(self._mailbox, self._mailed)
        self._thread = threading.Thread(target=self._run, name="stepvan replay collector", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, name="stepvan replay watch", daemon=True).start()

    @property
    def done(self) -> bool:
        """Whether it packs no more."""
        return not self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> None:
        """Waits until it packs no more. TimeoutError; PeerLostError where the learner has died."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError("replay: the collector still packs rows")
        if self.error is not None:
            raise self.error

    def close(self, timeout: float | None = None) -> None:
        """Ends it, and tells the ring, which has others pack its rows. Waits until nothing is written any more."""
        if self._end():
            self._tell(Head(_wire.LEAVE, self._ring).pack())
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError("replay: rows are still being written: close the collector again")

    def __enter__(self) -> ReplayCollector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self, error: Error | None = None) -> bool:
        """Ends it, the first time."""
        with self._changed:
            if self._closed:
                return False
            self._closed, self.error = True, error
            self._changed.notify_all()
        self._buffer.wake()
        self._mailbox.close()
        return True

    def _tell(self, body: bytes) -> None:
        try:
            self._peer.mail(self._learner, self._to_ring, body)
        except (PeerLostError, WouldBlockError, ClosedError):
            pass  # _watch finds out

    def _watch(self) -> None:
        while not self._closed:
            try:
                self._peer.mail(self._learner, self._to_ring, Head(_wire.PING).pack())
            except WouldBlockError:
                pass
            except Error as error:
                self._end(error)
                return
            with self._changed:
                self._changed.wait_for(lambda: self._closed, 10 * _PROBE)

    def _mailed(self, source: int, body: bytes) -> None:
        try:
            head = Head.parse(body)
        except Error:
            return
        if source != self._learner:
            return
        if head.kind == _wire.ASK:
            try:
                self._ask(Ask.parse(head, body))
            except Error as error:
                self._tell(head.refusal(str(error)))
        elif head.kind == _wire.OPEN:
            self._ring = head.ring
        elif head.kind == _wire.END and head.ring == self._ring:
            self._end()

    def _ask(self, ask: Ask) -> None:
        rows = self._buffer._rows
        if ask.head.picks not in (_wire.TORCH, _wire.SPLITMIX):
            raise InvalidError(f"replay: picks: this collector has no such generator (got {ask.head.picks}, want 1 or 2)")
        if (ask.width, ask.head.dtype) != (rows.width, self._dtype):
            names = {code: name for name, code in _core.dtype_names().items()}
            got = f"{ask.width} columns of {names.get(ask.head.dtype)}"
            raise InvalidError(f"replay: the rows differ (got {got}, want {rows.width} of {names[self._dtype]}): give ring and collectors the same fields")
        self._ring = ask.head.ring
        if self._packed_at_once(ask):
            return
        with self._changed:
            self._next = ask
            self._changed.notify_all()
        self._buffer.wake()

    def _packed_at_once(self, ask: Ask) -> bool:
        """Packs a few rows on this thread, where nothing waits: another thread would begin later."""
        if ask.rows > self._few or not self._packing.acquire(blocking=False):
            return False
        try:
            snapshot = None if self._replaced() else self._buffer.snapshot_now(ask.least)
            if snapshot is None:
                return False
            self._answer(ask, snapshot)
            return True
        finally:
            self._packing.release()

    def _replaced(self) -> bool:
        """Whether what is being packed is not wanted any more."""
        return self._closed or self._next is not None

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._next is not None)
                ask, self._next = self._next, None
            if self._closed or ask is None:
                return
            snapshot = self._buffer.snapshot(ask.least, self._replaced)
            if snapshot is not None:
                with self._packing:
                    self._answer(ask, snapshot)

    def _answer(self, ask: Ask, snapshot: Snapshot) -> None:
        """Packs rows of a snapshot, or says why not."""
        try:
            with snapshot:
                self._write(ask, snapshot.written, snapshot.held, snapshot.memory)
        except StaleError:
            pass  # the ring has given the slot up
        except Exception as error:  # the learner waits for an answer, whatever it is
            self._tell(ask.head.refusal(str(error)))

    def _write(self, ask: Ask, written: int, held: int, memory: Any) -> None:
        """Puts the rows of a share: those of the last put have the note, and all others are there before it."""
        places = pick(ask.head.picks, ask.seed, held, ask.total, ask.first, ask.rows)
        for at in range(0, ask.rows, self._each):
            if self._replaced():
                return
            n, note = min(self._each, ask.rows - at), None
            if at + n == ask.rows:
                note = Note(ask.head._replace(kind=_wire.NOTE, picks=0, dtype=0), ask.slot, ask.first, ask.rows, written, held).pack()
            self._peer.put_rows(memory, places[at : at + n], ask.token, at=(ask.first + at, 0), note=note).wait()
