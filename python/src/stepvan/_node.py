"""Nodes."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from stepvan import _core
from stepvan._board import Board
from stepvan._errors import ClosedError, Error, ExpiredError, InternalError, InvalidError, PeerLostError, cut
from stepvan._local import Local
from stepvan._memory import make
from stepvan._peering import Peering
from stepvan._registration import Registration
from stepvan._server import Server
from stepvan._worker import Worker

Role = Literal["worker", "server", "joint", "scheduler", "peer"]
_roles: dict[int, Role] = {1: "worker", 2: "server", 3: "joint", 4: "scheduler", 8: "peer"}

nodes: weakref.WeakValueDictionary[int, Node] = weakref.WeakValueDictionary()
"""All nodes of this process that are not closed, by number."""


class Peer(NamedTuple):
    """An instance that a node exchanges tensors with. A scheduler's peers are all nodes, and a peer's all other peers.

    role, rank: its role, and its rank in that role.
    node_rank, instance: the group of instances that it belongs to, and its index there.
    pid, host: its process, and the host of that process.
    van, reason: the van that reaches it ("shm", "tcp", "unix", "mem") and why; "" before it is connected.
    """

    role: Role
    rank: int
    node_rank: int
    instance: int
    pid: int
    host: str
    van: str
    reason: str


class Node(Local):
    """A node of a cluster: worker, server, both (joint), peer, or scheduler.

    settings: overrule the environment: {"DMLC_ROLE": "worker", ...}; the value None unsets one. ``python -m stepvan
        env --all`` explains each.
    timeout: seconds to wait for the cluster to be complete, instead of STEPVAN_START_TIMEOUT (10 minutes by default).

    The node has started when this returns. As a context manager it stops at the end and at ``sys.exit(0)``, and closes at
    any other exception. A node without references is closed; its handles, requests, responses and registrations refer to
    it. The exit of the interpreter closes every node, after the end of all threads that are not daemons. Only ``stop`` ends
    a node in order: the others see a node die that is closed without it.

    role: "worker", "server", "joint", "peer", or "scheduler".
    worker, server, peer: the operations of a worker, of a server and of a peer; None for another role.
    board: small entries that all nodes see.
    worker_rank, server_rank: its rank among workers, and among servers; -1 for another role.
    servers, workers: how many servers a broadcast of this worker reaches, and how many workers are paired with this server.
    stopped: whether it has left the cluster.
    root_port: the port of a scheduler. With DMLC_PS_ROOT_PORT=0 it takes a free one, and its log names it while it waits.
    cluster: of ``join``: "address:port" of its scheduler; else "".
    number: its number in the C interface.

    Errors: ConfigError, RemoteError (the scheduler refuses this node), PeerLostError, TimeoutError, ExpiredError (its
    message names the nodes that are missing).
    """

    def __init__(self, settings: Mapping[str, str | None] | None = None, timeout: float | None = None) -> None:
        given, timeout = _starting(settings, timeout)
        self.number = _core.start(given, timeout)
        self._closer = weakref.finalize(self, _close, self.number)  # also when the interpreter exits
        role, self.worker_rank, self.server_rank, self.servers, self.workers, self.root_port = _core.info(self.number)
        self.role = _roles[role]
        self._registrations: dict[int, Registration] = {}
        self.worker = Worker(self) if self.role in ("worker", "joint") else None
        self.server = Server(self) if self.role in ("server", "joint") else None
        self.peer = Peering(self) if self.role == "peer" else None
        self.board = Board(self)
        self._scheduler_port = given.get("DMLC_PS_ROOT_PORT", os.environ.get("DMLC_PS_ROOT_PORT")) or ""
        self.stopped = False
        nodes[self.number] = self

    role: Role
    worker: Worker | None
    server: Server | None
    peer: Peering | None
    board: Board
    worker_rank: int
    server_rank: int
    servers: int
    workers: int
    stopped: bool
    root_port: int
    number: int
    cluster: str = ""

    @property
    def alive(self) -> bool:
        """Whether it has neither stopped nor been closed."""
        return self._closer.alive and not self.stopped

    @property
    def peers(self) -> list[Peer]:
        """The peers of this node, by role and rank."""
        return [Peer(_roles[peer[0]], *peer[1:]) for peer in _core.peers(self.number)]

    def check(self) -> None:
        """Raises PeerLostError, with the node that died, if the cluster has failed."""
        _core.health(self.number)

    def barrier(
        self,
        workers: bool | None = None,
        servers: bool | None = None,
        per_instance: bool = True,
        timeout: float | None = None,
        *,
        peers: bool | None = None,
        scheduler: bool = False,
    ) -> None:
        """Waits until every member of the groups has called it: every instance, or one instance of every node.

        All members must name the same groups, and this node must be in one of them (else InvalidError). A group that is
        not named takes part or not by the role of this node: with a peer the peers do, and else workers and servers.
        After TimeoutError the next call with the same groups continues this barrier.
        """
        is_peer = self.peer is not None
        chosen = [own if flag is None else flag for flag, own in ((workers, not is_peer), (servers, not is_peer), (peers, is_peer))]
        _core.barrier(self.number, chosen[0], chosen[1], chosen[2], scheduler, per_instance, timeout)

    def empty(self, shape: Iterable[int] | int, dtype: Any) -> Any:
        """A tensor in memory that other processes of this machine and user reach without a copy; not initialised.

        dtype: a dtype of torch or numpy, which makes the tensor, or a name, which means torch where torch is imported.
        The memory lives as long as a tensor refers to it, also after the node.
        """
        return make(self.number, shape, dtype, False)

    def zeros(self, shape: Iterable[int] | int, dtype: Any) -> Any:
        """As ``empty``, with zeros."""
        return make(self.number, shape, dtype, True)

    def stop(self, timeout: float | None = None) -> None:
        """Waits until every living node of the cluster has stopped, then leaves. A second call has no effect.

        Finished handles can be read until ``close``. TimeoutError: others have not stopped yet; the next call continues
        to wait. PeerLostError: the cluster did not live to its end. InternalError: a mistake of stepvan had ended the
        node.
        """
        if self._closer.alive:
            try:
                _core.stop(self.number, timeout)
            except (PeerLostError, ExpiredError, ClosedError, InternalError):
                self.stopped = True  # all is closed, but not in order
                raise
        self.stopped = True

    def close(self) -> None:
        """Ends the node at once. Without a ``stop`` before, the others see it die.

        Waits of other threads end with ClosedError.
        """
        self._closer()
        nodes.pop(self.number, None)
        self._registrations.clear()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if kind is None or isinstance(error, SystemExit) and not error.code:
            self.stop()
        else:
            self.close()

    def __repr__(self) -> str:
        peer_rank = -1 if self.peer is None else self.peer.rank
        all_ranks = (("worker", self.worker_rank), ("server", self.server_rank), ("peer", peer_rank))
        ranks = [f"{name} {rank}" for name, rank in all_ranks if rank >= 0]
        return f"<stepvan.Node: {' and '.join(ranks) or self.role}>"


_LONGEST_START = 3600.0 * 24 * 365  # the limit of the setting


def _starting(settings: Mapping[str, str | None] | None, timeout: float | None) -> tuple[dict[str, str | None], float | None]:
    """The settings and the limit of a start. A limit becomes the setting, whose error names the missing nodes."""
    try:
        given = dict(settings or {})
    except (TypeError, ValueError):
        raise InvalidError(f"settings is {cut(settings)}: it must be a dict, like {{'DMLC_ROLE': 'worker'}}") from None
    if not isinstance(timeout, int | float) or not 0.1 <= timeout <= _LONGEST_START:
        return given, timeout
    given["STEPVAN_START_TIMEOUT"] = f"{math.ceil(timeout * 1000)}ms"
    return given, timeout + 5


def _close(number: int) -> None:
    try:
        _core.close(number)
    except Error:  # closed already, or in a forked child, where there is nothing to close
        pass
