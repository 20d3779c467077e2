"""The worker's side of an exchange."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stepvan import _core
from stepvan._errors import InvalidError, calling, cut
from stepvan._local import Local
from stepvan._loop import completion
from stepvan._registration import Registration

if TYPE_CHECKING:
    from stepvan._node import Node

Routing = Literal["broadcast", "key", "named"]
_routings = {None: 0, "broadcast": 1, "key": 2, "named": 3}


class Trace(NamedTuple):
    """When an exchange with one server did what, in ns since 1970 (``get_nanosecond``).

    request_start: the program has asked. request_post_send: the request has been sent. request_post_recv: the server has
    all of it. request_process: the server's program has it. response_start: that has answered. response_post_send: the
    answer is being sent. response_post_recv: all of it is here. response_process: the handle has finished.
    The first two and the last two are by the worker's clock, the others by the server's: only differences of one clock
    mean anything. 0: did not happen.
    """

    request_start: int
    request_post_send: int
    request_post_recv: int
    request_process: int
    response_start: int
    response_post_send: int
    response_post_recv: int
    response_process: int


class Handle(Local):
    """An exchange that was begun by ``push_pull``. ``int(handle)`` is its number; ``await handle`` waits in an event loop.

    It stays valid until STEPVAN_HANDLES later ones have finished (65,536 by default), then it is StaleError.
    """

    __slots__ = ("_number", "_worker")

    def __init__(self, worker: Worker, number: int) -> None:
        self._worker = worker
        self._number = number

    def wait(self, timeout: float | None = None) -> None:
        """Waits until every server has answered, ``timeout`` seconds at most: all pulls are written then, and an exchange
        without pulls has been responded to.

        Again and again, from any thread. Raises PeerLostError or RemoteError with the server as ``subject``,
        or who else has died without whom the cluster cannot go on; TimeoutError: it goes on, and the tensors are still in use.
        """
        _core.wait(self._worker._at, self._number, timeout)

    def done(self) -> bool:
        """Whether ``wait`` would return at once. It does not drive progress: something must wait meanwhile."""
        return _core.done(self._worker._at, self._number)

    def __await__(self) -> Generator[Any, None, None]:
        if not self.done():
            yield from completion(_core.notify, self._worker._at, self._number).__await__()
        self.wait(0)

    def trace(self) -> list[int]:
        """The 8 times of a finished exchange, see Trace; with several servers those of the one that finished last."""
        return _core.trace(self._worker._at, self._number)

    def traces(self) -> list[Trace]:
        """The times of each server: by rank for a broadcast, else in the order in which the tensors name them."""
        return [Trace(*stamps) for stamps in _core.traces(self._worker._at, self._number)]

    def lengths(self) -> list[int]:
        """How many bytes of each pull were written, of a finished exchange that has a variable one."""
        return _core.lengths(self._worker._at, self._number)

    def operations(self) -> int:
        """How many operations it has: its pushes, and the pulls of one server. They share its number."""
        return _core.operations(self._worker._at, self._number)

    def __int__(self) -> int:
        return self._number

    __index__ = __int__

    def __repr__(self) -> str:
        return f"Handle({self._number:#x})"


class Worker(Local):
    """What a worker does: ``node.worker``. From any thread."""

    __slots__ = ("_at", "_node", "__weakref__")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._at = node.number

    def push_pull(
        self,
        push: Sequence[Any],
        push_keys: Sequence[int],
        pull: Sequence[Any],
        pull_keys: Sequence[int],
        *,
        routing: Routing | None = None,
        push_to: int | Sequence[int] | None = None,
        pull_to: int | Sequence[int] | Literal["push"] | None = None,
        variable: bool | Sequence[bool] | None = None,
        label: str | None = None,
    ) -> Handle:
        """Sends tensors to servers and has them write the pull tensors. It never blocks.

        push, pull: lists of tensors: contiguous, in the memory of the CPU, up to 8 dimensions; of torch or numpy, or what
            has ``__dlpack__`` or the buffer protocol. They are kept alive, and must not be changed, until the handle has
            finished; after TimeoutError they are still in use. Until then the storage of a torch tensor must not be resized
            or moved (``resize_``, ``set_``, ``share_memory_``, a queue of torch.multiprocessing): that frees its memory.
            Pulls share no memory with each other, nor with a push to another server than the one that writes them; what is
            pushed to one server may be pulled from it in place.
        push_keys, pull_keys: one number of 64 bits per tensor. A push of a key whose last was not answered yet
            is BusyError.
        routing: "broadcast": every push goes to every paired server, and pulls are server-major: with S servers and P
            pulls each, pull s*P+i is written by server s. "key": each tensor goes to, or comes from, the owner of its key.
            "named": the servers that push_to and pull_to name. By default that of STEPVAN_ROUTING.
        push_to, pull_to: ranks of servers, one per tensor, or one for all. pull_to="push": pull i is answered by the
            server that push i goes to.
        variable: which pulls may be answered with fewer bytes (``Handle.lengths``); True for all.
        label: groups exchanges in traces. Each text is kept for ever, 4096 at most.

        Errors: InvalidError, BusyError, WouldBlockError (too much is outstanding: wait for a handle),
        PeerLostError, ClosedError. Nothing was sent then.
        """
        if routing is None and push_to is None and pull_to is None and variable is None and label is None:
            return Handle(self, _core.push_pull(self._at, push, push_keys, pull, pull_keys))
        if not isinstance(routing, str | None) or routing not in _routings:
            raise InvalidError(f"routing is {cut(routing)}: it is 'broadcast', 'key', 'named', or None")
        to: Any = pull_to
        if isinstance(pull_to, str | bool):
            if pull_to != "push":
                raise InvalidError(f"pull_to is {cut(pull_to)}: it is the rank of a server, a list of ranks, or 'push'")
            to = True
        if routing is None and (push_to is not None or to is not None):
            routing = "named"
        number = _core.push_pull(
            self._at, push, push_keys, pull, pull_keys, _routings[routing], push_to, to, variable, label
        )
        return Handle(self, number)

    def register(self, tensor: Any) -> Registration:
        """Prepares the memory of a tensor that is pushed or pulled again and again, until ``unregister``.

        The registration keeps the memory alive. The storage of a torch tensor can never be resized again, also when it is not
        registered any more: torch raises RuntimeError in ``resize_``, and where ``out=`` would need more room. Some versions of
        torch show the larger shape nevertheless, in that tensor: do not use it then. A storage that is moved (``set_``,
        ``share_memory_``, a queue of torch.multiprocessing) takes its memory along, which nobody can prevent: do that before.
        Registering it again gives a further Registration. NotSupportedError: torch has no numpy here that works with it, and
        could resize the tensor; those of ``empty`` and ``zeros`` can be registered nevertheless.
        """
        with calling("register", self._at):
            number = _core.register(self._at, tensor)
        return Registration(self._node, number)
