"""A loop of the library: threads that run its calls, and futures of what it has sent."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from stepvan import _core
from stepvan._errors import (
    ClosedError,
    Error,
    InvalidError,
    OutOfMemoryError,
    RemoteError,
    StaleError,
    TimeoutError,
    WouldBlockError,
    cut,
)
from stepvan._loop import completion
from stepvan._node import Node
from stepvan.particles import _wire
from stepvan.particles.waitable import Waitable

_SPARE = 2  # how many threads of a device may wait for calls
_FIRST_SLICE, _LAST_SLICE = 0.001, 0.064  # seconds: the waits between which an event loop in a function runs
_GRACE = 1.0  # seconds that a thread may take to end after its function, at least
_BY_REFERENCE = b"\xc1"  # MessagePack has no such byte
SHARE = 1  # the kind of a call that asks for a view


class Call(NamedTuple):
    """A call that a thread runs. device: the index of the device."""

    number: int
    pid: int
    device: int


class Job:
    """An operation on a particle of this process. What it takes and gives stays in the process, as it is."""

    __slots__ = ("args", "name", "value")

    def __init__(self, name: str, args: Sequence[Any]) -> None:
        self.name = name
        self.args = args
        self.value: Any = None


class Calls(Waitable):
    """The loop of a peer, with one thread or more for each device.

    perform: runs a call: (call, kind, name, arguments) to its result.
    pause, resume: are called before and after a function waits. resume gets what pause has returned.
    show: makes a view of a particle of what came.
    """

    def __init__(
        self, node: Node, devices: int, perform: Callable[[Call, int, str, Any], Any], pause: Callable[[], Any],
        resume: Callable[[Any], None], show: Callable[[int, _wire.Value], Any], *, driver: int = 0, allow_pickle: bool = False,
        key: bytes | None = None,
    ) -> None:  # fmt: skip
        self.node = node
        self._perform, self._pause, self._resume, self._show = perform, pause, resume, show
        self.allow_pickle = allow_pickle
        self.number = _core.particle_open(node.number, devices, int(allow_pickle), driver, None, key)
        self._current = threading.local()
        self._lock = threading.Lock()
        self._idle = [0] * devices
        self._threads: set[threading.Thread] = set()
        self._given: dict[bytes, Job] = {}
        self._jobs: dict[int, Job] = {}  # by future
        self._asked: dict[int, int] = {}  # the particles of which views were asked for, by future
        self._results: dict[int, Any] = {}
        self.closed = False

    def begin(self) -> None:
        """Starts the threads. Calls may have come before, and wait for them."""
        for device in range(len(self._idle)):
            self._add_thread(device)

    # What programs and functions of particles begin.

    def send(self, sender: int, pid: int, name: str, args: Any) -> int:
        """Sends a message with its arguments, and returns the number of the future."""
        data, tensors, flags = _wire.encode(f"{name} to particle {pid}", args, self.allow_pickle)
        return _core.particle_send(self.number, self._call_number(), sender, pid, name, data, tensors, flags)

    def give(self, sender: int, pid: int, job: Job) -> int:
        """Begins an operation on a particle of this process. It runs even if its future is forgotten."""
        token = _BY_REFERENCE + secrets.token_bytes(16)
        self._given[token] = job
        try:
            future = _core.particle_send(self.number, self._call_number(), sender, pid, job.name, token, [], 0)
        except BaseException:
            del self._given[token]
            raise
        self._jobs[future] = job
        return future

    def get(self, sender: int, pid: int) -> int:
        """Asks for a view."""
        future = _core.particle_get(self.number, self._call_number(), sender, pid)
        self._asked[future] = pid
        return future

    def current(self) -> Call | None:
        """The call that this thread runs."""
        return getattr(self._current, "call", None)

    def _call_number(self) -> int:
        call = self.current()
        return 0 if call is None else call.number

    # Futures.

    def wait_all(self, futures: Sequence[int], timeout: float | None = None) -> None:
        """Waits until all futures are done. A function that waits gives the turn of its device away meanwhile."""
        call = self.current()
        waiting = [f for f in futures if f not in self._results]
        if not waiting:
            return
        if call is None:
            _core.particle_wait(self.number, 0, waiting, timeout)
            return
        if all(_core.particle_is_done(self.number, f) for f in waiting):
            return
        with self._lock:
            lonely = self._idle[call.device] == 0
        if lonely:
            self._add_thread(call.device)
        paused = self._pause()
        try:
            _core.particle_wait(self.number, call.number, waiting, timeout)
        finally:
            self._resume(paused)

    def result(self, future: int) -> Any:
        """The value of a future that is done; it raises its error."""
        if future not in self._results:
            try:
                value = _core.particle_result(self.number, future)
            except RemoteError as error:
                text = _core.particle_failure(self.number, future)
                told = RemoteError(f"the function of a particle has failed:\n{text}")
                told.subject = error.subject
                raise told from None
            found = self._jobs.get(future)
            if found is not None:
                self._results[future] = found.value
            elif future in self._asked:
                self._results[future] = self._show(self._asked[future], value)
            else:
                self._results[future] = _wire.decode("the result", value, self.allow_pickle)
        return self._results[future]

    def _wait(self, fid: int) -> Any:
        self.wait_all([fid])
        return self.result(fid)

    def _wait_for(self, fid: int, timeout: float) -> Any:
        self.wait_all([fid], timeout)
        return self.result(fid)

    def is_done(self, fid: int) -> bool:
        """Whether a future is done."""
        return fid in self._results or _core.particle_is_done(self.number, fid)

    async def completion(self, fid: int) -> None:
        """Returns when a future is done.

        A function gives the turn of its device away, which it does only in a wait that blocks. Between slices of the wait
        the other tasks of its event loop run.
        """
        if self.current() is None:
            await completion(_core.particle_notify, self.number, fid)
            return
        limit = _FIRST_SLICE
        while True:
            await asyncio.sleep(0)
            try:
                self.wait_all([fid], limit)
            except TimeoutError:
                limit = min(2 * limit, _LAST_SLICE)
            else:
                return

    def forget(self, fid: int) -> None:
        """Ends a future."""
        self._results.pop(fid, None)
        self._asked.pop(fid, None)
        self._jobs.pop(fid, None)
        try:
            _core.particle_forget(self.number, fid)
        except Exception:  # it ended with its loop, or the interpreter ends
            pass

    # The threads.

    def _add_thread(self, device: int) -> None:
        thread = threading.Thread(target=self._work, args=(device,), name=f"stepvan particles {device}", daemon=True)
        with self._lock:
            self._threads.add(thread)
            self._idle[device] += 1  # from here on, so that two functions do not start a thread each
        thread.start()

    def _work(self, device: int) -> None:
        idle = True
        try:
            while True:
                try:
                    taken = _core.particle_next(self.number, device, None)
                except (OutOfMemoryError, WouldBlockError):  # there was no room for a call, which has ended
                    continue
                except Error:  # the loop or the node has ended
                    return
                except BaseException:  # the call could not be made into objects, and has ended
                    continue
                with self._lock:
                    self._idle[device] -= 1
                    idle = False
                self._run(device, taken)
                del taken
                with self._lock:
                    if self._idle[device] >= _SPARE:
                        return
                    self._idle[device] += 1
                    idle = True
        finally:
            with self._lock:
                self._idle[device] -= idle
                self._threads.discard(threading.current_thread())

    def _run(self, device: int, taken: tuple[Any, ...]) -> None:
        number, pid, _, kind, _, name, value = taken
        call = Call(number, pid, device)
        failure = None
        made: _wire.Value = (b"\xc0", [], 0)
        self._current.call = call
        try:
            if value[0].startswith(_BY_REFERENCE):
                job = self._given.pop(value[0], None)
                if job is None:
                    raise InvalidError(f"{name}: its arguments are not in this process: send them")
                job.value = self._perform(call, kind, name, job.args)
            else:
                args = () if kind == SHARE else _wire.decode(f"the arguments of {cut(name)}", value, self.allow_pickle)
                result = self._perform(call, kind, name, args)
                if result is not None:
                    made = _wire.encode(f"the result of {name}", result, self.allow_pickle)
        except BaseException as error:
            failure = "".join(traceback.format_exception(error)).replace("\0", "\\0").encode(errors="backslashreplace").decode()
        finally:
            self._current.call = None
        try:
            _core.particle_done(self.number, number, made[0], made[1], made[2], failure)
        except Exception:  # the caller has it as the error of its future, or the loop has ended
            pass

    def close(self, timeout: float | None) -> None:
        """Ends the loop, and waits for its threads. TimeoutError: the message names a function that has not ended."""
        if not self.closed:
            try:
                _core.particle_close(self.number, timeout)
            except (ClosedError, StaleError):  # with its node
                pass
            self.closed = True
            self._given.clear()
        with self._lock:
            threads = [t for t in self._threads if t is not threading.current_thread()]
        until = None if timeout is None else time.monotonic() + max(timeout, _GRACE)
        for thread in threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
        staying = sorted(t.name for t in threads if t.is_alive())
        if staying:
            raise TimeoutError(f"close: threads have not ended ({', '.join(staying)}): let their functions return, and close again")
