"""What a loop tells a driver that has queues."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from stepvan.particles.pfuture import PFuture


class Answers:
    """Puts the acknowledgement of each operation into a queue when it ends. One thread waits for all of them."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._loop = asyncio.new_event_loop()
        self._waiting: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._work, name="stepvan particles answers", daemon=True)
        self._thread.start()

    def refuse(self, pid_fid: Any, error: Exception) -> None:
        """Puts an error. It says what it answers."""
        error.pid_fid = pid_fid  # type: ignore[attr-defined]
        self._queue.put(error)

    def add(self, pid_fid: Any, future: PFuture, acknowledge: Callable[[Any], Any]) -> None:
        """Puts what acknowledge makes of the result, or the error, when a future is done."""
        self._loop.call_soon_threadsafe(self._begin, pid_fid, future, acknowledge)

    def _begin(self, pid_fid: Any, future: PFuture, acknowledge: Callable[[Any], Any]) -> None:
        task = self._loop.create_task(self._answer(pid_fid, future, acknowledge))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _answer(self, pid_fid: Any, future: PFuture, acknowledge: Callable[[Any], Any]) -> None:
        try:
            self._queue.put(acknowledge(await future))
        except Exception as error:
            self.refuse(pid_fid, error)

    def _work(self) -> None:
        self._loop.run_forever()
        try:
            while self._waiting:  # the futures of a loop that is closed are done
                self._loop.run_until_complete(asyncio.wait(self._waiting))
        finally:
            self._loop.close()

    def close(self, timeout: float) -> None:
        """Puts what is left, after the futures are done."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout)
