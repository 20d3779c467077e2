"""``await`` without a thread: each event loop has a queue of the library, and reads it when it is readable."""

import asyncio
import itertools
import weakref
from collections.abc import Callable

from stepvan import _core
from stepvan._errors import Error

_tokens = itertools.count(1)


class _Waker:
    """The queue of one loop, and the futures that wait for its tokens."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.queue, descriptor = _core.queue_open()
        self.waiting: dict[int, asyncio.Future[None]] = {}
        try:
            loop.add_reader(descriptor, self._take)
        except BaseException:  # the loop supports no readers, or no descriptor is left
            _close(self.queue)
            raise
        weakref.finalize(loop, _close, self.queue)

    def _take(self) -> None:
        for token in _core.queue_take(self.queue):
            future = self.waiting.pop(token, None)
            if future is not None and not future.done():
                future.set_result(None)


def _close(queue: int) -> None:
    try:
        _core.queue_close(queue)
    except Error:  # in a forked child
        pass


_wakers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Waker] = weakref.WeakKeyDictionary()


async def completion(notify: Callable[[int, int, int, int], None], node: int, number: int) -> None:
    """Returns when a handle or response has ended, in success or failure."""
    loop = asyncio.get_running_loop()
    waker = _wakers.get(loop)
    if waker is None:
        waker = _wakers[loop] = _Waker(loop)
    token = next(_tokens)
    future = waker.waiting[token] = loop.create_future()
    try:
        notify(node, number, waker.queue, token)
        await future
    finally:
        waker.waiting.pop(token, None)
