"""The side of a peer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stepvan import _core
from stepvan._errors import InvalidError
from stepvan._group import Group
from stepvan._local import Local
from stepvan._mail import Mailbox, Window
from stepvan._plan import Move, Plan, match, plan
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

    def mail(self, to: int, topic: str, body: bytes) -> None:
        """Sends a small message to a peer, which may be this one. It never blocks.

        topic: text of at most 128 bytes. body: at most 64 KiB. Messages to one peer arrive in order, and wait until
        somebody listens to their topic. WouldBlockError: the peer has not received 4,096 earlier ones, or has
        64 MiB of unread ones.
        """
        _core.mail(self._at, to, topic, body)

    def listen(self, topic: str) -> Mailbox:
        """The messages on a topic, also those that wait. A topic has one Mailbox at a time."""
        return Mailbox(self, _core.listen(self._at, topic))

    def expose(
        self, x: Any, write: bool = False, peers: Iterable[int] | None = None, on_note: Callable[[int, bytes], object] | bool | None = None
    ) -> Window:
        """Lets other peers read a tensor by themselves, with ``get``, and write it with ``put``.

        write: whether they may write.
        peers: the ranks that may; None for all.
        on_note: is called with rank and bytes of the note of each ``put``, on a thread of its own. True: ``Window.notes`` has them.

        stepvan keeps the tensor alive until ``Window.close``. The program must not resize or move it until then.
        """
        return Window(self, x, write, () if peers is None else peers, on_note)

    def get(self, y: Any, token: bytes, at: Sequence[int] | None = None) -> Handle:
        """Copies a part of a window of another peer to a tensor. It never blocks.

        The part has the shape of y, and begins at element ``at``, by default the first. The program of the other peer takes
        no part. Errors, also of the handle: InvalidError, StaleError or RemoteError (the window was closed, does not admit
        this peer, or may only be read), WouldBlockError, PeerLostError.
        """
        return Handle(self, _core.get(self._at, y, token, at))

    def put(self, x: Any, token: bytes, at: Sequence[int] | None = None, note: bytes | None = None) -> Handle:
        """Copies a tensor to a part of a window of another peer: see ``get``.

        The handle ends when the elements are there. The other peer then gets the note, of at most 64 KiB.
        """
        return Handle(self, _core.put(self._at, x, token, at, note))

    def put_rows(self, x: Any, rows: Any, token: bytes, at: Sequence[int] | None = None, note: bytes | None = None) -> Handle:
        """``put`` of rows of a matrix, which are picked on their way: row i of the part is row ``rows[i]`` of x.

        rows: a tensor or an array of int64 on the CPU. Where this process sees the window, the rows are copied once.
        InvalidError also: a number is not that of a row, or the elements of a row are not contiguous.
        """
        numbers = rows.numpy() if hasattr(rows, "numpy") else rows
        if str(numbers.dtype) != "int64" or numbers.ndim != 1:
            raise InvalidError(f"put rows: rows: not numbers of rows (got {list(numbers.shape)} of {numbers.dtype}): give one dimension of int64")
        return Handle(self, _core.put_rows(self._at, x, numbers.tobytes(), token, at, note))

    def plan(
        self,
        name: str,
        sends: Iterable[Move | tuple[Any, ...]] = (),
        recvs: Iterable[Move | tuple[Any, ...]] = (),
        timeout: float | None = None,
        *,
        replicas: bool = False,
    ) -> Plan:
        """Agrees with the peers on moves of tensors that are made again and again. See Plan.

        All peers that the moves name call it with the same name, each with its own side of the moves. It waits until
        they have agreed, ``timeout`` seconds at most.

        sends, recvs: each a Move, or a tuple (id, peer, tensor) or (id, peer, tensor, label). The two sides of a move
            have the same id. A tensor may have any strides; two tensors of recvs have no element in common. Of a DTensor
            its local part is moved.
        replicas: the receivers of the same elements pass them on to each other, so that each network link carries one
            copy. Sends are replicas when they have the same tensor, and go to different peers on other machines. All
            peers of the plan say the same. The handle of a receiver that passes elements on ends when it has passed on
            all of them.

        Errors: InvalidError names the first move that does not fit, with what both sides have; nothing is left of the
        plan then. ExpiredError: the peer ``subject`` did not take part. RemoteError: another peer gave up. BusyError: this
        peer has a plan of that name. PeerLostError.
        """
        return plan(self, name, sends, recvs, timeout, replicas)

    def match(
        self,
        name: str,
        send: Mapping[str, Any] | None = None,
        recv: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        *,
        ranks: Iterable[int] | None = None,
        replicas: bool = False,
    ) -> Plan:
        """A plan that moves tensors to the tensors of their names, whatever part each process has. See Plan.

        All peers call it with the same name. Each gives the tensors that it sends, and those that it receives; a trainer
        gives the first, and inference the second.

        send, recv: dicts of tensors by name, such as state dicts. A value is a tensor, which is whole; a DTensor, whose mesh
            and placements say what this process has of it; or a tensor and its Part.
        ranks: the peers that take part, in the same order at all of them; by default all of the cluster.
        replicas: as for ``plan``.

        Tensors of one name have the same type and whole shape everywhere. What is sent and not received stays where it is.
        Errors are those of ``plan``. InvalidError: a tensor is received and not sent as a whole, or differs between peers;
        other peers get RemoteError.
        """
        return match(self, name, send, recv, timeout, range(self.size) if ranks is None else ranks, replicas)

    def group(self, ranks: Iterable[int], name: str | None = None) -> Group:
        """A group of peers, which do the same things together. See Group.

        All members call it with the same ranks in the same order, and the same name. Without a name the ranks are it.
        Two groups with a member in common and with one name are not used at the same time. Nothing is sent.
        A peer remembers the name of a group with its ranks, and has at most 65,536 of them: use names again, or call
        ``forget`` of the group.
        """
        return Group(self, ranks, name)
