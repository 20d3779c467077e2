"""The server's side of an exchange."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stepvan import _core
from stepvan._errors import ClosedError, InvalidError, StaleError, calling, cut, ended
from stepvan._local import Local
from stepvan._loop import completion
from stepvan._registration import Registration

if TYPE_CHECKING:
    from stepvan._node import Node

Policy = Literal["lockstep", "any"] | int
_policies = {None: 0, "lockstep": -1, "any": 1}


class Pull(NamedTuple):
    """A worker's pull: ``key``, ``shape``, ``dtype``, ``nbytes``; the answer may be shorter if ``variable``."""

    key: int
    shape: tuple[int, ...]
    dtype: Any
    nbytes: int
    variable: bool


class Response(Local):
    """An answer. Until it is done, stepvan keeps its tensors alive, and the program must not change them.

    ``await response`` waits in an event loop.
    """

    __slots__ = ("_number", "_server")

    def __init__(self, server: Server, number: int) -> None:
        self._server = server
        self._number = number

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the workers have acknowledged it, ``timeout`` seconds at most. PeerLostError: one was lost."""
        _core.response_wait(self._server._at, self._number, timeout)

    def done(self) -> bool:
        """Whether ``wait`` would return at once."""
        return _core.response_done(self._server._at, self._number)

    def __await__(self) -> Generator[Any, None, None]:
        if not self.done():
            yield from completion(_core.response_notify, self._server._at, self._number).__await__()
        self.wait(0)


class Request(Local, _core.Request):
    """One worker's request: it pushed ``tensors`` with ``keys``, and its ``pulls`` need one answer.

    handler: its number. worker: the rank of the worker.
    tensors: of torch where torch is imported, else of numpy. A type that neither has becomes unsigned integers of the
        same size. A push to a registered chunk is a view of it: from the respond on, the next push of that key may
        replace its content. The program may keep all other tensors. A push that the worker left in its own memory is
        copied at the first read of ``tensors``, and never for ``input``. So read ``tensors`` before the respond: a
        first read after it raises StaleError if a push must be copied.
    """

    __slots__ = ()

    def input(self, i: int) -> Any:
        """Push ``i``, to be read where it is: the worker's own tensor, without a copy, where the server can see it.

        The program must not write to it: with torch, a write ends the process. Nor may it read it after the respond, when
        the worker may change it.
        """
        return super().input(i)

    def out(self, i: int) -> Any:
        """Memory for the answer to pull ``i``, in its shape and type; each call gives the same memory.

        Where the server can reach the worker's own tensor, it is that tensor, and a respond with it sends no bytes. Its
        content is undefined at first. It can answer no other pull. The program must not write to it after the respond.
        """
        return super().out(i)

    def __repr__(self) -> str:
        return f"Request(worker={self.worker}, keys={self.keys}, pulls={self.pull_count})"


_core.set_request(Request, Pull, Response)


class Server(Local):
    """The operations of a server. Any thread may call them, but one at a time ``get_batch``.

    ``for batch in server:`` yields batches until all workers have left.
    """

    __slots__ = ("_at", "_node", "__weakref__")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._at = node.number

    def register(self, tensor: Any) -> Registration:
        """Prepares the memory of a tensor that answers are sent from again and again, until ``unregister``.

        Everything that ``Worker.register`` says applies.
        """
        with calling("register", self._at):
            number = _core.register(self._at, tensor)
        return Registration(self._node, number)

    def register_recv_buffer(
        self, tensor: Any, worker_ranks: Sequence[int], push_keys: Sequence[int], timeout: float | None = None
    ) -> Registration:
        """Cuts the tensor into equal chunks: chunk i receives what worker worker_ranks[i] pushes with push_keys[i].

        Chunks receive in place, from the return of this call on. Requests have views of the chunks, in the shape of the
        push, which may be smaller. The registration keeps the tensor's memory alive. The storage of a torch tensor can
        never be resized again, and must not be moved: see Worker.register. Registering a (rank, key) again replaces
        its chunk. With a tensor of CUDA, pushes arrive in the memory of the device, and the call first waits for the
        current stream of torch.

        InvalidError: lists of unequal length, bytes that do not divide, wrong alignment, memory of another
        registration, or a rank that is not paired. BusyError: a request on a chunk to be replaced is unanswered.
        TimeoutError: not all workers know yet; continue with ``wait`` of the exception's ``registration``.
        """
        with calling("register_recv_buffer", self._at):
            number, chunks, known = _core.register_recv_buffer(self._at, tensor, worker_ranks, push_keys)
        registration = Registration(self._node, number, chunks)
        try:
            registration.wait(0 if known else timeout)
        except TimeoutError as error:
            error.registration = registration  # type: ignore[attr-defined]
            raise
        except Exception:
            registration._forget()
            raise
        return registration

    def get_batch(self, policy: Policy | None = None, timeout: float | None = None) -> list[Request]:
        """Waits for requests, and takes the oldest waiting request of each worker that has one.

        policy: "lockstep": one of every paired worker; "any"; a number: of at least so many workers. The default is
            STEPVAN_BATCH.

        RefusedError, in lock-step: this server refused a worker's request, and the batch failed as a whole; call again
        for the next batch. ClosedError: every worker has left, and it is time to stop; or this node was stopped.
        PeerLostError: the policy cannot be met without a worker that is gone. TimeoutError: ``timeout`` seconds have
        passed, and nothing was taken.
        """
        try:
            batch: list[Request] = _core.get_batch(self._at, _policy(policy), timeout, self)
        except (ClosedError, StaleError) as error:
            raise ended("get_batch", self._at, error) from None
        return batch

    def __iter__(self) -> Iterator[list[Request]]:
        while True:
            try:
                batch = self.get_batch()
            except ClosedError:
                return
            yield batch

    def respond(self, tensors: Sequence[Any] | None, request: Request | int) -> Response:
        """Answers the pulls of a request (or of its handler), in their order, once. It never waits.

        [] answers a request without pulls, and ends the worker's exchange. None answers with ``out(i)`` for each pull.
        The tensors are lent. stepvan keeps them alive until the response is done, and the program must not change them
        until then. If it does, the worker may get the new content (STEPVAN_CHECK_BORROWED=1 finds that). Only their
        sizes in bytes must fit the pulls: the bytes of a tensor of another type or shape are written as they are.

        InvalidError: counts or sizes do not fit. WouldBlockError: the queue to the worker is full. After both, the
        request still needs an answer. StaleError: it was answered before.
        """
        if not isinstance(request, Request):
            if tensors is None:
                raise InvalidError("respond: a handler has no out(i): give the tensors, or the request")
            return Response(self, _core.respond(self._at, request, tensors))
        return request.respond(tensors)

    def respond_vec(self, buffer: Any, tensors: Sequence[Any], requests: Sequence[Request | int]) -> Response:
        """Answers several requests with consecutive rows (dimension 0) of one tensor.

        Request i gets as many rows as ``tensors[i]`` has (a tensor, a list whose first tensor counts, or a number). With
        several pulls per request, the pulls' own row counts divide them further. Surplus rows are ignored. On an error
        no request is answered. The buffer is lent, like the tensors of ``respond``.
        """
        return Response(self, _core.respond_vec(self._at, buffer, tensors, handlers_of(requests)))


def handlers_of(requests: Iterable[Request | int]) -> list[int]:
    """The handlers of requests; a handler stays as it is."""
    try:
        return [request.handler if isinstance(request, Request) else request for request in requests]
    except TypeError:
        raise InvalidError(f"requests is {cut(requests)}: it must be a list of requests or handlers") from None


def _policy(policy: Policy | None) -> int:
    if isinstance(policy, int) and policy > 0:
        return policy
    try:
        return _policies[policy]  # type: ignore[index]
    except (KeyError, TypeError):
        raise InvalidError(f"policy is {cut(policy)}: it is 'lockstep', 'any', a positive number, or None") from None
