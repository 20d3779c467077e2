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
    from stepvan._peering import Peering

Routing = Literal["broadcast", "key", "named"]
_routings = {None: 0, "broadcast": 1, "key": 2, "named": 3}


class Trace(NamedTuple):
    """The times of an exchange with one server, in ns since 1970 (``get_nanosecond``).

    request_start: the program called. request_post_send: the request was sent. request_post_recv: the server has all of
    it. request_process: the server's program has it. response_start: the server's program has answered.
    response_post_send: the answer is being sent. response_post_recv: the worker has all of it. response_process: the
    handle has finished. The first two and the last two are by the worker's clock, the others by the server's: compare
    only times of one clock. 0: did not happen.
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
    """An operation that was begun: an exchange of a worker, or a transfer, a run of a plan or a barrier of a peer.

    ``int(handle)`` is its number; ``await handle`` waits in an event loop. It stays valid until STEPVAN_HANDLES later
    ones (65,536 by default) have finished; then its use raises StaleError. That of a group stays valid until four later
    operations of the group have begun. Only an exchange has traces, lengths and operations.
    """

    __slots__ = ("_number", "_side")

    def __init__(self, side: Worker | Peering, number: int) -> None:
        self._side = side
        self._number = number

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the operation has ended, ``timeout`` seconds at most.

        An exchange ends when every server has answered. Then all pulls are written; without pulls, the servers have
        responded. Any thread may call it, as often as wanted. PeerLostError, RemoteError: ``subject`` is the other side, or another node whose death has ended the
        cluster. TimeoutError: the operation continues, and the tensors are still in use.
        """
        _core.wait(self._side._at, self._number, timeout)

    def done(self) -> bool:
        """Whether ``wait`` would return at once. It does not drive progress: a thread must wait meanwhile."""
        return _core.done(self._side._at, self._number)

    def __await__(self) -> Generator[Any, None, None]:
        if not self.done():
            yield from completion(_core.notify, self._side._at, self._number).__await__()
        self.wait(0)

    def trace(self) -> list[int]:
        """The 8 times of a finished exchange; with several servers, the times of the last one. See Trace."""
        return _core.trace(self._side._at, self._number)

    def traces(self) -> list[Trace]:
        """The times of each server: by rank for a broadcast, else in the order in which the tensors name them."""
        return [Trace(*stamps) for stamps in _core.traces(self._side._at, self._number)]

    def lengths(self) -> list[int]:
        """How many bytes of each pull a finished exchange wrote; it must have a variable pull."""
        return _core.lengths(self._side._at, self._number)

    def operations(self) -> int:
        """How many operations the exchange has: its pushes, and the pulls of one server. They share its number."""
        return _core.operations(self._side._at, self._number)

    def __int__(self) -> int:
        return self._number

    __index__ = __int__

    def __repr__(self) -> str:
        return f"Handle({self._number:#x})"


class Worker(Local):
    """The operations of a worker: ``node.worker``. Any thread may call them."""

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
        """Sends tensors to servers and asks them to write the pull tensors. It never blocks.

        push, pull: lists of contiguous tensors in the memory of the CPU, with up to 8 dimensions: of torch, of numpy, or
            objects with ``__dlpack__`` or the buffer protocol. Those of torch may be in memory of CUDA: the exchange
            follows the work on the current stream. stepvan keeps them alive until the handle has finished,
            and the program must not change them until then. After TimeoutError they are still in use. Until the end,
            do not resize or move the storage of a torch tensor, which would free its memory (``resize_``, ``set_``,
            ``share_memory_``, a queue of torch.multiprocessing). Pulls must not share memory with each other. A pull
            may share memory with a push only if the same server gets the push and writes the pull.
        push_keys, pull_keys: one number of 64 bits per tensor. A push of a key whose last push is unanswered raises
            BusyError.
        routing: "broadcast": every push goes to every paired server, and pulls are server-major: with S servers and P
            pulls each, server s writes pull s*P+i. "key": the server that owns the key gets the push or writes the
            pull. "named": the servers that push_to and pull_to name. The default is STEPVAN_ROUTING.
        push_to, pull_to: ranks of servers, one per tensor, or one for all. pull_to="push": the server that gets push i
            writes pull i.
        variable: which pulls may be answered with fewer bytes (``Handle.lengths``); True for all.
        label: groups exchanges in traces. stepvan keeps each text for ever, 4096 at most.

        Errors: InvalidError, BusyError, WouldBlockError (too much is outstanding: wait for a handle), PeerLostError,
        ClosedError. After an error nothing was sent.
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

        A device reaches only memory that is registered with it. Registering and unregistering take up to half a second
        for a GiB where the node has such a device; other threads continue meanwhile. In a joint process the registration
        is of the worker and of the server. The registration keeps the memory alive. The storage of a torch tensor can
        never be resized again, even after ``unregister``: torch raises RuntimeError in ``resize_``, and where ``out=``
        would need more room. After that error some versions of torch show the larger shape in the tensor: do not use it
        then. stepvan cannot prevent that a program moves a storage (``set_``, ``share_memory_``, a queue of
        torch.multiprocessing), which takes the memory along: do that before. Nor can it prevent that a program resizes a
        storage of CUDA: do not do that. Registering the tensor again gives a further Registration. NotSupportedError:
        torch could resize the tensor, because it does not work with the installed numpy. Tensors of ``empty`` and
        ``zeros`` can be registered even so.
        """
        with calling("register", self._at):
            number = _core.register(self._at, tensor)
        return Registration(self._node, number)
