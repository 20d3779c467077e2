"""The session of a client with its agent: frames over a Unix socket, of which package bus documents the bytes."""

from __future__ import annotations

import array
import contextlib
import fcntl
import math
import mmap
import os
import re
import select
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
from stepvan.tensor_bus.commands import MAX_COMMAND, Message, QueryStatus, encode

_HELLO, _COMMAND, _COMPLETION, _ABANDON, _ALLOCATE, _MEMORY, _FREE, _LEND = range(1, 9)
_VERSION = 1
_MAX_FRAME = MAX_COMMAND + (4 << 10)
_MAX_FILES = 16  # that come with one part of the stream
_PAUSE = 0.02  # seconds between two attempts to reach an agent that does not listen yet
_SLICE = 0.2  # seconds that one call of the system may wait for an agent that does not read
_SEALED = 2  # F_SEAL_SHRINK
_PART = 1 << 14  # bytes that one call of the system reads
_LOOKS = 8  # how often the session looks in the time that an agent may be silent
_SIGN = "a sign of life"
_ROOM = socket.CMSG_SPACE(_MAX_FILES * 4)
_MOST_MILLISECONDS = 1 << 30
_AT_ONCE = int(socket.MSG_CMSG_CLOEXEC) | int(socket.MSG_DONTWAIT)
_NO_SIGNAL = int(socket.MSG_NOSIGNAL)
GRACE = 3.0  # seconds that an agent may take to say that the time of a command is over

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode
_head = struct.Struct("<I").pack
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

    __slots__ = ("_done", "_lock", "_over", "_session", "failure", "name", "value", "what")

    def __init__(self, session: Session, name: str, what: str) -> None:
        self.name, self.what = name, what
        self.value: Any = None
        self.failure: Failure | None = None
        self._session = session
        self._over = False
        self._lock = threading.RLock()  # the collector may end it meanwhile
        self._done: list[Callable[[], object]] = []

    def end(self, value: Any, failure: Failure | None) -> None:
        """Ends it. The first end stays."""
        with self._lock:
            if self._over:
                return
            self.value, self.failure = value, failure
            self._over = True
            done, self._done = self._done, []
        for f in done:
            self._session.want(-1)
            with contextlib.suppress(RuntimeError):  # of an event loop that was closed
                f()

    def then(self, f: Callable[[], object]) -> None:
        """Calls f at the end, on the thread that reads then, or at once."""
        with self._lock:
            if not self._over:
                self._done.append(f)
                self._session.want(1)
                return
        f()

    def over(self) -> bool:
        """Whether its end has been read."""
        return self._over

    def done(self) -> bool:
        """Whether it has ended. It reads what has come."""
        if not self._over:
            self._session.look()
        return self._over

    def wait(self, until: float) -> Any:
        """Its value. TimeoutError: the time is over, and it continues. Without an end, until is infinite."""
        if not self._session.wait(self.over, until):
            raise TimeoutError(f"{self.what}: it has not completed in time: wait again")
        if self.failure is not None:
            raise self.failure.error()
        return self.value


class Session:
    """A connection with an agent. Any thread may call its methods.

    A thread that waits reads the socket itself, so that no other thread has to wake it. A thread of the session reads
    while nobody waits. It also finds out that an agent is silent.
    """

    def __init__(self, path: str, rank: int, limit: float, silence: float) -> None:
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
        self._reading = threading.Lock()  # taken before _lock; guards what the next four lines name
        self._data = bytearray()
        self._files: list[int] = []
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._lock = threading.RLock()  # guards the rest; it is taken again when the collector ends a client
        self._open: dict[str, Pending] = {}
        self._calls: dict[int, Pending] = {}
        self._last = 0
        self._failed: Failure | None = None
        self._sleepers: list[_Sleeper] = []
        self._turns = 0  # waits that have read
        self._heard = 0  # frames that have come
        self._wanted = 0  # callbacks
        self._asleep = False  # the thread of the session waits without a limit
        self._welcome = Pending(self, "hello", f"client: agent at {path}")
        self._over = Pending(self, "end", f"client: agent at {path}")
        if uid != os.getuid():
            self._socket.close()
            raise InvalidError(f"client: agent at {path}: it is of another user: start one of your own")
        self._wake, self._woken = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._wake.setblocking(False)
        self._silence = silence
        self._pid = pid
        threading.Thread(target=self._attend, name="stepvan tensor bus", daemon=True).start()
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
            if len(self._open) >= self.queue:
                self._await_room(what, room)
            if not named:
                self._last += 1
                command.semaphore_name = f"{what} {self._last}"
            name = command.semaphore_name or ""
            pending = Pending(self, name, what)
            data = encode(command)
            with self._lock:
                if self._failed is not None:
                    raise self._failed.error()
                if name in self._open:
                    raise InvalidError(f"{what}: semaphore_name: a command with this name has not completed (got {name!r}): use a name once")
                self._open[name] = pending
                if self._asleep:
                    self._call_thread()
            if self.freed:
                self._flush(until)
            self._send((_COMMAND, name, role, int(patience * 1e9), data), until)
        return pending

    def finish(self, pending: Pending, until: float) -> Any:
        """Waits for a command, and gives it up when the time is over."""
        try:
            return pending.wait(until + GRACE)
        except BaseException as error:  # also Ctrl-C
            if pending.over():
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
        if not self.wait(self._over.over, time.monotonic() + timeout):
            raise TimeoutError(f"client: agent at {self.path}: it still uses memory of this client: close the client again")

    def leave(self) -> None:
        """Ends the session without a wait. The thread of the session keeps the memory as long as the agent uses it."""
        if os.getpid() != self._process:
            return
        self._end(Failure(ClosedError, "the client was closed: make another one"))
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._call_thread()

    def wait(self, ready: Callable[[], bool], until: float) -> bool:
        """Reads until something is ready, or the time is over. One thread reads at a time, and the others sleep."""
        while not ready():
            left = until - time.monotonic()
            if left <= 0:
                self.look()
                return ready()
            if self._reading.acquire(False):
                try:
                    self._read_until(ready, until)
                finally:
                    self._reading.release()
                    self._rouse(True)
            else:
                self._sleep(ready, left)
        return True

    def look(self) -> None:
        """Reads what has come, without a wait."""
        if self._reading.acquire(False):
            try:
                self._receive()
            finally:
                self._reading.release()
                self._rouse(True)

    def want(self, more: int) -> None:
        """Says that a callback waits for an answer, or does not any more."""
        with self._lock:
            self._wanted += more
        if more > 0:
            self._call_thread()

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
        if not self.wait(self._has_room, -math.inf if room is None else room):
            raise WouldBlockError(f"{what}: {len(self._open)} commands of this client have not completed: wait for one")

    def _has_room(self) -> bool:
        return len(self._open) < self.queue or self._failed is not None

    def _flush(self, until: float) -> None:
        while self.freed:
            self._send((_FREE, self.freed.popleft()), until)

    def _call(self, what: str, kind: int, parts: tuple[int, ...], until: float) -> Pending:
        self._check_process()
        with self._hold(what, until):
            pending = Pending(self, what, f"client: {what}")
            with self._lock:
                if self._failed is not None:
                    raise self._failed.error()
                self._last += 1
                number = self._last
                self._calls[number] = pending
                if self._asleep:
                    self._call_thread()
            self._flush(until)
            self._send((kind, number, *parts), until)
        return pending

    def _send(self, parts: tuple[Any, ...], until: float) -> None:
        """Sends a frame. The caller holds _sending. A frame that is sent in part ends the session."""
        body = _encode(parts)
        left = memoryview(_head(len(body)) + body)
        size = len(left)
        while left:
            try:
                left = left[self._socket.send(left, _NO_SIGNAL) :]
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
        for p in pending:
            p.end(None, why)
        self._rouse(False)

    def _sleep(self, ready: Callable[[], bool], seconds: float) -> None:
        """Waits for the thread that reads: until something is ready, or until this thread may read."""
        sleeper = _Sleeper(ready, threading.Event())
        with self._lock:
            self._sleepers.append(sleeper)
        woken = False
        try:
            # The other thread may have looked for sleepers before.
            if self._reading.locked() and not ready():
                woken = sleeper.event.wait(min(seconds, threading.TIMEOUT_MAX))
        finally:
            with self._lock:
                self._sleepers.remove(sleeper)
            if not woken and sleeper.event.is_set():
                self._rouse(True)  # it does not read in its turn

    def _rouse(self, leaves: bool) -> None:
        """Wakes the threads whose answers have come, and one more if the thread that reads leaves."""
        if not self._sleepers:
            return
        with self._lock:
            for sleeper in self._sleepers:
                if sleeper.ready():
                    sleeper.event.set()
            if leaves:
                for sleeper in self._sleepers:
                    if not sleeper.event.is_set():
                        sleeper.event.set()
                        break

    def _read_until(self, ready: Callable[[], bool], until: float) -> None:
        """Reads on behalf of a thread that waits. It holds _reading."""
        self._turns += 1
        while not ready() and not self._over.over():
            left = until - time.monotonic()
            if left <= 0:
                return
            if self._poll.poll(None if left == math.inf else min(math.ceil(left * 1e3), _MOST_MILLISECONDS)):
                self._receive()
                self._rouse(False)

    def _receive(self) -> None:
        """Takes what has come. The caller holds _reading. A read that was interrupted halfway ends the session."""
        if self._over.over():
            return
        whole = False
        why: object = "its connection was closed"
        try:
            whole = self._follow()
        except (OSError, Error) as error:
            why = error
        except BaseException:
            why = "its answer was interrupted while it was read"
            raise
        finally:
            if not whole:
                self._finish(why)

    def _follow(self) -> bool:
        """Reads once. It returns False at the end of the stream."""
        try:
            part, extra, _, _ = self._socket.recvmsg(_PART, _ROOM, _AT_ONCE)
        except BlockingIOError:
            return True
        for level, kind, body in extra:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._files.extend(array.array("i", body[: len(body) // 4 * 4]))
        data = self._data
        data += part
        while len(data) >= 4:
            size = int.from_bytes(data[:4], "little")
            if not 0 < size <= _MAX_FRAME:
                raise ProtocolError(f"frame: wrong length (got {size}, want 1 to {_MAX_FRAME} bytes)")
            if len(data) < 4 + size:
                break
            frame = bytes(data[4 : 4 + size])
            del data[: 4 + size]
            self._heard += 1
            self._take(frame, self._files)
        return bool(part)

    def _finish(self, why: object) -> None:
        """Nothing more comes. The thread of the session closes the socket."""
        self._end(self._lost(why))
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for file in self._files:
            os.close(file)
        self._files.clear()
        self.kept.clear()
        self._over.end(None, None)
        self._rouse(False)
        self._call_thread()

    def _call_thread(self) -> None:
        """Has the thread of the session look again."""
        with self._lock:
            self._asleep = False
            with contextlib.suppress(OSError):  # it was told already, or has ended
                self._wake.send(b".")

    def _attend(self) -> None:
        """Reads while nobody waits, and looks whether the agent is silent, until one side ends."""
        call, both = select.poll(), select.poll()
        both.register(self._socket, select.POLLIN)
        for p in call, both:
            p.register(self._woken, select.POLLIN)
        pause = math.ceil(self._silence / _LOOKS * 1e3)
        silence = _Silence(self, pause / 1e3)
        turns = 0
        while not self._over.over():
            driven, turns = turns != self._turns or self._reading.locked(), self._turns
            if driven and not self._wanted:
                events = call.poll(pause)
            else:
                events = both.poll(None if self._may_sleep() else pause)
            for file, _ in events:
                if file == self._woken.fileno():
                    self._woken.recv(1)
                elif self._reading.acquire(timeout=pause / 1e3 if self._wanted else 0):
                    try:
                        self._receive()
                    finally:
                        self._reading.release()
                        self._rouse(True)
            silence.look()
        with self._reading, self._lock:
            self._socket.close()
            self._wake.close()
            self._woken.close()

    def _may_sleep(self) -> bool:
        """Whether the thread of the session waits without a limit, since nothing waits for the agent."""
        with self._lock:
            self._asleep = not self._open and not self._calls and not self._over.over()
            return self._asleep

    def give_up(self) -> None:
        """Ends the session with an agent that is silent."""
        who = f"agent at {self.path}"
        text = (
            f"tensor bus: {who}: it has been silent for {self._silence:g} s, as if it were stopped: "
            f"have process {self._pid} continue (signal CONT) or start another agent, and make another client"
        )
        self._end(Failure(PeerLostError, text, who))
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def ask_for_life(self) -> None:
        """Sends a command that an agent answers at once. Nobody waits for its completion."""
        body = _encode((_COMMAND, _SIGN, "", 0, encode(QueryStatus(semaphore_name=_SIGN, batch_id=_SIGN))))
        if not self._sending.acquire(False):
            return  # the agent does not read
        try:
            with contextlib.suppress(OSError):
                self._socket.send(_head(len(body)) + body, _NO_SIGNAL | int(socket.MSG_DONTWAIT))  # all of it, or nothing
        finally:
            self._sending.release()

    def waits(self) -> bool:
        """Whether something waits for an agent that may be silent."""
        return not self.here and bool(self._open or self._calls)

    def heard(self) -> int:
        """How many frames have come."""
        return self._heard

    def _take(self, frame: bytes, files: list[int]) -> None:
        try:
            parts = _decode(frame)
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
        if pending is not None:
            pending.end(answer, failure)

    def _answer(self, call: int, place: tuple[int, int], failure: Failure | None, files: list[int]) -> None:
        with self._lock:
            pending = self._calls.pop(call, None)
        if pending is None:
            raise ProtocolError(f"frame: nobody has made call {call}")
        file = files.pop(0) if files and failure is None and pending.name == "allocate" else -1
        pending.end((*place, file), failure)


class _Sleeper(NamedTuple):
    """A thread that waits while another one reads."""

    ready: Callable[[], bool]
    event: threading.Event


class _Silence:
    """Gives up an agent that is silent while something waits for it.

    Commands may wait for others as long as they like. So it asks for a sign of life. It counts looks and no time, so that
    a client that was stopped itself does not blame its agent.
    """

    def __init__(self, session: Session, pause: float) -> None:
        self._session, self._pause = session, pause
        self._next = 0.0
        self._heard, self._quiet = -1, 0

    def look(self) -> None:
        """Looks, if it is time to."""
        now = time.monotonic()
        if now < self._next:
            return
        stopped = now > self._next + _LOOKS / 2 * self._pause
        self._next = now + self._pause
        heard = self._session.heard()
        if stopped or heard != self._heard or not self._session.waits():
            self._heard, self._quiet = heard, 0
            return
        self._quiet += 1
        if self._quiet == 1:
            self._session.ask_for_life()
        elif self._quiet == _LOOKS:
            self._session.give_up()


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
