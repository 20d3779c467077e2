"""Plans of peers."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from stepvan import _core
from stepvan._errors import ClosedError, Error, ExpiredError, InvalidError, PeerLostError, TimeoutError, cut
from stepvan._frameworks import element
from stepvan._group import Group, Merge, merge_number
from stepvan._local import Local
from stepvan._part import Part, Parts
from stepvan._worker import Handle

if TYPE_CHECKING:
    from stepvan._peering import Peering


class Move(NamedTuple):
    """One side of a move of a plan.

    id: a number that both sides give; those to a peer differ, and those from it.
    peer: the rank of the other side.
    tensor: what is sent, or where it arrives.
    label: names it in errors, such as the name of a parameter.
    wire: the type that the elements have on their way, the same at both ends; it is the type of one end, and the other
        converts once. None: both ends have one type.
    merge: what becomes of the elements of several recvs into one tensor: "sum", "avg", "max", "min" or "product", in the
        order of their ids. None: a recv has its tensor for itself.
    """

    id: int
    peer: int
    tensor: Any
    label: str | None = None
    wire: Any = None
    merge: Merge | None = None


class PlanStats(NamedTuple):
    """What a run of a plan moves.

    moves, pairs: how many moves it has, and how many pairs of this peer and another, in one direction.
    sent, received: bytes to other peers, and from them.
    viewed, written: bytes that the receiver copies out of the sender's memory, and that the sender copies to the
        receiver's memory.
    streamed: bytes that travel in messages. local: bytes that stay in this process.
    merged: how many receives are merged.
    passed: of sent, bytes that come from a peer and are passed on to another one, in a plan with replicas.
    """

    moves: int
    pairs: int
    sent: int
    received: int
    viewed: int
    written: int
    streamed: int
    local: int
    merged: int
    passed: int


class Plan(Local):
    """Moves of tensors that several peers have agreed on: the result of ``node.peer.plan``. Any thread may call it.

    A run moves all of them. Each peer of the plan begins it with ``run``. A plan uses its tensors until ``close``, or
    until its node ends. As a context manager it closes at the end.

    name: the name of the plan.
    """

    __slots__ = ("_closed", "_number", "_peer", "_recvs", "_sends", "name")

    def __init__(self, peer: Peering, name: str, sends: _core.Views, recvs: _core.Views, number: int) -> None:
        self.name = name
        self._peer = peer
        self._sends, self._recvs = sends, recvs
        self._number = number
        self._closed = False
        try:
            _core.wait(peer._at, number, None)
        except BaseException:  # also Ctrl-C: the others learn that it is given up
            with contextlib.suppress(Error):
                self.close(10)
            raise
        _mention_private(self)

    name: str

    def run(self, version: int | None = None) -> Handle:
        """Begins a run. The handle ends when the elements of the recvs have come, and nobody reads those of the sends.

        version: a number from 1 on that never falls, the same at all peers of the run. None: that which is offered, at a
            peer that only receives.

        Until the handle has ended, nobody writes to the tensors of the sends, and nobody uses those of the recvs.

        Errors: InvalidError names a tensor that torch has moved, resized or freed since the plan was made: make the plan
        again. It is also raised for a version that falls. BusyError: the last run has not ended. PeerLostError, RemoteError,
        ClosedError: the plan is over.
        """
        number = self._at
        self._sends.check()
        self._recvs.check()
        return Handle(self._peer, _core.plan_begin(number, 0 if version is None else version))

    @property
    def offered(self) -> int:
        """The version that all peers with sends to this one have begun; 0 while they have not."""
        return _core.plan_state(self._at)[0]

    @property
    def version(self) -> int:
        """The version of the last run, if all of it has come; 0 before, during a run, and after a failure."""
        return _core.plan_state(self._at)[1]

    @property
    def stats(self) -> PlanStats:
        """What a run moves, and how."""
        return PlanStats(*_core.plan_stats(self._at))

    def close(self, timeout: float | None = None) -> None:
        """Ends the plan at this peer, and at the others when they begin another run. A run that has not ended fails.

        It waits until no peer uses the tensors. After TimeoutError, call it again. A second call does nothing.
        """
        if not self._closed:
            _core.plan_close(self._number, timeout)
            self._closed = True

    @property
    def _at(self) -> int:
        if self._closed:
            raise ClosedError(f"plan {self.name}: it was closed")
        return self._number

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<stepvan.Plan: {self.name}{' (closed)' if self._closed else ''}>"


_Row = tuple[int, int, str | None, int, int]


def plan(peer: Peering, name: str, sends: Iterable[Any], recvs: Iterable[Any], timeout: float | None, replicas: bool) -> Plan:
    """Makes a plan of moves."""
    send_rows, send_views = _read("sends", sends)
    recv_rows, recv_views = _read("recvs", recvs)
    number = _core.plan(peer._at, name, send_views, send_rows, recv_views, recv_rows, timeout, _check_replicas(replicas))
    return Plan(peer, name, send_views, recv_views, number)


def _check_replicas(replicas: Any) -> bool:
    if not isinstance(replicas, bool):
        raise InvalidError(f"replicas is {cut(replicas)}: it must be True or False")
    return replicas


def _read(which: str, moves: Iterable[Any]) -> tuple[list[_Row], _core.Views]:
    """The moves as the extension takes them: their numbers, and the tensors."""
    rows, tensors = [], []
    for i, (number, peer, tensor, label, wire, merge) in enumerate(_unpacked(which, moves)):
        merged = 0 if merge is None else merge_number(f"{which}[{i}].merge", merge)
        rows.append((number, peer, label, 0 if wire is None else element(wire)[0], merged))
        inner = "_local_tensor" if hasattr(tensor, "_local_tensor") else None  # of a DTensor
        tensors.append((f"{which}[{i}]" if label is None else label, tensor, inner))
    return rows, _core.make_views(tensors, which == "recvs")


def _unpacked(which: str, moves: Iterable[Any]) -> Iterator[Move]:
    try:
        listed = list(moves)
    except TypeError:
        raise InvalidError(f"{which} is {cut(moves)}: it must be a list of moves") from None
    for i, move in enumerate(listed):
        if not isinstance(move, tuple) or not 3 <= len(move) <= len(Move._fields):
            raise InvalidError(f"{which}[{i}] is {cut(move)}: it must be (id, peer, tensor) or (id, peer, tensor, label), or a Move")
        yield Move(*move)


def match(peer: Peering, name: str, send: Any, recv: Any, timeout: float | None, ranks: Iterable[int], replicas: bool) -> Plan:
    """Makes a plan of tensors with names."""
    _check_replicas(replicas)
    parts = Parts()
    send_views, send_parts = _named("send", send, parts)
    recv_views, recv_parts = _named("recv", recv, parts)
    until = None if timeout is None else time.monotonic() + timeout
    group = _meet(peer, name, ranks, until)
    try:
        left = None if until is None else max(until - time.monotonic(), 0)
        number = _core.match(peer._at, group._number, name, send_views, send_parts, recv_views, recv_parts, left, replicas)
        return Plan(peer, name, send_views, recv_views, number)
    finally:
        group.forget()  # nobody uses its name again


def _meet(peer: Peering, name: str, ranks: Iterable[int], until: float | None) -> Group:
    """A group for one attempt to make a plan, so that nothing of an earlier one that has failed belongs to it.

    The first member gives the attempt a number, and tells the others by mail.
    """
    group = Group(peer, ranks, f"match {name}")
    first, topic = group.ranks[0], f"stepvan.match.{hashlib.sha256(group.name.encode()).hexdigest()[:32]}"
    if peer.rank == first:
        attempt = secrets.token_hex(8)
        for rank in group.ranks[1:]:
            peer.mail(rank, topic, attempt.encode())
    else:
        attempt = _attempt(peer, name, topic, first, until)
    return Group(peer, group.ranks, f"{group.name} {attempt}"[-200:])


def _attempt(peer: Peering, name: str, topic: str, first: int, until: float | None) -> str:
    """The attempt that the first member has told of last."""
    found = b""
    with peer.listen(topic) as box:
        while True:
            left = 0.0 if found else 0.5 if until is None else min(0.5, max(until - time.monotonic(), 0))
            try:
                source, body = box.get(left)
                found = body if source == first else found
            except TimeoutError:
                if found:
                    return found.decode(errors="replace")
                if all(other.rank != first for other in peer._node.peers):
                    raise _lost(PeerLostError, f"plan {name} with peer {first}: it died or left", first) from None
                if until is not None and time.monotonic() >= until:
                    raise _lost(ExpiredError, f"plan {name} with peer {first}: it did not take part in time", first) from None


def _lost(kind: type[Error], text: str, rank: int) -> Error:
    error = kind(text)
    error.subject = f"peer {rank}"
    return error


def _named(which: str, state: Mapping[str, Any] | None, known: Parts) -> tuple[_core.Views, tuple[bytes | None, ...]]:
    """Tensors with names as the extension takes them, and what this process has of each. Budget: 3 us a tensor."""
    if not isinstance(state, Mapping | None):
        raise InvalidError(f"{which} is {cut(state)}: it must be a dict of tensors by name, or None")
    tensors: list[tuple[str, Any, str | None]] = []
    parts: list[bytes | None] = []
    for name, value in (state or {}).items():
        part: bytes | None = None
        inner: str | None = None
        if isinstance(value, tuple):
            if len(value) != 2 or not isinstance(value[1], Part):
                raise InvalidError(f"{which}[{name!r}] is {cut(value)}: it must be a tensor, or a tensor and its stepvan.Part")
            value, part = value[0], value[1]._encoded
        if hasattr(value, "placements"):
            inner = "_local_tensor"
            if part is None:
                part = known.of(name, value)
                if part is None:  # this process is not in the mesh
                    continue
        tensors.append((name, value, inner))
        parts.append(part)
    return _core.make_views(tensors, which == "recv"), tuple(parts)


_log = logging.getLogger("stepvan")
_mentioned = False


def _mention_private(plan: Plan) -> None:
    """Says once what it costs that tensors of a plan lie in memory that other processes do not reach."""
    global _mentioned
    if _mentioned or plan.stats.streamed == 0 or all(peer[6] != "shm" for peer in _core.peers(plan._peer._at)):
        return
    shared = [view[-1] for views in (plan._sends, plan._recvs) for view in views.list()]
    if all(shared):
        return
    _mentioned = True
    _log.warning(
        "plan %s: %d of its %d tensors lie in private memory, so their bytes are copied twice on the way to peers of this "
        "machine: call stepvan.share_ with them, or make them with Node.empty, and one copy is enough",
        plan.name, shared.count(False), len(shared),
    )  # fmt: skip
