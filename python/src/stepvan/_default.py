"""The operations of StepMesh as functions, on one node per process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from stepvan import _core
from stepvan._errors import ClosedError, InvalidError, StaleError, cut, ended
from stepvan._node import Node, nodes
from stepvan._server import Policy, Request, _policy, handlers_of
from stepvan._registration import Registration
from stepvan._share import files_of, share

_Shared = TypeVar("_Shared")

_node: Node | None = None


def _given() -> Node:
    if _node is None:
        raise InvalidError("stepvan.init() was not called: call it first")
    return _node


def _number() -> int:
    return _node.number if _node is not None else _given().number


def init(settings: Mapping[str, str | None] | None = None, timeout: float | None = None) -> Node:
    """Joins the cluster that the environment names. Returns the node, which the other functions use. See Node."""
    global _node
    _core.check_fork()
    if _node is not None and _node.alive:
        raise InvalidError("stepvan.init() was called before: call stop() first, or make a Node")
    if _node is not None:
        _node.close()
    _node = Node(settings, timeout)
    return _node


def stop(timeout: float | None = None) -> None:
    """Waits until every living node has stopped, then leaves. A second call, or one without init, does nothing.

    See Node.stop.
    """
    if _node is not None:
        _node.stop(timeout)


def push_pull(
    push_tensors: Sequence[Any],
    push_keys: Sequence[int],
    pull_tensors: Sequence[Any],
    pull_keys: Sequence[int],
    need_event: bool = True,
) -> int:
    """Sends tensors and asks servers to write the pull tensors. Returns a handler for ``wait``. See Worker.push_pull.

    need_event has no effect for tensors in the memory of the CPU.
    """
    return _core.push_pull(_number(), push_tensors, push_keys, pull_tensors, pull_keys)


def wait(handler: int, timeout_ms: float | None = 10000) -> None:
    """Waits until an exchange has finished, ``timeout_ms`` milliseconds at most. See Handle.wait."""
    try:
        limit = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000
    except TypeError:
        raise InvalidError(f"timeout_ms is {cut(timeout_ms)}: it must be milliseconds, or None for ever") from None
    _core.wait(_number(), handler, limit)


def get_all_handlers(handler: int) -> list[int]:
    """The handlers of an exchange's operations: its pushes, then the pulls of one server. The first is ``handler``.

    The operations of an exchange end together and share its times, and so its number.
    """
    return [int(handler)] * _core.operations(_number(), handler)


def fetch_trace(handler: int) -> list[int]:
    """The 8 times in ns of a finished exchange; with several servers, the times of the last one. See Trace."""
    return _core.trace(_number(), handler)


def get_batch(policy: Policy | None = None, timeout: float | None = None) -> list[tuple[int, list[Any], list[int]]]:
    """Waits for requests, one of every worker by default: [(handler, tensors, keys)]. See Server.get_batch."""
    try:
        batch: list[tuple[int, list[Any], list[int]]] = _core.get_batch(_number(), _policy(policy), timeout, None)[0]
    except (ClosedError, StaleError) as error:
        raise ended("get_batch", _number(), error) from None
    return batch


def respond(tensors: Sequence[Any], handler: int | Request, need_event: bool = False) -> None:
    """Answers one request, and lends the tensors: the program must not change them before the worker has them.

    The worker has them when it sends its next request. With Server.respond, the Response tells. fserver_lib.respond
    gives them back at once. See Server.respond. need_event has no effect for tensors in the memory of the CPU.
    """
    _core.respond(_number(), handler.handler if isinstance(handler, Request) else handler, tensors)


def respond_vec(ret_buffer: Any, tensors_vec: Sequence[Any], handler_vec: Sequence[int | Request]) -> None:
    """Answers several requests with consecutive rows of one tensor, and lends it. See Server.respond_vec."""
    _core.respond_vec(_number(), ret_buffer, tensors_vec, handlers_of(handler_vec))


def register_recv_buffer(
    tensor: Any, worker_ranks: Sequence[int], push_keys: Sequence[int], timeout: float | None = None
) -> Registration:
    """Registers a tensor in which pushes of workers arrive in place. See Server.register_recv_buffer."""
    server = _given().server
    if server is None:
        raise InvalidError("register_recv_buffer: this node is not a server: call it in a server")
    return server.register_recv_buffer(tensor, worker_ranks, push_keys, timeout)


def barrier(
    include_server: bool, include_worker: bool, instance_barrier: bool = True, timeout: float | None = None
) -> None:
    """Waits until every member of the groups has called it. See Node.barrier."""
    _core.barrier(_number(), include_worker, include_server, False, False, instance_barrier, timeout)


def _allocating() -> Node:
    if _node is not None and _node.alive:
        return _node
    living = [node for node in nodes.values() if node.alive and node.role != "scheduler"]
    if len(living) == 1:
        return living[0]
    if living:
        raise InvalidError(f"there are {len(living)} nodes, and memory belongs to one: call empty or zeros of one of them")
    if _node is not None:
        raise ClosedError("the node of stepvan.init() was stopped: call stepvan.init() again, or make a Node")
    raise InvalidError("stepvan.init() was not called, and there is no Node: memory belongs to a node: call init(), or make a Node")


def empty(shape: Iterable[int] | int, dtype: Any) -> Any:
    """A tensor in shared memory. See Node.empty.

    It belongs to the node of ``init``. Without a running node of ``init``, it belongs to the only Node that runs and is
    not a scheduler. With several such nodes it raises InvalidError: use Node.empty.
    """
    return _allocating().empty(shape, dtype)


def zeros(shape: Iterable[int] | int, dtype: Any) -> Any:
    """As ``empty``, with zeros."""
    return _allocating().zeros(shape, dtype)


def share_(what: _Shared, node: Node | None = None) -> _Shared:
    """Moves tensors of torch into memory that other processes of this machine reach without a copy. Returns ``what``.

    what: a module, whose parameters and buffers move; a dict or a list of tensors; or a tensor.
    node: as with ``empty``, the node of ``init`` or the only Node without it.

    Tensors, parameters and modules stay the same objects, with the same content. Only their memory is another one. So
    optimizers, tied parameters, and views of fused ones stay as they are. Other tensors of the process that overlap them
    move along. Gradients and the state of optimizers stay where they are. A second call moves only what is new.

    Call it once, between two steps, while no other thread uses the tensors. What torch moves afterwards is private
    again (``module.to(...)``, ``module.half()``, ``share_memory_``, ``load_state_dict(assign=True)``). Arrays of numpy over
    the old memory keep it. Give all tensors in one call: they get few files, which hold nothing else.

    Errors: InvalidError names a tensor that is on an accelerator, sparse, quantised, without memory, or shared by torch.
    OutOfMemoryError. After an error each tensor has the memory that it had, or is shared whole.
    """
    share(what, files_of((_allocating() if node is None else node).number))
    return what


def get_nanosecond() -> int:
    """The time in ns since 1970, by the clock of the traces, which never steps back.

    ``get_nanosecond`` of ``fserver_lib`` is time.perf_counter_ns().
    """
    now = _core.get_nanosecond()
    _core.check_fork()
    return now
