"""What the executor asks of a service that copies tensors between ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from stepvan._errors import InvalidError

if TYPE_CHECKING:
    from stepvan.resharding.transforms import ReshardTransform
    from stepvan.resharding.utils import ReshardPlan


@dataclass
class SendOp:
    """A send that was submitted."""

    task_id: int | None
    tensor: torch.Tensor
    dest_rank: int


@dataclass
class RecvOp:
    """A receive that was submitted."""

    task_id: int | None
    tensor: torch.Tensor
    src_rank: int


class CopyService(ABC):
    """Takes sends and receives, and executes them together.

    The executor takes any object with the three abstract methods. The attributes are optional there, and have these
    meanings. A send and a receive belong together if they name each other's rank, have the same ``task_id``, and as
    many of that id were submitted before.
    """

    requires_process_group_barrier = True
    """Whether ranks must wait for each other after ``run``."""

    supports_incremental_runs = True
    """Whether ``run`` may be called for each batch of a plan. If not, all batches are in one run."""

    accepts_strides = False
    """Whether tensors may have any strides. If not, the executor makes them contiguous."""

    @abstractmethod
    def submit_send(self, src_tensor: torch.Tensor, dest_rank: int, task_id: int | None = None) -> None:
        """Takes a send. The tensor is in use until ``run`` has returned."""

    @abstractmethod
    def submit_recv(self, dest_tensor: torch.Tensor, src_rank: int, task_id: int | None = None) -> None:
        """Takes a receive into a tensor, which is in use until ``run`` has returned."""

    @abstractmethod
    def run(self) -> None:
        """Executes what was submitted. Afterwards nothing is submitted, whether it has failed or not."""

    def set_plan(self, plan: ReshardPlan, transform: ReshardTransform | None = None) -> None:  # noqa: B027
        """Tells the service which plan the next calls belong to."""

    def execute_plan(
        self,
        plan: ReshardPlan,
        src_params: dict[str, torch.Tensor],
        dst_params: dict[str, torch.Tensor],
        transform: ReshardTransform | None = None,
    ) -> bool:
        """Executes a plan as a whole, with its writebacks. False: it does not, and the caller submits operations."""
        return False

    def close(self) -> None:  # noqa: B027
        """Releases what the service has."""


def match_local_ops(sends: Sequence[SendOp], recvs: Sequence[RecvOp], rank: int) -> list[tuple[SendOp, RecvOp]]:
    """Pairs the sends of a rank to itself with its receives from itself."""
    found: dict[Hashable, list[list[Any]]] = {}
    sides: tuple[Sequence[SendOp | RecvOp], ...] = (sends, recvs)
    for side, ops in enumerate(sides):
        for op in ops:
            if op.task_id is None:
                raise InvalidError(f"reshard: rank {rank}: {'a receive from' if side else 'a send to'} the rank itself has no task_id: give one to both sides")
            found.setdefault(op.task_id, [[], []])[side].append(op)
    for task, (mine, theirs) in found.items():
        if len(mine) != len(theirs):
            raise InvalidError(f"reshard: rank {rank}: task {task} does not match (got {len(mine)} sends to the rank itself and {len(theirs)} receives): submit as many of both")
    return [pair for mine, theirs in found.values() for pair in zip(mine, theirs, strict=True)]
