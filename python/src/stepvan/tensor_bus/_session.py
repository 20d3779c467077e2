"""The session of a client with its agent: frames over a Unix socket, of which package bus documents the bytes."""

from __future__ import annotations

import array
import contextlib
import fcntl
import math
import mmap
import os
import re
import socket
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from stepvan._errors import (
    BusyError,
    ClosedError,
    Error,
    ExpiredError,
    ForkedError,
    InvalidError,
    OutOfMemoryError,
    PeerLostError,
    ProtocolError,
    RemoteError,
    StaleError,
    TimeoutError,
    WouldBlockError,
)
from stepvan.tensor_bus.commands import MAX_COMMAND, Message, encode

_HELLO, _COMMAND, _COMPLETION, _ABANDON, _ALLOCATE, _MEMORY, _FREE, _LEND = range(1, 9)
_VERSION = 1
_MAX_FRAME = MAX_COMMAND + (4 << 10)
_MAX_FILES = 16  # that come with one part of the stream
_PAUSE = 0.02  # seconds between two attempts to reach an agent that does not listen yet
_SLICE = 0.2  # seconds that one call of the system may wait for an agent that does not read
_SEALED = 2  # F_SEAL_SHRINK
GRACE = 3.0  # seconds that an agent may take to say that the time of a command is over

_encode = msgspec.msgpack.encode
_kinds: dict[str, type[Error]] = {
    "invalid": InvalidError,
    "lost": PeerLostError,
    "full": WouldBlockError,
    "busy": BusyError,
    "stale": StaleError,
    "memory": OutOfMemoryError,
    "closed": ClosedError,
    "late": ExpiredError,
    "cancelled": ClosedError,
    "remote": RemoteError,
}


class Failure(NamedTuple):
    """An error that is raised where somebody waits."""

    kind: type[Error]
    text: str
    subject: str = ""

    def error(self) -> Error:
        """The error, which is another object each time."""
        error = self.kind(self.text)
        error.subject = self.subject
        return error


def _failure(kind: str, text: str) -> Failure | None:
    if kind == "":
        return None
    who = re.search(r"peer \d+", text) if kind == "lost" else None
    return Failure(_kinds.get(kind, RemoteError), text.replace("stepvan: invalid argument: ", ""), who[0] if who else "")


class Answer:
    """What the agent has said of the state of a batch."""

    __slots__ = ("failure", "round", "signal", "state")

    def __init__(self, state: str = "", number: int = 0, failure: Failure | None = None, signal: bool = False) -> None:
        self.state, self.round, self.failure, self.signal = state, number, failure, signal


class Pending:
    """Something that the agent will answer."""

    __slots__ = ("_done", "_event", "_lock", "failure", "name", "value", "what")

    def __init__(self, name: str, what: str) -> None:
        self.name, self.what = name, what
        self.value: Any = None
        self.failure: Failure | None = None
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._done: list[Callable[[], object]] = []

    def end(self, value: Any, failure: Failure | None) -> None:
        """Ends it, once."""
        self.value, self.failure = value, failure
        with self._lock:
            self._event.set()
            done, self._done = self._done, []
        for f in done:
            with contextlib.suppress(RuntimeError):  # of an event loop that was closed
                f()

    def then(self, f: Callable[[], object]) -> None:
        """Calls f at the end, on the thread of the session, or at once."""
        with self._lock:
            if not self._event.is_set():
                self._done.append(f)
                return
        f()

    def done(self) -> bool:
        """Whether it has ended."""
        return self._event.is_set()

    def wait(self, until: float) -> Any:
        """Its value. TimeoutError: the time is over, and it continues. Without an end, until is infinite."""
        if not self._event.wait(None if until == math.inf else max(until - time.monotonic(), 0)):
            raise TimeoutError(f"{self.what}: it has not completed in time: wait again")
        if self.failure is not None:
            raise self.failure.error()
        return self.value


class Session:
    """A connection with an agent. A thread reads from it. Any thread may call its methods."""

    def __init__(self, path: str, rank: int, limit: float) -> None:
        self.path = path
        self._process = os.getpid()
        until = time.monotonic() + limit
        self._socket = _reach(path, until)
        pid, uid, _ = struct.unpack("iII", self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        self.here = pid == self._process  # the agent is in this process
        self.queue = 0
        self.kept: dict[Any, Any] = {}  # memory that the agent uses
        self.freed: deque[int] = deque()  # numbers of memory that nobody uses any more
        self._sending = threading.Lock()  # taken before _lock
        self._lock = threading.Condition()  # guards the rest
        self._open: dict[str, Pending] = {}
        self._calls: dict[int, Pending] = {}
        self._last = 0
        self._failed: Failure | None = None
        self._welcome = Pending("hello", f"client: agent at {path}")
        self._over = threading.Event()
        if uid != os.getuid():
            self._socket.close()
            raise InvalidError(f"client: agent at {path}: it is of another user: start one of your own")
        self._reader = threading.Thread(target=self._read, name="stepvan tensor bus", daemon=True)
        self._reader.start()
        try:
            with self._sending:
                self._send((_HELLO, _VERSION, rank + 1), until)
            self._welcome.wait(until)
        except BaseException as error:
            self.leave()
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"client: agent at {path}: it does not answer: is its process stopped?") from None
            raise

    def begin(self, command: Message, role: str, patience: float, until: float, room: float | None) -> Pending:
        """Gives a command to the agent, in the order of the calls.

        patience: seconds that the command may wait for others. until: the end of the time to send it. room: the end of the
        time to wait for room among the commands; None for no wait.
        """
        what = type(command).__name__
        self._check_process()
        command.timestamp = time.time()
        named = command.semaphore_name is not None
        with self._hold(what, until):
            self._await_room(what, room)
            if not named:
                self._last += 1
                command.semaphore_name = f"{what} {self._last}"
            name = command.semaphore_name or ""
            pending = Pending(name, what)
            data = encode(command)
            with self._lock:
                if self._failed is not None:
                    raise self._failed.error()
                if name in self._open:
                    raise InvalidError(f"{what}: semaphore_name: a command with this name has not completed (got {name!r}): use a name once")
                self._open[name] = pending
            self._flush(until)
            self._send((_COMMAND, name, role, int(patience * 1e9), data), until)
        return pending

    def finish(self, pending: Pending, until: float) -> Any:
        """Waits for a command, and gives it up when the time is over."""
        try:
            return pending.wait(until + GRACE)
        except BaseException as error:  # also Ctrl-C
            if pending.done():
                raise
            self.abandon(pending, isinstance(error, TimeoutError))
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"{pending.what}: agent at {self.path}: it does not answer: is its process stopped?") from None
            raise

    def abandon(self, pending: Pending, late: bool) -> None:
        """Ends the waits of a command at the agent, if that reads what it is sent."""
        with contextlib.suppress(Error), self._hold(pending.what, time.monotonic() + _SLICE):
            self._send((_ABANDON, pending.name, int(late)), time.monotonic() + _SLICE)

    def allocate(self, size: int, until: float) -> Memory:
        """Memory of the agent that this process sees."""
        pending = self._call("allocate", _ALLOCATE, (size,), until)
        number, offset, file = pending.wait(until)
        return Memory(self, number, offset, size, file)

    def lend(self, ranges: list[tuple[int, int]], until: float) -> list[int]:
        """Numbers for memory of this process, of (address, bytes). The agent is in this process."""
        calls = [self._call("lend", _LEND, one, until) for one in ranges]
        return [pending.wait(until)[0] for pending in calls]

    def take_back(self, numbers: list[int]) -> None:
        """Ends numbers of memory. What uses the memory continues."""
        self.freed.extend(numbers)

    def close(self, timeout: float) -> None:
        """Ends the session, and waits until the agent uses no memory of it. It may be called again."""
        if os.getpid() != self._process:
            return
        self.leave()
        if not self._over.wait(timeout):
            raise TimeoutError(f"client: agent at {self.path}: it still uses memory of this client: close the client again")

    def leave(self) -> None:
        """Ends the session without a wait. The thread that reads keeps the memory as long as the agent uses it."""
        self._end(Failure(ClosedError, "the client was closed: make another one"))
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise ForkedError("client: this process was forked: make a client of its own")

    @contextlib.contextmanager
    def _hold(self, what: str, until: float) -> Any:
        if not self._sending.acquire(timeout=max(until - time.monotonic(), 0)):
            raise TimeoutError(f"{what}: agent at {self.path}: it does not read what it is sent: is its process stopped?")
        try:
            yield
        finally:
            self._sending.release()

    def _await_room(self, what: str, room: float | None) -> None:
        with self._lock:
            while len(self._open) >= self.queue and self._failed is None:
                left = 0.0 if room is None else room - time.monotonic()
                if left <= 0:
                    raise WouldBlockError(f"{what}: {len(self._open)} commands of this client have not completed: wait for one")
                self._lock.wait(left)

    def _flush(self, until: float) -> None:
        while self.freed:
            self._send((_FREE, self.freed.popleft()), until)

    def _call(self, what: str, kind: int, parts: tuple[int, ...], until: float) -> Pending:
        self._check_process()
        with self._hold(what, until):
            pending = Pending(what, f"client: {what}")
            with self._lock:
                if self._failed is not None:
                    raise self._failed.error()
                self._last += 1
                number = self._last
                self._calls[number] = pending
            self._flush(until)
            self._send((kind, number, *parts), until)
        return pending

    def _send(self, parts: tuple[Any, ...], until: float) -> None:
        """Sends a frame. The caller holds _sending. A frame that is sent in part ends the session."""
        body = _encode(parts)
        left = memoryview(struct.pack("<I", len(body)) + body)
        size = len(left)
        while left:
            try:
                left = left[self._socket.send(left, socket.MSG_NOSIGNAL) :]
            except BlockingIOError:
                if time.monotonic() < until:
                    continue
                late = Failure(TimeoutError, f"client: agent at {self.path}: it does not read what it is sent: is its process stopped?")
                if len(left) < size:
                    self._end(late)
                raise late.error() from None
            except OSError as error:
                self._end(self._lost(error))
                with self._lock:
                    failed = self._failed or self._lost(error)
                raise failed.error() from None

    def _lost(self, why: object) -> Failure:
        return Failure(PeerLostError, f"tensor bus: agent at {self.path}: it has ended ({why}): start it again", f"agent at {self.path}")

    def _end(self, why: Failure) -> None:
        """Fails everything. The first reason stays."""
        with self._lock:
            if self._failed is None:
                self._failed = why
            why = self._failed
            pending = [self._welcome, *self._open.values(), *self._calls.values()]
            self._open, self._calls = {}, {}
            self._lock.notify_all()
        for p in pending:
            if not p.done():
                p.end(None, why)

    def _read(self) -> None:
        """Follows what the agent sends, until one side ends."""
        files: list[int] = []
        why: object = "its connection was closed"
        try:
            self._follow(files)
        except (OSError, Error) as error:
            why = error
        self._end(self._lost(why))
        for file in files:
            os.close(file)
        self._socket.close()
        self.kept.clear()
        self._over.set()

    def _follow(self, files: list[int]) -> None:
        data = bytearray()
        room = socket.CMSG_SPACE(_MAX_FILES * 4)
        while True:
            try:
                part, extra, _, _ = self._socket.recvmsg(1 << 16, room, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                continue
            for level, kind, body in extra:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    files.extend(array.array("i", body[: len(body) // 4 * 4]))
            if not part:
                return
            data += part
            while len(data) >= 4:
                size = int.from_bytes(data[:4], "little")
                if not 0 < size <= _MAX_FRAME:
                    raise ProtocolError(f"frame: wrong length (got {size}, want 1 to {_MAX_FRAME} bytes)")
                if len(data) < 4 + size:
                    break
                frame = bytes(data[4 : 4 + size])
                del data[: 4 + size]
                self._take(frame, files)

    def _take(self, frame: bytes, files: list[int]) -> None:
        try:
            parts = msgspec.msgpack.decode(frame, type=list[Any])
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ProtocolError(f"frame: {error}") from None
        match parts:
            case [3, str(name), str(kind), str(text), int(), str(state), int(number), str(why), str(reason), int(), int(signal)]:
                self._complete(name, Answer(state, number, _failure(why, reason), signal == 1), _failure(kind, text))
            case [6, int(call), str(kind), str(text), int(), int(number), int(offset)]:
                self._answer(call, (number, offset), _failure(kind, text), files)
            case [1, int(version), int(queue)] if version == _VERSION and queue > 0:
                self.queue = queue
                self._welcome.end(None, None)
            case _:
                raise ProtocolError(f"frame: it is none of an agent with version {_VERSION} (got {str(parts)[:80]})")

    def _complete(self, name: str, answer: Answer, failure: Failure | None) -> None:
        with self._lock:
            pending = self._open.pop(name, None)
            self._lock.notify_all()
        if pending is not None:
            pending.end(answer, failure)

    def _answer(self, call: int, place: tuple[int, int], failure: Failure | None, files: list[int]) -> None:
        with self._lock:
            pending = self._calls.pop(call, None)
        if pending is None:
            raise ProtocolError(f"frame: nobody has made call {call}")
        file = files.pop(0) if files and failure is None and pending.name == "allocate" else -1
        pending.end((*place, file), failure)


def _reach(path: str, until: float) -> socket.socket:
    """Connects to the socket, which an agent that starts may not have yet."""
    while True:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, int(_SLICE * 1e6)))
        try:
            _connect(s, path)
            return s
        except OSError as error:
            s.close()
            if time.monotonic() + _PAUSE >= until:
                raise TimeoutError(
                    f"client: agent at {path}: there is none ({error.strerror or error}): start one with python -m stepvan agent"
                ) from None
        except BaseException:
            s.close()
            raise
        time.sleep(_PAUSE)


_LONGEST_PATH = 107  # bytes of the address of a Unix socket


def _connect(s: socket.socket, path: str) -> None:
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        s.connect(path)
        return
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_CLOEXEC)
    try:
        s.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    finally:
        os.close(folder)


class Memory:
    """Memory of an agent in another process, as this process sees it: ``view`` has the bytes.

    The agent gets it back when nothing here shows it any more.
    """

    def __init__(self, session: Session, number: int, offset: int, size: int, file: int) -> None:
        if file < 0:
            raise ProtocolError(f"client: agent at {session.path}: it sends no file with its memory")
        try:
            whole = os.fstat(file).st_size
            if not fcntl.fcntl(file, fcntl.F_GET_SEALS) & _SEALED or not 0 <= offset <= whole - size:
                raise ProtocolError(f"client: agent at {session.path}: memory of {size} bytes at {offset} is not kept by its file of {whole}")
            mapped = mmap.mmap(file, whole)
        finally:
            os.close(file)
        self.number = number
        self.size = size
        self.view = memoryview(mapped)[offset : offset + size]
        self.mapped: weakref.ref[mmap.mmap] = weakref.ref(mapped)
        weakref.finalize(mapped, session.freed.append, number)
