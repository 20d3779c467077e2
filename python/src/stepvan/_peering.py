"""The side of a peer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepvan import _core
from stepvan._local import Local

if TYPE_CHECKING:
    from stepvan._node import Node


class Peering(Local):
    """What a node with the role "peer" does with the other peers: ``node.peer``.

    rank, size: its rank among the peers, and how many peers the cluster has.
    """

    def __init__(self, node: Node) -> None:
        self.rank, self.size = _core.peer_info(node.number)

    rank: int
    size: int
