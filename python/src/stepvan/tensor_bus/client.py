"""Clients of the tensor bus."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Generator, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from stepvan import _core, _default
from stepvan._errors import Error, InvalidError, cut
from stepvan._frameworks import CODES, discover, element
from stepvan._local import Local
from stepvan._memory import dims_of
from stepvan._share import Files, share
from stepvan.tensor_bus import payloads
from stepvan.tensor_bus._session import GRACE, Answer, Pending, Session
from stepvan.tensor_bus.commands import CleanupBatch, InitPair, Message, QueryStatus, RegisterTensors, Transfer

TransferType = Literal["send", "recv"]
_log = logging.getLogger("stepvan")
_MOST_RANKS = 1 << 16


class Status(NamedTuple):
    """The state of a batch at a client.

    state: "unknown", "registered", "transferring", "done" or "failed".
    round: the last one that was asked for, in either direction; they count from 1.
    error: of a batch that has failed.
    """

    state: str
    round: int
    error: Error | None


class Result(Local):
    """A command that was given to the agent. ``await result`` waits in an event loop."""

    __slots__ = ("_pending",)

    def __init__(self, pending: Pending) -> None:
        self._pending = pending

    def wait(self, timeout: float | None = 30.0) -> None:
        """Waits until the command has completed, and raises its error. TimeoutError: it continues; wait again."""
        self._pending.wait(math.inf if timeout is None else time.monotonic() + _seconds("timeout", timeout))

    def done(self) -> bool:
        """Whether ``wait`` would return at once."""
        return self._pending.done()

    def __await__(self) -> Generator[Any, None, None]:
        if not self.done():
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            self._pending.then(lambda: loop.call_soon_threadsafe(_awake, future))
            yield from future.__await__()
        self.wait(0)

    def __repr__(self) -> str:
        return f"<stepvan.tensor_bus.Result: {self._pending.what}{' (done)' if self.done() else ''}>"


def _awake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class BatchHandler(Local):
    """Tensors that move together: the result of ``TensorBusClient.register_tensors``.

    It uses the tensors until ``close``. As a context manager it closes at the end.

    batch_id: the name of the batch.
    role: the side that the tensors are of, where it was named.
    """

    def __init__(self, client: TensorBusClient, batch_id: str, role: str | None, views: _core.Views) -> None:
        self.batch_id = batch_id
        self.role = role
        self._client = client
        self._views = views

    batch_id: str
    role: str | None

    def transfer(self, transfer_type: TransferType, blocking: bool = False, timeout: float = 30.0) -> Result:
        """Asks for the next round: see ``TensorBusClient.transfer``."""
        return self._client.transfer(self.batch_id, transfer_type, blocking, timeout, self.role)

    def query_transfer_signal(self) -> bool:
        """Whether the other side has asked to send a round that this side has not asked to receive."""
        return self._client.query_transfer_signal(self.batch_id, self.role)

    def query_status(self) -> Status:
        """The state of the batch."""
        return self._client.query_status(self.batch_id, self.role)

    def close(self, timeout: float = 30.0) -> None:
        """Ends the batch. Nobody uses its tensors afterwards. A second call does nothing.

        BusyError: a transfer of it runs.
        """
        self._client.cleanup_batch(self.batch_id, timeout, self.role)

    def __enter__(self) -> BatchHandler:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(Error):
            self.close()

    def __repr__(self) -> str:
        return f"<stepvan.tensor_bus.BatchHandler: {self.batch_id}>"


class _Layout(NamedTuple):
    mesh: memoryview
    placements: memoryview


class _Seen(NamedTuple):
    """Memory of an agent in another process, where this process sees it."""

    start: int
    end: int
    number: int
    mapped: weakref.ref[Any]


class TensorBusClient(Local):
    """A client of an agent, by which this process moves tensors. Any thread may call its methods.

    agent_rank: the rank of the agent among the peers of its cluster.
    path: where the agent listens. None: where it does by default, in the folder of this user on this machine.
    port: of the scheduler of the cluster, which is in the default path. None: DMLC_PS_ROOT_PORT.
    rank: of this process in its job; the ranks of a side have this order. None: that of torch.distributed, else RANK.
        Without it each agent serves one rank of a side, and they have the order of the agents.
    connection_timeout: seconds to wait for the agent.
    silence: seconds for which an agent of another process may be silent while something waits for it. It answers some
        commands at once, so one that is silent was stopped. Then everything fails with PeerLostError.

    Waits end after ``timeout`` seconds with TimeoutError, whose message names who was missing. When the agent dies, they
    end with PeerLostError, and so do those for the other side. As a context manager the client closes at the end.

    agent_rank, path: of the agent.
    """

    def __init__(
        self,
        agent_rank: int,
        *,
        path: str | os.PathLike[str] | None = None,
        port: int | None = None,
        rank: int | None = None,
        connection_timeout: float = 30.0,
        silence: float = 5.0,
    ) -> None:
        if not isinstance(agent_rank, int) or agent_rank < 0:
            raise InvalidError(f"client: agent_rank is {cut(agent_rank)}: it must be the rank of a peer")
        self.agent_rank = agent_rank
        self.path = socket_path(agent_rank, port) if path is None else os.path.abspath(os.fspath(path))
        rank = _rank() if rank is None else rank
        if not isinstance(rank, int) or not -1 <= rank < _MOST_RANKS:
            raise InvalidError(f"client: rank is {cut(rank)}: it must be the rank of this process in its job, or -1")
        if _seconds("silence", silence) <= 0:
            raise InvalidError(f"client: silence is {cut(silence)}: it must be seconds above 0")
        self._session = Session(self.path, rank, _seconds("connection_timeout", connection_timeout), silence)
        self._closer = weakref.finalize(self, self._session.leave)
        self._lock = threading.Lock()  # guards what follows
        self._seen: list[_Seen] = []
        self._layouts: dict[str, list[_Layout]] = {}  # of this process in a pair
        self._nothing: Any = None  # memory for tensors without elements

    agent_rank: int
    path: str

    def init_pair(
        self,
        pair_name: str,
        local_name: str,
        remote_name: str,
        expected_world_size: int,
        device_mesh: Any = None,
        placements: Iterable[Any] | None = None,
        blocking: bool = True,
        timeout: float = 30.0,
    ) -> Result:
        """Opens a pair: two sides between which tensors move. All ranks of both sides call it.

        pair_name: the name of the pair, the same everywhere.
        local_name, remote_name: the names of this side and of the other.
        expected_world_size: how many ranks this side has.
        device_mesh, placements: the layout of this side: a DeviceMesh of torch or its shape, and for each of its dimensions
            a placement of torch or of ``payloads.placements_payload``. Without both, rank i has the tensors of rank i of the
            other side.

        A side with a partial placement only sends. Two pairs may be opened in another order at each side, with
        ``blocking=False``. Errors: InvalidError: the ranks do not agree; ExpiredError names the side that is missing.
        """
        if (device_mesh is None) != (placements is None):
            raise InvalidError(f"init_pair: device_mesh and placements: give both, or none (got {cut(device_mesh)} and {cut(placements)})")
        layout = None
        if device_mesh is not None:
            _check_order(device_mesh)
            layout = _Layout(payloads.mesh_shape_payload(device_mesh), payloads.placements_payload(placements or ()))
        command = InitPair(
            pair_name=pair_name,
            local_name=local_name,
            expected_world_size=expected_world_size,
            remote_name=remote_name,
            mesh_shape_payload=None if layout is None else layout.mesh,
            placements_payload=None if layout is None else layout.placements,
        )
        result = self._do(command, "", timeout, blocking)
        if layout is not None:
            with self._lock:
                self._layouts.setdefault(pair_name, []).append(layout)
        return result

    def register_tensors(
        self,
        batch_id: str,
        tensors: Iterable[tuple[Any, str]],
        bucket_size: int | None = None,
        timeout: float = 30.0,
        role: str | None = None,
    ) -> BatchHandler:
        """Makes tensors ready to move together. All ranks of their pairs call it, with tensors that fit together.

        batch_id: a name of the batch that is not in use, the same everywhere.
        tensors: (tensor, pair): tensors of torch, DTensors of the layout of their pair, or arrays of numpy; any strides.
        bucket_size: is checked and has no effect: small moves travel together by themselves.
        role: the name of the side that the tensors are of, where this client is both sides.

        An agent in another process reaches tensors of ``empty`` and ``share_``. Other tensors of torch move there, once:
        see ``share_``. All ranks of a side give the same type at each place of the list. Where the sides differ, the
        elements travel in the narrower type. After an error nothing is left of the batch.
        """
        until = time.monotonic() + _seconds("timeout", timeout)
        named, pairs = _read(tensors)
        for i, (_, tensor, _) in enumerate(named):
            self._check_layout(i, tensor, pairs[i])
        views = _core.make_views(named, False)
        handles, lent, views = self._place(batch_id, named, views, until)
        try:
            command = RegisterTensors(batch_id=batch_id, tensors=list(zip(pairs, handles, strict=True)), bucket_size=bucket_size)
            key = object()
            pending = self._begin(command, role or "", timeout, until)
            self._session.kept[key] = views
            pending.then(lambda: self._keep(key, batch_id, role, views, pending))
            self._session.finish(pending, until)
        finally:
            self._session.take_back(lent)
        return BatchHandler(self, batch_id, role, views)

    def transfer(
        self, batch_id: str, transfer_type: TransferType, blocking: bool = False, timeout: float = 30.0, role: str | None = None
    ) -> Result:
        """Asks for the next round of a batch: the n-th send of one side meets the n-th recv of the other.

        A round begins when all ranks of an agent have asked for it, so those of one thread do not block for each other.
        Until the result is done, nobody changes the tensors of a send, or uses those of a recv. InvalidError: the batch is not
        known, its direction leads to a partial layout, or torch has moved, resized or freed a tensor.
        """
        views = self._session.kept.get((batch_id, role))
        if views is not None:
            _check(views)
        result = self._do(Transfer(batch_id=batch_id, transfer_type=transfer_type), role or "", timeout, False)
        if blocking:
            result.wait(timeout)
        return result

    def query_transfer_signal(self, batch_id: str, role: str | None = None) -> bool:
        """Whether the other side has asked to send a round that this side has not asked to receive."""
        answer = self._query(batch_id, "transfer_signal", role)
        return bool(answer.signal)

    def query_status(self, batch_id: str, role: str | None = None) -> Status:
        """The state of a batch."""
        answer = self._query(batch_id, "status", role)
        return Status(answer.state, answer.round, None if answer.failure is None else answer.failure.error())

    def cleanup_batch(self, batch_id: str, timeout: float = 30.0, role: str | None = None) -> None:
        """Ends a batch. Nobody uses its tensors afterwards. A batch that is not known has ended.

        BusyError: a transfer of it runs.
        """
        self._do(CleanupBatch(batch_id=batch_id), role or "", timeout, True)
        self._session.kept.pop((batch_id, role), None)

    def enqueue(self, command: Message, timeout: float = 0.0, role: str | None = None) -> Result:
        """Gives any command to the agent, and waits for room in its queue at most ``timeout`` seconds.

        WouldBlockError: too many commands of this client have not completed.
        """
        limit = _seconds("timeout", timeout)
        until = time.monotonic() + limit
        return Result(self._session.begin(command, role or "", 0, max(until, time.monotonic() + GRACE), until if limit else None))

    def empty(self, shape: Iterable[int] | int, dtype: Any) -> Any:
        """A tensor in memory that the agent reaches without a copy, not initialised: see ``stepvan.empty``."""
        if self._session.here:
            return _default.empty(shape, dtype)
        dims = dims_of(shape)
        code, is_torch = element(dtype)
        discover(not is_torch)
        return _core.view(self._allocate(max(math.prod(dims) * _core.dtype_size(code), 1)), dims, code, is_torch)

    def share_(self, what: Any) -> Any:
        """Moves tensors of torch into memory that the agent reaches without a copy. Returns ``what``.

        See ``stepvan.share_``.
        """
        if self._session.here:
            return _default.share_(what)
        share(what, Files(self._allocate, self._holds))
        return what

    def close(self, timeout: float = 30.0) -> None:
        """Ends the client. Commands that have not completed fail, and so do its batches, at all ranks.

        It waits until nobody uses the tensors. After TimeoutError, call it again. A second call does nothing.
        """
        self._closer.detach()
        self._session.close(_seconds("timeout", timeout))

    def __enter__(self) -> TensorBusClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(Error):
            self.close()

    def __repr__(self) -> str:
        return f"<stepvan.tensor_bus.TensorBusClient: of agent {self.agent_rank}>"

    def _begin(self, command: Message, role: str, timeout: float, until: float) -> Pending:
        return self._session.begin(command, role, timeout, until, until)

    def _do(self, command: Message, role: str, timeout: float, blocking: bool) -> Result:
        until = time.monotonic() + _seconds("timeout", timeout)
        if not blocking:
            return Result(self._session.begin(command, role, timeout, until, None))
        pending = self._begin(command, role, timeout, until)
        self._session.finish(pending, until)
        return Result(pending)

    def _query(self, batch_id: str, state_name: str, role: str | None) -> Answer:
        until = time.monotonic() + 30
        pending = self._begin(QueryStatus(batch_id=batch_id, state_name=state_name), role or "", 30, until)
        answer: Answer = self._session.finish(pending, until)
        return answer

    def _keep(self, key: object, batch_id: str, role: str | None, views: _core.Views, pending: Pending) -> None:
        """Keeps the tensors of a batch that is registered, and releases others."""
        if pending.failure is None:
            self._session.kept[batch_id, role] = views
        self._session.kept.pop(key, None)

    def _check_layout(self, i: int, tensor: Any, pair: str) -> None:
        if not hasattr(tensor, "placements"):
            return
        with self._lock:
            known = self._layouts.get(pair, [])
        has = _Layout(payloads.mesh_shape_payload(tensor.device_mesh), payloads.placements_payload(tensor.placements))
        if known and has not in known:
            raise InvalidError(
                f"tensors[{i}]: its layout is not that of pair {pair!r} (got {cut(tensor.placements)} of {payloads.mesh_shape(tensor.device_mesh)}): "
                "register it over a pair of its own"
            )

    def _place(self, batch_id: str, named: list[_Named], views: _core.Views, until: float) -> tuple[list[memoryview], list[int], _core.Views]:
        """The handles of tensors, numbers of memory that is lent, and the views of where the tensors are then."""
        if self._session.here:
            rows = _rows(views)
            _mention_private(batch_id, rows)
            ranges = _ranges(rows)
            if not all(row.bytes for row in rows):
                ranges.insert(0, (ctypes.addressof(_nothing), ctypes.addressof(_nothing) + 1))
            numbers = self._session.lend([(start, end - start) for start, end in ranges], until)
            seen = [_Seen(start, end, number, _always) for (start, end), number in zip(ranges, numbers, strict=True)]
            return _handles(rows, seen, numbers[0] if numbers else 0), numbers, views
        seen = self._alive()
        away = [i for i, row in enumerate(_rows(views)) if row.bytes and _find(seen, row) is None]
        if away:
            self._move(batch_id, named, away)
            views, seen = _core.make_views(named, False), self._alive()
        rows = _rows(views)
        return _handles(rows, seen, self._number_of_nothing(rows)), [], views

    def _move(self, batch_id: str, named: list[_Named], away: list[int]) -> None:
        """Moves tensors of torch to where the agent reaches them."""
        torch = sys.modules.get("torch")
        for i in away:
            if torch is None or not isinstance(named[i][1], torch.Tensor):
                raise InvalidError(
                    f"{named[i][0]}: it lies in private memory, which the agent in another process does not reach: "
                    "make it with TensorBusClient.empty, and copy into it"
                )
        _log.info("batch %s: %d of its %d tensors are moved into memory of the agent, once", batch_id, len(away), len(named))
        self.share_({named[i][0]: named[i][1] for i in away})

    def _allocate(self, size: int) -> memoryview:
        """Memory of the agent in another process."""
        memory = self._session.allocate(size, time.monotonic() + 30)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory.view))
        with self._lock:
            self._seen.append(_Seen(start, start + size, memory.number, memory.mapped))
        return memory.view

    def _alive(self) -> list[_Seen]:
        with self._lock:
            self._seen = [s for s in self._seen if s.mapped() is not None]
            return self._seen.copy()

    def _holds(self, start: int, size: int) -> bool:
        return any(s.start <= start and start + size <= s.end for s in self._alive())

    def _number_of_nothing(self, rows: Sequence[_Row]) -> int:
        """The number of some memory, for tensors without elements."""
        if all(row.bytes for row in rows):
            return 0
        if self._nothing is None:
            self._nothing = self._session.allocate(64, time.monotonic() + 30)
        number: int = self._nothing.number
        return number


_Named = tuple[str, Any, str | None]


class _Row(NamedTuple):
    """Where a tensor is."""

    name: str
    start: int
    bytes: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    shared: bool


def _read(tensors: Iterable[tuple[Any, str]]) -> tuple[list[_Named], list[str]]:
    named: list[_Named] = []
    pairs: list[str] = []
    try:
        listed = list(tensors)
    except TypeError:
        raise InvalidError(f"tensors is {cut(tensors)}: it must be a list of (tensor, pair)") from None
    for i, one in enumerate(listed):
        if not isinstance(one, tuple | list) or len(one) != 2 or not isinstance(one[1], str):
            raise InvalidError(f"tensors[{i}] is {cut(one)}: it must be (tensor, pair)")
        named.append((f"tensors[{i}]", one[0], "_local_tensor" if hasattr(one[0], "_local_tensor") else None))
        pairs.append(one[1])
    return named, pairs


def _rows(views: _core.Views) -> list[_Row]:
    rows = []
    for name, start, dtype, shape, strides, shared in views.list():
        empty = 0 in shape
        steps = 0 if empty else sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) + 1
        rows.append(_Row(name, start, steps * _core.dtype_size(CODES[dtype]), dtype, shape, strides, shared))
    return rows


def _ranges(rows: Iterable[_Row]) -> list[tuple[int, int]]:
    """The memory of tensors, where those that overlap are one."""
    joined: list[tuple[int, int]] = []
    for start, size in sorted((row.start, row.bytes) for row in rows if row.bytes):
        if joined and start < joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], start + size)
        else:
            joined.append((start, start + size))
    return joined


def _find(seen: Sequence[_Seen], row: _Row) -> _Seen | None:
    return next((s for s in seen if s.start <= row.start and row.start + row.bytes <= s.end), None)


def _handles(rows: Sequence[_Row], seen: Sequence[_Seen], nothing: int) -> list[memoryview]:
    handles = []
    for row in rows:
        place = _find(seen, row) if row.bytes else None
        number, offset = (nothing, 0) if place is None else (place.number, row.start - place.start)
        try:
            handles.append(payloads.tensor_handle(number, offset, row.dtype, row.shape, row.strides))
        except InvalidError as error:
            raise InvalidError(f"{row.name}: {error}") from None
    return handles


def _check(views: _core.Views) -> None:
    try:
        views.check()
    except InvalidError as error:
        text = str(error).replace("the plan was made", "it was registered")
        raise InvalidError(text.replace("make the plan again", "close the batch, and register it again")) from None


def _check_order(mesh: Any) -> None:
    """Ranks of a side are in the order of their numbers, so those of its mesh are, too."""
    numbers = getattr(mesh, "mesh", None)
    if numbers is not None and (ranks := numbers.flatten().tolist()) != sorted(ranks):
        raise InvalidError(f"init_pair: device_mesh: its ranks do not ascend (got {cut(ranks)}): make a mesh of ascending ranks")


def _rank() -> int:
    """The rank of this process in its job; -1 where nothing says it."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    text = os.environ.get("RANK", "")
    if not text:
        return -1
    if not text.isdecimal():
        raise InvalidError(f"client: RANK is {cut(text)}: it must be a number from 0 on")
    return int(text)


def socket_path(agent_rank: int, port: int | str | None = None) -> str:
    """Where the agent with a rank listens by default, in the cluster whose scheduler has the port."""
    port = os.environ.get("DMLC_PS_ROOT_PORT", "") if port is None or port == "" else port
    if not str(port).isdecimal() or not 0 < int(port) < 65536:
        raise InvalidError(f"the port of the scheduler is {cut(port)}: set DMLC_PS_ROOT_PORT, or give the path of the agent")
    return os.path.join(os.environ.get("TMPDIR") or "/tmp", f"stepvan-{os.getuid()}", f"bus-{int(port)}-{agent_rank}.sock")


_LONGEST = 1e9  # seconds


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST:
        raise InvalidError(f"{name} is {cut(value)}: it must be seconds from 0 on")
    return float(value)


class _Always:
    """In place of a reference to memory that the caller keeps."""


_nothing = ctypes.create_string_buffer(1)
_always: weakref.ref[Any] = weakref.ref(_Always)
_mentioned = False


def _mention_private(batch_id: str, rows: Sequence[_Row]) -> None:
    """Says once what it costs that tensors lie in memory that other processes do not reach."""
    global _mentioned
    private = sum(not row.shared for row in rows)
    if _mentioned or not private:
        return
    _mentioned = True
    _log.warning(
        "batch %s: %d of its %d tensors lie in private memory, so their bytes are copied twice on the way to agents of this "
        "machine: call stepvan.share_ with them, or make them with Node.empty, and one copy is enough",
        batch_id, private, len(rows),
    )  # fmt: skip
