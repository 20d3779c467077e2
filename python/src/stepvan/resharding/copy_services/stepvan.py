"""A service over the peers of a node: nothing is staged, and no rank waits for those that it has nothing to do with."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import logging
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from stepvan._errors import Error, InvalidError, cut
from stepvan.resharding.copy_services._agreement import HEAD_BYTES, Agreed, Key, Moves, Pending
from stepvan.resharding.copy_services._peers import Deadline, Move, Peers, wait_all
from stepvan.resharding.copy_services.base import CopyService, RecvOp, SendOp, match_local_ops
from stepvan.resharding.execution import Transfer
from stepvan.resharding.transforms import ReshardTransform
from stepvan.resharding.utils import ReshardPlan, TransferOp

logger = logging.getLogger(__name__)

_WINDOW = 128  # transfers in each direction that are outstanding with a peer

_megatron_base = "megatron.core.resharding.copy_services.base"


class _Bound(NamedTuple):
    """Where the memory of a move was when the plan was agreed on."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Bound:
        return cls(tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)


class _Own(NamedTuple):
    """A move within this rank."""

    source: torch.Tensor
    to: torch.Tensor
    label: str
    comes: torch.dtype  # what the type of the source is to be


class _Link(NamedTuple):
    """What two ranks have agreed on for a batch: a plan for memory that stays, and single transfers for the rest."""

    keys: list[Key]
    planned: dict[Key, _Bound]
    single: list[Key]
    plan: Any  # of node.peer, or None


@dataclass
class _Agreed:
    """The links of a batch, by rank, and the copies within this one. It keeps the plan, so that its id stays its own.

    standing is that of a transfer for which nothing but the plans of the links is to run. receives: the ranks whose
    elements come.
    """

    plan: ReshardPlan
    links: dict[int, _Link]
    own: list[_Own]
    receives: set[int]
    standing: tuple[Any, ...] | None = None


class StepvanCopyService(CopyService):
    """Copies between the peers of a cluster. ``node`` has the role peer, and ranks number the peers.

    ``run`` executes what was submitted, as any service does. ``execute_plan`` takes a whole plan: the ranks agree on it
    at its first run, and each further run costs two messages for each pair of ranks. The first run decides where the
    tensors of the plan lie. ``forget`` ends that: call it at all ranks when a model has got other memory. Where a plan
    allows a cast, floats are converted while they are copied.

    name: the same at all ranks. Services that are in use at the same time have different names. timeout: seconds that
    a run waits for other ranks, or None. After a run has failed, the service can only be closed; make another one with
    another name at all ranks. One thread at a time may use a service.
    """

    requires_process_group_barrier = False
    supports_incremental_runs = True
    accepts_strides = True

    def __init__(self, node: Any, name: str = "reshard", timeout: float | None = 600.0) -> None:
        _register()
        self._peers = Peers(node)
        self.rank, self.world_size, self.group = self._peers.rank, self._peers.size, None
        self.name, self.timeout = name, timeout
        self._tag = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 2
        self._sends: list[SendOp] = []
        self._recvs: list[RecvOp] = []
        self._agreed: dict[tuple[int, int], _Agreed] = {}  # by the id of a plan, and batch
        self._attempts = 0
        self._last = 0  # the highest version that was run
        self._labels: dict[int | None, str] = {}  # names of parameters by task, for errors
        self._broken: str | None = None

    # ------------------------------------------------------------------------------------------- what every service has

    def submit_send(self, src_tensor: torch.Tensor, dest_rank: int, task_id: int | None = None) -> None:
        self._check(src_tensor, dest_rank)
        self._sends.append(SendOp(task_id, src_tensor, dest_rank))

    def submit_recv(self, dest_tensor: torch.Tensor, src_rank: int, task_id: int | None = None) -> None:
        self._check(dest_tensor, src_rank)
        self._recvs.append(RecvOp(task_id, dest_tensor, src_rank))

    def run(self) -> None:
        sends, recvs = self._sends, self._recvs
        self._sends, self._recvs = [], []
        self._check_works()
        moves: dict[int, Moves] = {}
        for is_send, ops in ((True, sends), (False, recvs)):
            for op in ops:
                rank = op.dest_rank if isinstance(op, SendOp) else op.src_rank
                if rank != self.rank:
                    moves.setdefault(rank, Moves(self.rank, rank)).add(is_send, op.task_id, Pending(op.tensor.detach(), label=self._labels.get(op.task_id, "")))
        own = match_local_ops([op for op in sends if op.dest_rank == self.rank], [op for op in recvs if op.src_rank == self.rank], self.rank)
        with torch.no_grad(), _Breaking(self):
            deadline = Deadline(self.timeout)
            self._agree(moves, deadline)
            self._single({rank: (one, one.keys) for rank, one in moves.items()}, deadline)
            for send, recv in own:
                _copy(f"task {send.task_id}", recv.tensor.detach(), send.tensor.detach(), recv.tensor.dtype)

    def _check(self, tensor: Any, rank: int) -> None:
        if not isinstance(tensor, torch.Tensor):
            raise InvalidError(f"reshard: submit: it is not a tensor of torch (got {cut(tensor)}): give one")
        if not isinstance(rank, int) or not 0 <= rank < self.world_size:
            raise InvalidError(f"reshard: submit: rank is out of range (got {rank}, want 0 to {self.world_size - 1}): check the rank offsets")

    def _check_works(self) -> None:
        if self._broken is not None:
            raise InvalidError(f"reshard: service {self.name}: an earlier run has failed ({self._broken}): close it, and make one with another name at every rank")

    def set_plan(self, plan: ReshardPlan, transform: ReshardTransform | None = None) -> None:
        """Says which plan the next operations belong to. Errors then name its parameters."""
        self._labels = {op.task_id: op.param_name for op in (*plan.send_ops, *plan.recv_ops)}

    def forget(self, plan: ReshardPlan | None = None) -> None:
        """Ends what was agreed on for a plan, or for all plans. All ranks of the plan call it between two runs."""
        for key in [key for key in self._agreed if plan is None or key[0] == id(plan)]:
            self._close(self._agreed.pop(key))

    def close(self) -> None:
        """Ends the plans of this service. No other rank uses the memory of tensors when it returns."""
        self.forget()
        self._sends, self._recvs = [], []
        self._broken = self._broken or "it was closed"

    def _break(self, why: str) -> None:
        """Lets no other run begin, here or at ranks that have a plan with this one."""
        self._broken = self._broken or why
        for agreed in self._agreed.values():
            for link in agreed.links.values():
                if link.plan is not None:
                    with contextlib.suppress(Error):  # of a peer that is dead, or goes on: close tries again
                        link.plan.close(0.1)

    def _close(self, agreed: _Agreed) -> None:
        for link in agreed.links.values():
            if link.plan is not None:
                link.plan.close()

    # --------------------------------------------------------------------------------------------------- whole plans

    def execute_plan(
        self,
        plan: ReshardPlan,
        src_params: dict[str, torch.Tensor],
        dst_params: dict[str, torch.Tensor],
        transform: ReshardTransform | None = None,
    ) -> bool:
        transfer = Transfer(plan, src_params, dst_params, transform, strides=True)
        transfer.check()
        with torch.no_grad():
            transfer.begin()
            self.run_transfer(transfer, max(self._last, 1) if src_params else 0)
            transfer.finish_all()
        return True

    def run_transfer(self, transfer: Transfer, version: int) -> int:
        """Runs all batches of a plan. version: of this run, or 0 to take what comes. Returns the version that came."""
        self._check_works()
        transfer.converts = True
        landed = 0
        with _Breaking(self):
            for batch in range(transfer.plan.num_batches):
                deadline = Deadline(self.timeout)
                agreed = self._agreed.get((id(transfer.plan), batch))
                moves: dict[int, Moves] = {}
                if agreed is None or agreed.standing is None or agreed.standing != transfer.standing:
                    moves, inside = self._collect(transfer, batch)
                    agreed = self._agree_on(transfer, batch, moves, inside, deadline)
                landed = max(landed, self._run(moves, agreed, version, deadline))
                for own in agreed.own:
                    _copy(f"parameter {own.label!r}", own.to, own.source, own.comes)
                transfer.finish()
        self._last = max(self._last, version, landed)
        return landed

    def _collect(self, transfer: Transfer, batch: int) -> tuple[dict[int, Moves], list[_Own]]:
        """The moves of a batch with each other rank, and those within this one."""
        moves: dict[int, Moves] = {}
        own: tuple[list[SendOp], list[RecvOp]] = ([], [])
        labels: dict[int | None, str] = {}
        comes: dict[int, torch.dtype] = {}  # of receives within this rank, by their tensors

        def send(tensor: torch.Tensor, op: TransferOp, stays: bool) -> None:
            self._check(tensor, op.peer_rank)
            if op.peer_rank == self.rank:
                labels[op.task_id] = op.param_name
                own[0].append(SendOp(op.task_id, tensor, op.peer_rank))
            else:
                moves.setdefault(op.peer_rank, Moves(self.rank, op.peer_rank)).add(True, op.task_id, Pending(tensor, stays, op.param_name))

        def recv(tensor: torch.Tensor, op: TransferOp, stays: bool) -> None:
            self._check(tensor, op.peer_rank)
            converted = not transfer.transforms(op.param_name) and transfer.wire(op, tensor) != tensor.dtype
            source = transfer.wire(op, tensor) if converted else None
            if op.peer_rank == self.rank:
                own[1].append(RecvOp(op.task_id, tensor, op.peer_rank))
                comes[id(tensor)] = source or tensor.dtype
            else:
                moves.setdefault(op.peer_rank, Moves(self.rank, op.peer_rank)).add(False, op.task_id, Pending(tensor, stays, op.param_name, source))

        transfer.submit(batch, send, recv)
        pairs = match_local_ops(*own, self.rank)
        return moves, [_Own(one.tensor, other.tensor, labels[one.task_id], comes[id(other.tensor)]) for one, other in pairs]

    def _agree_on(
        self, transfer: Transfer, batch: int, moves: dict[int, Moves], own: list[_Own], deadline: Deadline
    ) -> _Agreed:
        """What was agreed on for a batch. At its first run the ranks agree."""
        key = (id(transfer.plan), batch)
        if key not in self._agreed:
            receives = {rank for rank, one in moves.items() if any(not one.is_send(key) for key in one.found)}
            self._agreed[key] = _Agreed(transfer.plan, {}, own, receives)  # also where it fails: the links are to be closed
            self._make_links(self._agreed[key].links, moves, deadline)
        agreed = self._agreed[key]
        agreed.own, agreed.standing = own, None
        self._check_links(agreed.links, moves)
        if transfer.stays and not any(link.single for link in agreed.links.values()):
            agreed.standing = transfer.standing
        return agreed

    def _check_links(self, links: dict[int, _Link], moves: dict[int, Moves]) -> None:
        """Refuses moves that were not agreed on."""
        for rank, one in moves.items():
            if rank not in links or one.keys != links[rank].keys:
                raise InvalidError(f"reshard: the plan moves other tensors with rank {rank} than when it was agreed on: call forget of the service at every rank before the run")
            for move, bound in links[rank].planned.items():
                pending = one.found[move]
                if _Bound.of(pending.tensor) != bound:
                    raise InvalidError(
                        f"reshard: parameter {pending.label!r}: its memory is not where it was when the plan was agreed on: "
                        "call forget of the service at every rank before the run, and leave the tensors where they are afterwards"
                    )

    def _make_links(self, links: dict[int, _Link], moves: dict[int, Moves], deadline: Deadline) -> None:
        agreed = self._agree(moves, deadline)
        # Each rank goes through its pairs in the order that all have, so none waits in a circle.
        for rank in sorted(moves, key=lambda rank: (min(rank, self.rank), max(rank, self.rank))):
            one, (said, attempt) = moves[rank], agreed[rank]
            keys = one.keys
            theirs = dict(zip(keys, said, strict=True))
            planned = [key for key in keys if theirs[key].stays and one.found[key].stays and one.found[key].tensor.numel() > 0]
            plan = None
            if planned:
                sides: tuple[list[Move], list[Move]] = ([], [])
                for number, key in enumerate(planned):
                    sides[not one.is_send(key)].append(Move(number, rank, one.found[key].tensor, one.found[key].label, theirs[key].wire))
                low, high = sorted((rank, self.rank))
                plan = self._peers.plan(f"reshard {self.name} {low}-{high} {attempt}", *sides, deadline)
            in_plan = set(planned)
            links[rank] = _Link(keys, {key: _Bound.of(one.found[key].tensor) for key in planned}, [key for key in keys if key not in in_plan], plan)
        logger.info("reshard: service %s has agreed with %d ranks", self.name, len(links))

    def _run(self, moves: dict[int, Moves], agreed: _Agreed, version: int, deadline: Deadline) -> int:
        """Runs what was agreed on, and returns the version that has come."""
        plans = [(rank, link.plan) for rank, link in agreed.links.items() if link.plan is not None]
        handles = [(rank, plan.run(version or None)) for rank, plan in plans]
        single = {rank: (moves[rank], link.single) for rank, link in agreed.links.items() if link.single}
        came = self._versions(single, version, deadline)
        self._single(single, deadline)
        wait_all(handles, deadline)
        came.update((rank, int(plan.version)) for rank, plan in plans if rank in agreed.receives)
        versions = {one for one in came.values() if one}
        if len(versions) > 1:
            raise InvalidError(f"reshard: ranks run other versions (got {came}, by rank): run the same version at every rank")
        return versions.pop() if versions else 0

    def _versions(self, single: dict[int, tuple[Moves, list[Key]]], version: int, deadline: Deadline) -> dict[int, int]:
        """Tells the receivers of single transfers the version, and hears that of their senders."""
        handles, heard = [], {}
        for rank, (one, keys) in single.items():
            if any(not one.is_send(key) for key in keys):
                heard[rank] = torch.zeros(1, dtype=torch.int64)
                handles.append((rank, self._peers.recv(heard[rank], rank, self._tag, deadline)))
        for rank, (one, keys) in single.items():
            if any(one.is_send(key) for key in keys):
                handles.append((rank, self._peers.send(torch.tensor([version], dtype=torch.int64), rank, self._tag, deadline)))
        wait_all(handles, deadline)
        came = {rank: int(one[0]) for rank, one in heard.items()}
        for rank, theirs in came.items():
            if version and theirs not in (0, version):
                raise InvalidError(f"reshard: rank {rank} runs another version (got {theirs}, want {version}): run the same version at every rank")
        return came

    # ------------------------------------------------------------------------------------------------ between two ranks

    def _single(self, moves: dict[int, tuple[Moves, list[Key]]], deadline: Deadline) -> None:
        """Transfers tensors one by one. Both sides have the same order, and a limit for what is outstanding."""
        # A tensor without elements does not travel.
        lists = {rank: (one, [key for key in keys if one.found[key].tensor.numel() > 0]) for rank, (one, keys) in moves.items()}
        longest = max((len(keys) for _, keys in lists.values()), default=0)
        for first in range(0, longest, _WINDOW):
            handles = []
            converted = []
            for sends in (False, True):
                for rank, (one, keys) in lists.items():
                    for key in keys[first : first + _WINDOW]:
                        if one.is_send(key) == sends:
                            begin, tensor = self._peers.send if sends else self._peers.recv, one.found[key].tensor
                            if not sends and one.found[key].comes != tensor.dtype:
                                converted.append((tensor, torch.empty(tensor.shape, dtype=one.found[key].comes)))
                                tensor = converted[-1][1]
                            handles.append((rank, begin(tensor, rank, self._tag, deadline)))
            wait_all(handles, deadline)
            for to, came in converted:
                to.copy_(came)

    def _agree(self, moves: dict[int, Moves], deadline: Deadline) -> dict[int, tuple[list[Agreed], int]]:
        """Compares what both sides of each pair move.

        The result has what each rank says of each move, and a number for the agreement.
        Where something does not fit, both sides know it before anything has moved.
        """
        self._attempts += 1
        manifests = {rank: one.manifest() for rank, one in moves.items()}
        heads = self._swap({rank: (moves[rank].head(manifest, self._attempts), HEAD_BYTES) for rank, manifest in manifests.items()}, deadline)
        found = {rank: moves[rank].read_head(head) for rank, head in heads.items()}
        bodies = self._swap({rank: (manifests[rank], found[rank][0]) for rank in moves}, deadline)
        error: InvalidError | None = None
        agreed = {}
        for rank, body in bodies.items():
            try:
                agreed[rank] = (moves[rank].compare(body), max(self._attempts, found[rank][1]))
            except InvalidError as failed:
                error = error or failed
        verdicts = self._swap({rank: (bytes([error is not None]), 1) for rank in moves}, deadline)
        if error is not None:
            raise error
        for rank, verdict in verdicts.items():
            if verdict != b"\0":
                raise InvalidError(f"reshard: rank {rank} has found that its moves with another rank do not fit: see its error")
        return agreed

    def _swap(self, mine: dict[int, tuple[bytes, int]], deadline: Deadline) -> dict[int, bytes]:
        """Sends bytes to ranks, and receives so many of each."""
        into = {rank: torch.zeros(size, dtype=torch.uint8) for rank, (_, size) in mine.items()}
        handles = [(rank, self._peers.recv(one, rank, self._tag, deadline)) for rank, one in into.items() if one.numel()]
        for rank, (data, _) in mine.items():
            if data:
                handles.append((rank, self._peers.send(torch.frombuffer(bytearray(data), dtype=torch.uint8), rank, self._tag, deadline)))
        wait_all(handles, deadline)
        return {rank: one.numpy().tobytes() for rank, one in into.items()}


class _Breaking:
    """Breaks the service when what is within fails. A peer may then be anywhere in the run."""

    def __init__(self, service: StepvanCopyService) -> None:
        self._service = service

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if error is not None:
            self._service._break(str(error) or type(error).__name__)


def _copy(what: str, to: torch.Tensor, source: torch.Tensor, comes: torch.dtype) -> None:
    """A move within this rank. comes: what the type of the source is to be."""
    if to.numel() != source.numel() or comes != source.dtype:
        raise InvalidError(
            f"reshard: {what}: both sides differ (got {source.dtype}{list(source.shape)} to {to.dtype}{list(to.shape)}): "
            "give both the same type and as many elements"
        )
    to.copy_(source.reshape(to.shape))


def _register() -> None:
    """Makes the class a CopyService of Megatron-core, where that can be imported."""
    module = sys.modules.get(_megatron_base)
    try:
        if module is None and importlib.util.find_spec("megatron.core") is not None:
            module = importlib.import_module(_megatron_base)
    except Exception as error:  # it needs packages or devices that are not there
        logger.debug("reshard: Megatron-core cannot be imported: %s", error)
    if module is not None:
        module.CopyService.register(StepvanCopyService)
