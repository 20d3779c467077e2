"""Plans of peers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from stepvan import _core
from stepvan._errors import ClosedError, Error, InvalidError, cut
from stepvan._local import Local
from stepvan._worker import Handle

if TYPE_CHECKING:
    from stepvan._peering import Peering


class Move(NamedTuple):
    """One side of a move of a plan.

    id: a number that both sides give; those to a peer differ, and those from it.
    peer: the rank of the other side.
    tensor: what is sent, or where it arrives.
    label: names it in errors, such as the name of a parameter.
    """

    id: int
    peer: int
    tensor: Any
    label: str | None = None


class PlanStats(NamedTuple):
    """What a run of a plan moves.

    moves, pairs: how many moves it has, and how many pairs of this peer and another, in one direction.
    sent, received: bytes to other peers, and from them.
    viewed, written: bytes that the receiver copies out of the sender's memory, and that the sender copies to the
        receiver's memory.
    streamed: bytes that travel in messages. local: bytes that stay in this process.
    """

    moves: int
    pairs: int
    sent: int
    received: int
    viewed: int
    written: int
    streamed: int
    local: int


class Plan(Local):
    """Moves of tensors that several peers have agreed on: the result of ``node.peer.plan``. Any thread may call it.

    A run moves all of them. Each peer of the plan begins it with ``run``. A plan uses its tensors until ``close``, or
    until its node ends. As a context manager it closes at the end.

    name: the name of the plan.
    """

    __slots__ = ("_closed", "_number", "_peer", "_recvs", "_sends", "name")

    def __init__(
        self,
        peer: Peering,
        name: str,
        sends: Iterable[Move | tuple[Any, ...]],
        recvs: Iterable[Move | tuple[Any, ...]],
        timeout: float | None,
    ) -> None:
        self.name = name
        self._peer = peer
        self._closed = True
        send_rows, self._sends = _read("sends", sends)
        recv_rows, self._recvs = _read("recvs", recvs)
        self._number = _core.plan(peer._at, name, self._sends, send_rows, self._recvs, recv_rows, timeout)
        self._closed = False
        try:
            _core.wait(peer._at, self._number, None)
        except BaseException:  # also Ctrl-C: the others learn that it is given up
            with contextlib.suppress(Error):
                self.close(10)
            raise
        _mention_private(self, [*send_rows, *recv_rows])

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


_Row = tuple[int, int, str | None]


def _read(which: str, moves: Iterable[Move | tuple[Any, ...]]) -> tuple[list[_Row], _core.Views]:
    """The moves as the extension takes them: their numbers, and the tensors."""
    rows, tensors = [], []
    for i, (number, peer, tensor, label) in enumerate(_unpacked(which, moves)):
        rows.append((number, peer, label))
        inner = "_local_tensor" if hasattr(tensor, "_local_tensor") else None  # of a DTensor
        tensors.append((f"{which}[{i}]" if label is None else label, tensor, inner))
    return rows, _core.make_views(tensors, which == "recvs")


def _unpacked(which: str, moves: Iterable[Move | tuple[Any, ...]]) -> Iterator[Move]:
    try:
        listed = list(moves)
    except TypeError:
        raise InvalidError(f"{which} is {cut(moves)}: it must be a list of moves") from None
    for i, move in enumerate(listed):
        if not isinstance(move, tuple) or not 3 <= len(move) <= 4:
            raise InvalidError(f"{which}[{i}] is {cut(move)}: it must be (id, peer, tensor) or (id, peer, tensor, label)")
        yield Move(*move)


_log = logging.getLogger("stepvan")
_mentioned = False


def _mention_private(plan: Plan, rows: list[_Row]) -> None:
    """Says once what it costs that tensors of a plan lie in memory that other processes do not reach."""
    global _mentioned
    if _mentioned or plan.stats.streamed == 0:
        return
    near = {peer[1] for peer in _core.peers(plan._peer._at) if peer[6] == "shm"}
    private = [view[-1] for views in (plan._sends, plan._recvs) for view in views.list()]
    count = sum(not shared and row[1] in near for row, shared in zip(rows, private, strict=True))
    if count > 0:
        _mentioned = True
        _log.warning(
            "plan %s: %d of its %d tensors lie in private memory, so their bytes are copied twice on the way to peers of this "
            "machine: call stepvan.share_ with them, or make them with Node.empty, and one copy is enough",
            plan.name, count, len(rows),
        )  # fmt: skip
