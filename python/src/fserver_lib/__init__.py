"""The module of StepMesh under its own name: programs that ``import fserver_lib as f`` run on stepvan unchanged.

The functions are those of ``stepvan``, and their errors its exceptions. Without a GPU a stream is the thread that calls:
what a stream would wait for is waited for in the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import stepvan
from stepvan import (
    _core,
    fetch_trace,
    get_all_handlers,
    get_nanosecond,
    push_pull,
    respond,
    respond_vec,
    wait,
)
from stepvan import _default
from stepvan._errors import ended

Batch = list[tuple[int, list[Any], list[int]]]

_unanswered: list[int] = []
"""Handlers of the last batch that have no pulls: their keys are free again at the next get_batch."""


def init(plugin: str = "") -> None:
    """Joins the cluster that the environment tells of. There are no plugins: NotSupportedError."""
    if plugin:
        raise stepvan.NotSupportedError(f"init: {plugin!r}: stepvan has no plugins, devices are supported by the package itself")
    _unanswered.clear()
    stepvan.init()


def stop() -> None:
    """Waits until every node that lives has stopped, then leaves."""
    stepvan.stop()


def get_batch() -> Batch:
    """Waits for one request of every worker: [(handler, tensors, keys)], by worker.

    Requests of the last batch that only push count as answered. ClosedError: every worker has left.
    """
    _answer()
    batch: Batch
    try:
        batch, handlers = _core.get_batch(_default._number(), 0, None, True)
    except (stepvan.ClosedError, stepvan.StaleError) as error:
        raise ended("get_batch", _default._number(), error) from None
    _unanswered.extend(handlers)
    return batch


def _answer() -> None:
    while _unanswered:
        try:
            _core.respond(_default._number(), _unanswered[-1], [])
        except (stepvan.StaleError, stepvan.ClosedError):  # the program has answered it, or the node has stopped
            pass
        _unanswered.pop()


def register_recv_buffer(tensor: Any, worker_ranks: Sequence[int], push_keys: Sequence[int]) -> None:
    """Has pushes of workers received in place, in equal chunks of the tensor."""
    stepvan.register_recv_buffer(tensor, worker_ranks, push_keys)


def regist_push_pull_buffer(
    push_tensor: Any, push_keys: Sequence[int], pull_tensor: Any, pull_keys: Sequence[int]
) -> None:
    """Prepares the memory of tensors, or of what views of them show, that a worker pushes and pulls again and again.

    It lasts until the end of the node. The keys have no meaning, as in the original: any may be used with the memory.
    """
    worker = _default._given().worker
    if worker is None:
        raise stepvan.InvalidError("regist_push_pull_buffer: this node is no worker; servers have register_recv_buffer")
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
    """Waits until every member of the groups has called it. include_client is the original's other name of include_worker."""
    if include_worker is None:
        include_worker = include_client
    if include_worker is None:
        raise TypeError("barrier() needs include_worker (or include_client)")
    stepvan.barrier(include_server, include_worker, instance_barrier)


class SimpleNotify:
    """Has a stream wait for what the library does. Without a GPU the thread that calls is the stream, and waits itself."""

    def __init__(self) -> None:
        self._batch: Batch | None = None

    def init(self) -> None:
        """Makes it ready."""
        self._batch = None

    def stream_wait_event(self, handler: int) -> None:
        """What follows comes after the exchange has finished."""
        _core.wait(_default._number(), handler, None)

    def wait_event_done(self) -> None:
        """Returns when all that was asked for has happened: it has."""

    def block_now_stream(self) -> None:
        """What follows comes after what was asked for before: it has."""

    def block_now_stream_and_get_batch(self) -> None:
        """What follows comes after the next batch has arrived, which ``get_future_batch_data`` gives."""
        if self._batch is None:
            self._batch = get_batch()

    def get_future_batch_data(self) -> Batch:
        """The batch that was waited for, once."""
        self.block_now_stream_and_get_batch()
        batch, self._batch = self._batch, None
        assert batch is not None
        return batch


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
