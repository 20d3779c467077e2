"""What the service asks of ``node.peer``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from stepvan._errors import InvalidError, TimeoutError, WouldBlockError

_PAUSE = 0.0005  # seconds between two tries of what would block


class Move(NamedTuple):
    """One end of a move of a plan."""

    id: int
    peer: int
    tensor: torch.Tensor
    label: str
    wire: torch.dtype | None = None


class Deadline:
    """The time that a run has, in seconds; None: without end."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        return None if self._end is None else max(self._end - time.monotonic(), 0.001)

    @property
    def over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end


class Peers:
    """The other peers, as a node sees them."""

    def __init__(self, node: Any) -> None:
        peer = getattr(node, "peer", None)
        if peer is None:
            raise InvalidError("reshard: the node has no peers: start it with the role peer (DMLC_ROLE=peer)")
        self._peer: Any = peer
        self.rank, self.size = int(peer.rank), int(peer.size)

    def send(self, tensor: torch.Tensor, to: int, tag: int, deadline: Deadline) -> Any:
        """Begins to send a tensor, and returns its handle."""
        return self._begin(deadline, lambda: self._peer.send(tensor, to=to, tag=tag))

    def recv(self, tensor: torch.Tensor, source: int, tag: int, deadline: Deadline) -> Any:
        """Begins to receive a tensor, and returns its handle."""
        return self._begin(deadline, lambda: self._peer.recv(tensor, source=source, tag=tag))

    @staticmethod
    def _begin(deadline: Deadline, begin: Any) -> Any:
        while True:
            try:
                return begin()
            except WouldBlockError:
                if deadline.over:
                    raise
                time.sleep(_PAUSE)

    def plan(self, name: str, sends: Sequence[Move], recvs: Sequence[Move], deadline: Deadline) -> Any:
        """Agrees on a plan with the peers of the moves."""
        return self._peer.plan(name, sends=[tuple(move) for move in sends], recvs=[tuple(move) for move in recvs], timeout=deadline.left())


def wait_all(handles: Iterable[tuple[int, Any]], deadline: Deadline) -> None:
    """Waits for handles, each with the rank of its peer."""
    for rank, handle in handles:
        try:
            handle.wait(deadline.left())
        except TimeoutError:
            raise TimeoutError(f"reshard: rank {rank} has not taken part in time: run the same plan at every rank, or give the service a longer timeout") from None
