"""Sums of what several peers compute, by small transfers between them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    import stepvan

TAG = 1
TIMEOUT = 60  # seconds; a peer that died is known long before, and one that is stopped is not


def in_order(summands: Iterable[Tensor]) -> Tensor:
    """The sum from the first to the last. Another order may give other bits."""
    return reduce(torch.add, summands)


class Sums:
    """Sums of tensors of at most ``rows`` rows, of this peer and others. All call the same methods in the same order.

    The summands are added by rank, so that all peers have the same bits. One thread at a time uses it.

    ranks: the ranks of the peers, this one among them.
    """

    def __init__(self, node: stepvan.Node, ranks: Iterable[int], rows: int, width: int) -> None:
        self.peer = node.peer
        # The others write their summands there: memory of the node is reached without another copy.
        self.summands = {rank: node.empty((rows, width), torch.float32) for rank in ranks}

    def add(self, mine: Tensor) -> Tensor:
        """The sum of ``mine`` and the others' tensors, which have the same shape."""
        me, rows = self.peer.rank, len(mine)
        summands = {rank: mine if rank == me else place[:rows] for rank, place in self.summands.items()}
        transfers = []
        for rank, place in summands.items():
            if rank != me:
                transfers += [self.peer.recv(place, rank, TAG), self.peer.send(mine, rank, TAG)]
        for transfer in transfers:
            transfer.wait(TIMEOUT)
        return in_order(summands.values())

    def differentiable(self, mine: Tensor) -> Tensor:
        """``add`` in a forward pass with gradients: that of the sum is the gradient of every summand."""
        return _Sum.apply(mine, self)

    def enter(self, x: Tensor) -> Tensor:
        """``x`` itself, which all ranks have and each uses in its own way: its gradient is the sum of all ranks'."""
        return _Enter.apply(x, self)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, mine: Tensor, sums: Sums) -> Tensor:
        return sums.add(mine)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, sums: Sums) -> Tensor:
        context.sums = sums
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return context.sums.add(gradient), None
