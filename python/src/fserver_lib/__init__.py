"""The module of StepMesh under its own name: programs that ``import fserver_lib as f`` run on stepvan unchanged.

It has the functions of ``stepvan``, which raise stepvan's exceptions. Without a GPU a stream is the calling thread: where
a stream would wait, the call itself waits.
"""

from __future__ import annotations

import functools
import multiprocessing.process
import multiprocessing.util
import os
import sys
import time
from collections.abc import Sequence
from threading import get_ident
from typing import Any, NoReturn

import stepvan
from stepvan import (
    _core,
    get_all_handlers,
    push_pull,
)
from stepvan import _default
from stepvan._errors import cut, ended

Batch = list[tuple[int, list[Any], list[int]]]

_unanswered: list[tuple[int, int]] = []
"""Requests without pulls of the last batch: the thread that took it, and the handler. ``_answer`` answers them."""


def init(plugin: str = "") -> None:
    """Joins the cluster that the environment names. There are no plugins: NotSupportedError.

    A process that exits with 0 and has not called ``stop`` stops at its exit, and waits for a minute at most. The others
    see a process die that ends in another way. Logs are text, not JSON, unless STEPVAN_LOG_FORMAT is set.
    """
    if plugin:
        raise stepvan.NotSupportedError(f"init: {cut(plugin)}: stepvan has no plugins, devices are supported by the package itself")
    _unanswered.clear()
    node = stepvan.init(None if os.environ.get("STEPVAN_LOG_FORMAT") else {"STEPVAN_LOG_FORMAT": "console"})
    node._closer.atexit = False  # type: ignore[misc]  # the stop at exit comes first
    _core.stop_at_exit(node.number, _LAST_STOP)
    if multiprocessing.process.parent_process() is not None:
        multiprocessing.util.Finalize(None, _child_ends, exitpriority=100)


def stop() -> None:
    """Waits until every living node has stopped, then leaves. Answers requests of the last batch that only push."""
    _answer()
    stepvan.stop()


finalize = stop
"""The name that some forks of StepMesh have for ``stop``."""

_LAST_STOP = 60.0
"""How many seconds an exiting process waits for the others."""


def _child_ends() -> None:
    """Stops at the orderly end of a child of multiprocessing, which does not run the exit functions of C."""
    error = sys.exc_info()[1]
    if error is not None and not (isinstance(error, SystemExit) and not error.code):
        return
    try:
        stepvan.stop(_LAST_STOP)
    except stepvan.Error as stopping:
        print(f"stepvan: stop at exit: {stopping}", file=sys.stderr)


def get_batch() -> Batch:
    """Waits for one request of every worker: [(handler, tensors, keys)], by worker.

    The program's next call that waits (``get_batch``, ``wait``, ``barrier``, ``stop``) answers the requests of this batch
    that only push, unless the program has answered them. RefusedError: this server refused a request, so the batch
    failed; call again for the next batch. ClosedError: every worker has left.
    """
    _answer()
    batch: Batch
    try:
        batch, handlers = _core.get_batch(_default._number(), 0, None, None)
    except (stepvan.ClosedError, stepvan.StaleError) as error:
        raise ended("get_batch", _default._number(), error) from None
    thread = get_ident()
    _unanswered.extend((thread, handler) for handler in handlers)
    return batch


def wait(handler: int, timeout_ms: float | None = 10000) -> None:
    """Waits until an exchange has finished, ``timeout_ms`` milliseconds at most. See stepvan.Handle.wait."""
    _answer_own()
    stepvan.wait(handler, timeout_ms)


def _answer() -> None:
    """Answers requests without pulls: the program has seen the batch, and workers wait for the answer."""
    while _unanswered:
        request = _unanswered.pop()
        try:
            _core.respond_copy(_default._number(), request[1], [])
        except (stepvan.StaleError, stepvan.ClosedError):  # the program has answered it, or the node has stopped
            pass
        except BaseException:
            _unanswered.append(request)
            raise


def _answer_own() -> None:
    """``_answer``; in a joint process only if this thread took the batch, which another thread may still use."""
    if _unanswered and (_unanswered[-1][0] == get_ident() or _default._given().worker is None):
        _answer()


def get_nanosecond() -> int:
    """The time in ns by the clock of time.perf_counter_ns(), the monotonic one. A process may call it before a fork."""
    return time.monotonic_ns()


def fetch_trace(handler: int) -> list[int]:
    """8 times in ns of a finished exchange, by the clock of get_nanosecond; 0: did not happen. See stepvan.Trace.

    A server's times are by the clock of its machine. Unless it is this machine, compare only times of one clock.
    """
    ahead = _ahead()
    return [at and at - ahead for at in stepvan.fetch_trace(handler)]


@functools.cache
def _ahead() -> int:
    """How far the library's clock, which counts from 1970, is ahead of get_nanosecond. Both run equally fast."""
    best = 0, sys.maxsize
    for _ in range(16):
        before = time.monotonic_ns()
        at = stepvan.get_nanosecond()
        after = time.monotonic_ns()
        best = min(best, (at - (before + after) // 2, after - before), key=lambda found: found[1])
    return best[0]


def respond(tensors: Sequence[Any], handler: int, need_event: bool = False) -> None:
    """Answers the pulls of one request, in their order, once. The program may write to them again when it returns.

    stepvan.respond lends them instead, and copies nothing. need_event has no effect for tensors in the memory of the CPU.
    """
    _core.respond_copy(_default._number(), handler, tensors)


def respond_vec(ret_buffer: Any, tensors_vec: Sequence[Any], handler_vec: Sequence[int]) -> None:
    """Answers request i with the next rows of ret_buffer, as many as tensors_vec[i] has.

    The rows of request i follow those of request i - 1, so ret_buffer must have the rows of all requests together. Else it
    raises InvalidError, and no request is answered. The program may write to ret_buffer again when it returns.
    """
    _core.respond_vec_copy(_default._number(), ret_buffer, tensors_vec, handler_vec)


def register_recv_buffer(tensor: Any, worker_ranks: Sequence[int], push_keys: Sequence[int]) -> None:
    """Registers a tensor: pushes of workers arrive in place, in equal chunks of it."""
    stepvan.register_recv_buffer(tensor, worker_ranks, push_keys)


def regist_push_pull_buffer(
    push_tensor: Any, push_keys: Sequence[int], pull_tensor: Any, pull_keys: Sequence[int]
) -> None:
    """Prepares the memory of tensors that a worker, directly or through views, pushes and pulls again and again.

    It lasts until the end of the node. The keys have no effect, as in the original: use any key with the memory.
    """
    worker = _default._given().worker
    if worker is None:
        raise stepvan.InvalidError("regist_push_pull_buffer: this node is not a worker: call register_recv_buffer in a server")
    worker.register(push_tensor)
    if pull_tensor is not push_tensor:
        worker.register(pull_tensor)


def barrier(
    include_server: bool,
    include_worker: bool | None = None,
    instance_barrier: bool = True,
    *,
    include_client: bool | None = None,
) -> None:
    """Waits until every member of the groups has called it. include_client is another name of include_worker."""
    if include_worker is None:
        include_worker = include_client
    if include_worker is None:
        raise TypeError("barrier() needs include_worker (or include_client)")
    _answer_own()
    stepvan.barrier(include_server, include_worker, instance_barrier)


class SimpleNotify:
    """Lets a stream wait for the library. Without a GPU the calling thread is the stream, and waits itself."""

    def init(self) -> None:
        """Makes it ready."""

    def stream_wait_event(self, handler: int) -> None:
        """Waits until the exchange has finished."""
        wait(handler, None)

    def wait_event_done(self) -> None:
        """Does nothing: all earlier work has finished."""

    def block_now_stream(self) -> None:
        """Does nothing: all earlier work has finished."""

    def block_now_stream_and_get_batch(self) -> None:
        """Returns at once: ``get_future_batch_data`` waits for the next batch.

        So a program may call it before it has answered the last batch, whose workers send nothing until then.
        """

    def get_future_batch_data(self) -> Batch:
        """Waits for the next batch, and returns it. See get_batch."""
        return get_batch()


def _needs_gpu(name: str) -> NoReturn:
    raise stepvan.NotSupportedError(f"{name} works on memory of a GPU, and this build of stepvan is for the CPU: use wait() and SimpleNotify")


def map_pinned_tensor(tensor: Any, device_index: int) -> NoReturn:
    """CUDA only: raises NotSupportedError."""
    _needs_gpu("map_pinned_tensor")


def write_flag(flag: Any, seq: Any) -> NoReturn:
    """CUDA only: raises NotSupportedError."""
    _needs_gpu("write_flag")


def wait_flag(flag: Any, seq: Any) -> NoReturn:
    """CUDA only: raises NotSupportedError."""
    _needs_gpu("wait_flag")


def seq_add_one(seq: Any) -> NoReturn:
    """CUDA only: raises NotSupportedError."""
    _needs_gpu("seq_add_one")


def cudagraph_set_config(num_micro_batch: int) -> NoReturn:
    """CUDA only: raises NotSupportedError."""
    _needs_gpu("cudagraph_set_config")


def cudagraph_regist_flag(flag: Sequence[Any]) -> NoReturn:
    """CUDA only: raises NotSupportedError."""
    _needs_gpu("cudagraph_regist_flag")


def cudagraph_set_stage(stage: int) -> NoReturn:
    """CUDA only: raises NotSupportedError."""
    _needs_gpu("cudagraph_set_stage")


def capture_begin() -> NoReturn:
    """CUDA only: raises NotSupportedError."""
    _needs_gpu("capture_begin")


def capture_end() -> NoReturn:
    """CUDA only: raises NotSupportedError."""
    _needs_gpu("capture_end")


def cudagraph_replay(g: int) -> NoReturn:
    """CUDA only: raises NotSupportedError."""
    _needs_gpu("cudagraph_replay")


__all__ = [
    "SimpleNotify",
    "barrier",
    "capture_begin",
    "capture_end",
    "cudagraph_regist_flag",
    "cudagraph_replay",
    "cudagraph_set_config",
    "cudagraph_set_stage",
    "fetch_trace",
    "finalize",
    "get_all_handlers",
    "get_batch",
    "get_nanosecond",
    "init",
    "map_pinned_tensor",
    "push_pull",
    "regist_push_pull_buffer",
    "register_recv_buffer",
    "respond",
    "respond_vec",
    "seq_add_one",
    "stop",
    "wait",
    "wait_flag",
    "write_flag",
]
