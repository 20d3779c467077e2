"""Peers inside jobs that something else has started: torchrun, Ray, Slurm, mpirun."""

from __future__ import annotations

import datetime
import importlib
import os
import socket
import sys
import threading
import time
from typing import Any, NamedTuple

from stepvan._errors import Error, ExpiredError, InvalidError, cut
from stepvan._node import Node


class _Job(NamedTuple):
    """This process among those of its job."""

    rank: int
    size: int
    master: str  # where rank 0 is, and the port of its store; "" and 0 where the job has told neither
    port: int


def join(
    group: Any = None,
    *,
    cluster: str | None = None,
    host: bool | str = False,
    peers: int | None = None,
    timeout: float = 600.0,
) -> Node:
    """A node with the role "peer" in a job that torchrun, Ray or Slurm has started; every process of the job calls it.

    It needs no settings of its own. Rank and number of processes are those of ``group``, else of the environment: RANK,
    WORLD_SIZE and MASTER_ADDR, as torchrun sets them, or SLURM_PROCID and SLURM_NTASKS. Without them the process is a
    job of its own.

    group: a process group of torch.distributed; None: the default one, where it was initialised.
    host: whether rank 0 of this job hosts the scheduler for another job, too. A text "address:port" says where it listens;
        with True it takes a free port, which its log names while it waits.
    cluster: "address:port" of the scheduler that another job hosts. None: this job hosts its own.
    peers: how many processes both jobs have together. It must be given with host and cluster.
    timeout: seconds until all of them must be there.

    The ranks of peers are those of the job that hosts, and behind them those of the other one. The scheduler lives in rank
    0 of its job: when that process dies, the cluster ends, and all nodes say so within two seconds. The death of another
    process fails only what names it.

    Errors: InvalidError: arguments that contradict each other, or an environment that is half set. RemoteError: another
    node has another number of peers. ExpiredError names the peers that are missing, or the scheduler.
    """
    until = time.monotonic() + _limit(timeout)
    job = _job(group)
    address, total = _place(job, cluster, host, peers)
    hosted = None
    if cluster is None and job.rank == 0:
        hosted = _Scheduler(*address, total, until)
        address = hosted.address, hosted.port
    if cluster is None and job.size > 1:
        address = _tell(group, job, address, until)
    first = 0 if cluster is None else total - job.size
    try:
        node = _Joined(_settings("peer", *address, total, first + job.rank), max(until - time.monotonic(), 0.1))
    except BaseException as error:
        cause = error if hosted is None else hosted.give_up(error)
        raise (_in_words_of_join(cause) if isinstance(cause, Error) else cause) from None
    node.cluster = f"{address[0]}:{address[1]}"
    node.hosted = hosted
    return node


_SETTINGS = {
    "STEPVAN_NUM_PEER": "peers",
    "STEPVAN_START_TIMEOUT": "timeout",
    "DMLC_PS_ROOT_URI": "the address in cluster or host",
    "STEPVAN_RANK": "not for join, which gives ranks itself: more processes have come than peers says",
}


def _in_words_of_join(error: Error) -> Error:
    """The error with what the settings that it names are to a caller of join, which sets none of them itself."""
    named = [f"{setting} is {meaning}" for setting, meaning in _SETTINGS.items() if setting in str(error)]
    if not named:
        return error
    told = type(error)(f"{error} (stepvan.join: {'; '.join(named)})")
    told.subject = error.subject
    return told


def _limit(timeout: Any) -> float:
    if not isinstance(timeout, int | float) or not 0.1 <= timeout <= 3600 * 24 * 365:
        raise InvalidError(f"timeout is {cut(timeout)}: it must be seconds from 0.1 on")
    return float(timeout)


class _Joined(Node):
    """A node of ``join``. It takes the scheduler that its process hosts along when it stops."""

    hosted: _Scheduler | None = None

    def stop(self, timeout: float | None = None) -> None:
        """See Node.stop."""
        super().stop(timeout)
        if self.hosted is not None:
            self.hosted.thread.join(timeout)

    def close(self) -> None:
        """See Node.close. Where this process hosts the scheduler, the cluster ends."""
        super().close()
        if self.hosted is not None:
            self.hosted.close()


class _Scheduler:
    """A scheduler on a thread of this process."""

    def __init__(self, address: str, port: int, total: int, until: float) -> None:
        self.address = address
        self.error: BaseException | None = None
        self.node: Node | None = None
        self._reserved = socket.socket()  # which keeps a free port for the scheduler
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._reserved.bind(("", port))
        except OSError as error:
            self._reserved.close()
            raise InvalidError(f"host: port {port} cannot be listened on ({error.strerror}): give another one") from None
        self.port: int = self._reserved.getsockname()[1]
        self._settings = _settings("scheduler", address, self.port, total, None)
        self._until = until
        self.thread = threading.Thread(target=self._run, name="stepvan scheduler", daemon=True)
        self.thread.start()
        self.thread.join(0.1)
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            self.node = Node(self._settings, max(self._until - time.monotonic(), 0.1))
            self._reserved.close()
            self.node.stop()
        except BaseException as error:
            self.error = error

    def give_up(self, error: BaseException) -> BaseException:
        """Ends it after a failed start. The result is its own error, if that is the cause."""
        self.thread.join(0.5)
        self.close()
        return self.error if self.error is not None and isinstance(error, ExpiredError) else error

    def close(self) -> None:
        """Ends it at once."""
        if self.node is not None:
            self.node.close()


def _settings(role: str, address: str, port: int, total: int, rank: int | None) -> dict[str, str | None]:
    """The settings of a node. What the environment has of a cluster of DMLC does not count."""
    return {
        **dict.fromkeys(("DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_GROUP_SIZE", "DMLC_INSTANCE_ID", "DMLC_LOCAL", "STEPVAN_RANK")),
        "DMLC_ROLE": role,
        "DMLC_PS_ROOT_URI": address,
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_NODE_RANK": None if rank is None else str(rank),
        "STEPVAN_NUM_PEER": str(total),
    }


def _place(job: _Job, cluster: str | None, host: bool | str, peers: int | None) -> tuple[tuple[str, int], int]:
    """Where the scheduler is, with port 0 for a free one, and how many peers there are."""
    if cluster is not None and host:
        raise InvalidError("join: host and cluster: a job hosts the scheduler or names that of another job: give one of them")
    if peers is None:
        if cluster is not None or host:
            raise InvalidError("join: peers is missing: give how many processes both jobs have together")
        peers = job.size
    if not isinstance(peers, int) or peers < job.size or cluster is not None and peers == job.size:
        raise InvalidError(f"join: peers is {cut(peers)}: it must be how many processes both jobs have together (this one has {job.size})")
    if cluster is not None:
        return _address("cluster", cluster), peers
    if isinstance(host, str):
        return _address("host", host), peers
    return (job.master or "127.0.0.1", 0), peers


def _address(what: str, text: Any) -> tuple[str, int]:
    name, _, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if not name or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidError(f"join: {what} is {cut(text)}: it must be 'address:port'")
    return name, int(port)


def _distributed(group: Any) -> Any:
    """torch.distributed, where it has a process group to use."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        if group is not None:
            raise InvalidError(f"group is {cut(group)}: it must be a process group of torch.distributed, or None")
        return None
    return distributed


def _job(group: Any) -> _Job:
    distributed = _distributed(group)
    environ = os.environ
    master = environ.get("MASTER_ADDR", "")
    port = environ.get("MASTER_PORT", "")
    if port and not port.isdecimal():
        raise InvalidError(f"join: MASTER_PORT is {cut(port)}: it must be a port")
    if distributed is not None:
        rank = distributed.get_rank(group)
        if rank < 0:
            raise InvalidError("join: group: this process is not a member: call it at the members alone")
        return _Job(rank, distributed.get_world_size(group), master, int(port or 0))
    for names in (("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"), ("SLURM_PROCID", "SLURM_NTASKS", "MASTER_ADDR", "MASTER_PORT")):
        found = [name for name in names[:2] if environ.get(name)]
        if not found:
            continue
        alone = environ.get(names[1]) == "1"
        missing = [name for name in (names[:2] if alone else names) if not environ.get(name)]
        if missing:
            raise InvalidError(f"join: the environment is half set: {' and '.join(found)} without {', '.join(missing)}: set them as torchrun does")
        rank, size = (_number(name) for name in names[:2])
        if not rank < size:
            raise InvalidError(f"join: {names[0]} is {rank} and {names[1]} is {size}: the rank must be less")
        return _Job(rank, size, master, int(port or 0))
    return _Job(0, 1, master, int(port or 0))


def _number(name: str) -> int:
    text = os.environ[name]
    if not text.isdecimal():
        raise InvalidError(f"join: {name} is {cut(text)}: it must be a number from 0 on")
    return int(text)


_joined = 0  # how often this process has joined: all of a job do it equally often


def _tell(group: Any, job: _Job, address: tuple[str, int], until: float) -> tuple[str, int]:
    """Passes the address of the scheduler from rank 0 to the others of the job, through the store of the job."""
    global _joined
    _joined += 1
    key = f"stepvan/{_joined}/{job.size}"
    store = _store(group, job, until)
    try:
        if job.rank == 0:
            store.set(key, f"{address[0]}:{address[1]}")
            return address
        store.wait([key], datetime.timedelta(seconds=max(until - time.monotonic(), 0.1)))
        return _address("the store", store.get(key).decode())
    except Error:
        raise
    except Exception as error:  # of torch, by version of different classes
        raise ExpiredError(f"join: rank 0 of this job has not told where its scheduler is: {error}") from None


_stores: list[Any] = []  # the store of rank 0 ends with its object


def _store(group: Any, job: _Job, until: float) -> Any:
    distributed = _distributed(group)
    if distributed is not None:
        if group is not None and hasattr(distributed.distributed_c10d, "_get_process_group_store"):
            return distributed.distributed_c10d._get_process_group_store(group)
        base = distributed.distributed_c10d._get_default_store()
        if group is None:
            return base
        members = [distributed.distributed_c10d.get_global_rank(group, i) for i in range(job.size)]
        return distributed.PrefixStore("stepvan/" + ",".join(map(str, members)), base)
    try:
        make = importlib.import_module("torch.distributed").TCPStore
    except ImportError:
        raise InvalidError("join: torch is needed to tell the processes of the job where the scheduler is: install it") from None
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    port = job.port if agent else job.port + 1  # the next port: torch itself may take that one later
    limit = datetime.timedelta(seconds=max(until - time.monotonic(), 0.1))
    try:
        store = make(job.master, port, None, job.rank == 0 and not agent, limit, wait_for_workers=False)
    except Exception as error:
        raise ExpiredError(f"join: the store of the job at {job.master}:{port} cannot be reached: {error}") from None
    _stores.append(store)
    return store
