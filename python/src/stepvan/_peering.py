"""The side of a peer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from stepvan import _core
from stepvan._group import Group
from stepvan._local import Local
from stepvan._plan import Move, Plan
from stepvan._worker import Handle

if TYPE_CHECKING:
    from stepvan._node import Node


class Peering(Local):
    """What a node with the role "peer" does with the other peers: ``node.peer``. Any thread may call it.

    rank, size: its rank among the peers, and how many peers the cluster has.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._at = node.number
        self.rank, self.size = _core.peer_info(self._at)

    rank: int
    size: int

    def send(self, x: Any, to: int, tag: int = 0) -> Handle:
        """Sends a tensor to a peer, which may be this one. It never blocks.

        A ``send`` and the ``recv`` that names this peer and the same tag are one transfer. Those of two peers with one
        tag are matched in the order of the calls.

        x: a tensor in the memory of the CPU, with any strides: see Worker.push_pull. The program must not change it
            until the handle has ended, and stepvan keeps it alive until then.
        to: the rank of a peer.
        tag: a number below 2**63.

        A transfer of at most 16 KiB ends without its ``recv``. Errors: InvalidError, WouldBlockError (too much is
        outstanding: wait for a handle), PeerLostError, ClosedError. ``Handle.wait`` raises InvalidError where type or
        number of elements differ on the two sides.
        """
        return Handle(self, _core.send(self._at, x, to, tag))

    def recv(self, y: Any, source: int, tag: int = 0) -> Handle:
        """Receives the elements of a ``send`` into a tensor: see ``send``. It never blocks.

        The shapes of the two sides need a common division; equal ones have it. No two elements of y are in one place.
        """
        return Handle(self, _core.recv(self._at, y, source, tag))

    def cancel(self, handle: Handle) -> bool:
        """Takes a ``recv`` back that no ``send`` has met; its ``wait`` then raises ClosedError.

        False: the transfer has begun or ended.
        """
        return _core.cancel(self._at, int(handle))

    def plan(
        self,
        name: str,
        sends: Iterable[Move | tuple[Any, ...]] = (),
        recvs: Iterable[Move | tuple[Any, ...]] = (),
        timeout: float | None = None,
    ) -> Plan:
        """Agrees with the peers on moves of tensors that are made again and again. See Plan.

        All peers that the moves name call it with the same name, each with its own side of the moves. It waits until
        they have agreed, ``timeout`` seconds at most.

        sends, recvs: each a Move, or a tuple (id, peer, tensor) or (id, peer, tensor, label). The two sides of a move
            have the same id. A tensor may have any strides; two tensors of recvs have no element in common. Of a DTensor
            its local part is moved.

        Errors: InvalidError names the first move that does not fit, with what both sides have; nothing is left of the
        plan then. ExpiredError: the peer ``subject`` did not take part. RemoteError: another peer gave up. BusyError: this
        peer has a plan of that name. PeerLostError.
        """
        return Plan(self, name, sends, recvs, timeout)

    def group(self, ranks: Iterable[int], name: str | None = None) -> Group:
        """A group of peers, which do the same things together. See Group.

        All members call it with the same ranks in the same order, and the same name. Without a name the ranks are it.
        Two groups with a member in common and with one name are not used at the same time. Nothing is sent.
        """
        return Group(self, ranks, name)
