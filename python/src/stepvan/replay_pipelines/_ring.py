"""Where the rows of a batch come from: a buffer of this process, or collectors anywhere in the cluster."""

from __future__ import annotations

import contextlib
import logging
import queue
import secrets
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch

from stepvan._errors import ClosedError, Error, InvalidError, PeerLostError, ProtocolError, RemoteError, StaleError, WouldBlockError
from stepvan._frameworks import element
from stepvan._mail import Window
from stepvan.replay_pipelines import _wire
from stepvan.replay_pipelines._buffer import ReplayBuffer
from stepvan.replay_pipelines._rows import Rows, pick
from stepvan.replay_pipelines._wire import Ask, Head, Note

__all__ = ["Local", "Remote", "Request", "Source"]

log = logging.getLogger("stepvan")

_PROBE = 0.1  # seconds between looks whether the collectors live that a batch waits for


class Request:
    """A batch that is being prepared: what the pipeline wants, and what becomes of it.

    packed and failed tell the pipeline. Each request calls one of them, once, on any thread.
    """

    def __init__(self, tick: int, seed: int, least: int, slot: int) -> None:
        self.tick, self.seed, self.least, self.slot = tick, seed, least, slot
        self.over = False
        """It is packed, has failed, or is not wanted any more."""


class Sink(Protocol):
    """What a source tells the pipeline."""

    def packed(self, request: Request, written: int, held: int) -> None: ...

    def failed(self, request: Request, error: BaseException) -> None: ...


class Source(Protocol):
    """Packs rows into slots of the host."""

    slots: list[torch.Tensor]

    def begin(self, request: Request) -> None:
        """Has a batch packed. It does not wait."""
        ...

    def close(self, timeout: float | None) -> None: ...


class Local:
    """Packs rows of a buffer of this process, on a thread of its own."""

    def __init__(self, sink: Sink, buffer: ReplayBuffer, count: int, depth: int, picks: int) -> None:
        self._sink, self._buffer, self._picks = sink, buffer, picks
        self.slots = [torch.empty((count, buffer._rows.width), dtype=buffer._rows.dtype) for _ in range(depth)]
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="stepvan replay packer", daemon=True)
        self._thread.start()

    def begin(self, request: Request) -> None:
        self._requests.put(request)

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                self._pack(request)
            except BaseException as error:  # noqa: BLE001: it surfaces in the learner
                self._sink.failed(request, error)

    def _pack(self, request: Request) -> None:
        snapshot = self._buffer.snapshot(request.least, lambda: self._closed)
        if snapshot is None:
            return
        slot = self.slots[request.slot]
        with snapshot:
            snapshot.gather(pick(self._picks, request.seed, snapshot.held, len(slot), 0, len(slot)), slot)
        self._sink.packed(request, snapshot.written, snapshot.held)

    def close(self, timeout: float | None) -> None:
        self._closed = True
        self._requests.put(None)
        self._buffer.wake()
        self._thread.join(timeout)


class _Share:
    """The rows of a batch that one collector was asked for."""

    def __init__(self, rank: int, first: int, rows: int) -> None:
        self.rank, self.first, self.rows, self.left = rank, first, rows, rows

    def take(self, note: Note, whole: list[tuple[int, int]]) -> None:
        """Notes rows that are whole. Raises what is wrong with the note."""
        if not (note.rows > 0 and self.first <= note.first and note.first + note.rows <= self.first + self.rows):
            asked = f"it was asked for {self.rows} from row {self.first} on"
            raise ProtocolError(f"it says that it wrote {note.rows} rows from row {note.first} on: {asked}")
        if any(note.first < last and first < note.first + note.rows for first, last in whole):
            raise ProtocolError(f"it says twice that it wrote some of the {note.rows} rows from row {note.first} on")
        whole.append((note.first, note.first + note.rows))
        self.left -= note.rows


class _Attempt:
    """One time that the collectors are asked for a batch."""

    def __init__(self, request: Request, number: int, count: int, members: list[int]) -> None:
        self.request, self.number = request, number
        bounds = [count * i // len(members) for i in range(len(members) + 1)]
        self.shares = {rank: _Share(rank, lo, hi - lo) for rank, lo, hi in zip(members, bounds, bounds[1:], strict=False) if hi > lo}
        self.whole: list[tuple[int, int]] = []
        self.written = self.held = 0

    def take(self, source: int, note: Note) -> bool:
        """Notes rows that are whole. Returns whether all are."""
        share = self.shares.get(source)
        if share is None:
            raise ProtocolError(f"it was not asked for rows of tick {self.request.tick}")
        if share.left == share.rows:
            self.written, self.held = self.written + note.written, self.held + note.held
        share.take(note, self.whole)
        return not self.awaited()

    def awaited(self) -> list[int]:
        return [share.rank for share in self.shares.values() if share.left]


class Remote:
    """Asks collectors for the rows, and exposes the slots to them."""

    def __init__(
        self, sink: Sink, node: Any, name: str, rows: Rows, count: int, depth: int, picks: int, collectors: Iterable[int], on_slot: Callable[[torch.Tensor], None]
    ) -> None:
        _wire.check_name(name)
        self._sink, self._node, self._peer, self._rows, self._count = sink, node, node.peer, rows, count
        self._order = list(collectors)
        if self._peer is None:
            raise InvalidError("replay: node: it is no peer: start it with the role peer")
        if not self._order or len(set(self._order)) < len(self._order) or not all(0 <= rank < self._peer.size for rank in self._order):
            raise InvalidError(f"replay: collectors: wrong ranks (got {self._order}, want each once, 0 to {self._peer.size - 1})")
        self._members, self.lost = list(self._order), list[int]()
        self._picks, self._dtype, self._on_slot = picks, element(rows.dtype)[0], on_slot
        self._to_collector = _wire.topic(name, "collector")
        self._id = secrets.randbits(64) or 1
        self._changed = threading.Condition()
        self._asking = threading.Lock()
        self._attempt: _Attempt | None = None
        self._request: Request | None = None
        self._attempts = 0
        self._closed = False
        self._spoilt = [False] * depth
        self._old: list[Window] = []
        self.slots: list[torch.Tensor] = []
        self._windows: list[Window] = []
        for _ in range(depth):
            slot, window = self._slot()
            self.slots.append(slot)
            self._windows.append(window)
        self._mailbox = self._peer.listen(_wire.topic(name, "ring"))
        deliver_all(self._mailbox, self._mailed, self._overrun)
        for rank in self._order:
            self._tell(rank, _wire.OPEN)
        self._thread = threading.Thread(target=self._watch, name="stepvan replay watch", daemon=True)
        self._thread.start()

    def _slot(self) -> tuple[torch.Tensor, Window]:
        slot: torch.Tensor = self._node.empty((self._count, self._rows.width), self._rows.dtype)
        window = self._peer.expose(slot, write=True, peers=self._order, on_note=True)
        deliver_all(window.notes, self._noted, self._overrun)
        return slot, window

    def begin(self, request: Request) -> None:
        with self._changed:
            self._request, self._attempt = request, None
        self._ask()

    def _ask(self) -> None:
        """Asks the collectors for the batch that was not asked for, until all of them that live have been asked."""
        with self._asking:
            while True:
                with self._changed:
                    request = self._request
                    if self._closed or request is None or request.over or self._attempt is not None:
                        return
                    spoilt, self._spoilt[request.slot] = self._spoilt[request.slot], False
                try:
                    if spoilt:
                        self._renew(request.slot)
                    if self._ask_once(request):
                        return
                except Exception as error:  # noqa: BLE001: it surfaces in the learner
                    self._fail(request, error)
                    return

    def _ask_once(self, request: Request) -> bool:
        with self._changed:
            if not self._members:
                raise self._none_left()
            self._attempts += 1
            attempt = self._attempt = _Attempt(request, self._attempts, self._count, self._members)
            head = Head(_wire.ASK, self._id, request.tick, attempt.number, self._picks, self._dtype)
            token = self._windows[request.slot].token
        for share in list(attempt.shares.values()):
            ask = Ask(head, request.seed, request.least, request.slot, self._rows.width, self._count, share.first, share.rows, token)
            try:
                self._peer.mail(share.rank, self._to_collector, ask.pack())
            except PeerLostError:
                self._remove(share.rank, "died")
                return False
        with self._changed:
            self._changed.notify_all()
        return True

    def _renew(self, slot: int) -> None:
        """Gives a slot other memory, since somebody may still write to it."""
        fresh, window = self._slot()
        self._on_slot(fresh)
        old, self.slots[slot], self._windows[slot] = self._windows[slot], fresh, window
        self._old.append(old)
        threading.Thread(target=self._end_old, args=(old,), name="stepvan replay window", daemon=True).start()

    def _end_old(self, old: Window) -> None:
        """Lets the memory of a slot go when nobody writes to it."""
        _end(old, None)
        with self._asking:
            self._old.remove(old)

    def _none_left(self) -> PeerLostError:
        names = ", ".join(f"peer {rank}" for rank in self.lost)
        error = PeerLostError(f"replay: {names}: no collector is left to pack rows: start the job again")
        error.subject = names
        return error

    def _fail(self, request: Request, error: BaseException) -> None:
        with self._changed:
            if request.over or self._request is not request:
                return
            request.over, self._attempt = True, None
            self._spoilt[request.slot] = True
        self._sink.failed(request, error)

    def _remove(self, rank: int, how: str) -> None:
        """Takes a collector from the list, and the batch back that waits for it."""
        with self._changed:
            if rank not in self._members:
                return
            self._members.remove(rank)
            self.lost.append(rank)
            log.warning("replay: peer %d has %s: others pack its rows", rank, how)
            request, attempt = self._request, self._attempt
            if attempt is None or request is None or request.over or rank not in attempt.awaited():
                return
            self._attempt, self._spoilt[request.slot] = None, True
            self._changed.notify_all()

    def _watch(self) -> None:
        """Looks for collectors that have died, while a batch waits for them."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._request is not None and not self._request.over))
                if self._closed:
                    return
                awaited = self._attempt.awaited() if self._attempt is not None else []
            for rank in awaited:
                try:
                    self._peer.mail(rank, self._to_collector, Head(_wire.PING, self._id).pack())
                except PeerLostError:
                    self._remove(rank, "died")
                except (WouldBlockError, ClosedError):
                    pass
            self._ask()
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._attempt is None, _PROBE)

    def _noted(self, source: int, body: bytes) -> None:
        try:
            head = Head.parse(body)
            if head.kind != _wire.NOTE:
                raise ProtocolError(f"replay: a message of kind {head.kind} is not expected here")
            note = Note.parse(head, body)
        except Error as error:
            self._blame(source, error)
            return
        with self._changed:
            attempt = self._attempt
            if attempt is None or head.ring != self._id or head.attempt != attempt.number or attempt.request.over:
                return  # of a tick that was given up
            request = attempt.request
            try:
                self._check(attempt, note)
                if not attempt.take(source, note):
                    return
            except Error as error:
                failure: Error | None = error
            else:
                request.over, failure, self._attempt = True, None, None
        if failure is not None:
            self._fail(request, _remote(source, failure))
        else:
            self._sink.packed(request, attempt.written, attempt.held)

    def _check(self, attempt: _Attempt, note: Note) -> None:
        request = attempt.request
        if note.head.tick != request.tick:
            raise ProtocolError(f"it packed tick {note.head.tick}, and was asked for tick {request.tick}")
        if note.slot >= len(self.slots):
            raise ProtocolError(f"it names slot {note.slot}: there is no such slot (want 0 to {len(self.slots) - 1})")
        if note.slot != request.slot:
            hot = (request.slot - 1) % len(self.slots)
            what = "which is hot: the learner reads it" if note.slot == hot else f"and was asked for slot {request.slot}"
            raise ProtocolError(f"it names slot {note.slot}, {what}")

    def _overrun(self, error: Error) -> None:
        """Fails the batch whose notes may be lost, since a collector has sent too many."""
        with self._changed:
            attempt = self._attempt
        if attempt is not None:
            self._fail(attempt.request, error)

    def _blame(self, source: int, error: BaseException) -> None:
        with self._changed:
            attempt = self._attempt
        if attempt is not None and source in attempt.awaited():
            self._fail(attempt.request, _remote(source, error))

    def _mailed(self, source: int, body: bytes) -> None:
        try:
            head = Head.parse(body)
        except Error as error:
            self._blame(source, error)
            return
        if head.kind == _wire.REFUSAL:
            with self._changed:
                attempt = self._attempt
            if attempt is not None and (head.ring, head.attempt) == (self._id, attempt.number):
                self._blame(source, RemoteError(Head.reason(body)))
        elif head.kind == _wire.LEAVE:
            if head.ring in (0, self._id):
                self._remove(source, "left")
        elif head.kind == _wire.JOIN:
            with self._changed:
                if source in self.lost:
                    self.lost.remove(source)
                    self._members = [rank for rank in self._order if rank in self._members or rank == source]
            self._tell(source, _wire.OPEN)
        elif head.kind != _wire.PING:
            self._blame(source, ProtocolError(f"replay: a message of kind {head.kind} is not expected here"))

    def _tell(self, rank: int, kind: int) -> None:
        with contextlib.suppress(PeerLostError, WouldBlockError, ClosedError):  # the loss of one is noticed later
            self._peer.mail(rank, self._to_collector, Head(kind, self._id).pack())

    def close(self, timeout: float | None) -> None:
        with self._changed:
            first, self._closed = not self._closed, True
            self._changed.notify_all()
        if first:
            for rank in self._members:
                self._tell(rank, _wire.END)
            self._mailbox.close()
        self._thread.join(timeout)
        with self._asking:
            windows = self._windows + self._old
        for window in windows:
            _end(window, timeout)


def _end(window: Window, timeout: float | None) -> None:
    """Waits until nobody writes to a slot."""
    with contextlib.suppress(ClosedError, StaleError, PeerLostError):  # the node has ended, and with it the window
        window.close(timeout)


def deliver_all(mailbox: Any, function: Callable[[int, bytes], object], overrun: Callable[[Error], object]) -> None:
    """Calls a function with each message, on a thread that ends with the mailbox. overrun: when some are lost."""

    def run() -> None:
        while True:
            try:
                function(*mailbox.get())
            except WouldBlockError as error:
                overrun(error)
            except (ClosedError, StaleError, PeerLostError):
                return

    threading.Thread(target=run, name="stepvan replay notes", daemon=True).start()


def _remote(source: int, error: BaseException) -> RemoteError:
    failure = RemoteError(f"replay: peer {source}: {error}")
    failure.subject = f"peer {source}"
    return failure
