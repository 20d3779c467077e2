"""Groups of peers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Literal

from stepvan import _core
from stepvan._errors import Error, InvalidError, cut
from stepvan._local import Local
from stepvan._worker import Handle

if TYPE_CHECKING:
    from stepvan._peering import Peering


Merge = Literal["sum", "avg", "max", "min", "product"]
_merges = {"sum": 1, "avg": 2, "max": 3, "min": 4, "product": 5}


def merge_number(what: str, merge: object) -> int:
    """The number of a merge in C."""
    number = _merges.get(merge) if isinstance(merge, str) else None
    if number is None:
        raise InvalidError(f"{what} is {cut(merge)}: it must be 'sum', 'avg', 'max', 'min' or 'product'")
    return number


class Gathering(Local):
    """An all-gather that ``Group.begin_all_gather`` began. ``await gathering`` gives the result."""

    __slots__ = ("_group", "_handle")

    def __init__(self, group: Group, handle: Handle) -> None:
        self._group = group
        self._handle = handle

    def wait(self, timeout: float | None = None) -> None:
        """Waits until all members have given their bytes: see ``Handle.wait``."""
        self._handle.wait(timeout)

    def done(self) -> bool:
        """Whether ``wait`` would return at once."""
        return self._handle.done()

    def result(self, timeout: float | None = None) -> list[bytes]:
        """Waits until all members have given their bytes, and returns them by member.

        They can be read until four later operations of the group have begun.
        """
        self.wait(timeout)
        return _core.gathered(self._group._peer._at, int(self._handle), len(self._group.ranks))

    def __await__(self) -> Generator[Any, None, list[bytes]]:
        yield from self._handle.__await__()
        return self.result(0)


class Group(Local):
    """Some peers that do the same things together, in the same order: the result of ``node.peer.group``.

    One thread or task at a time uses it. An operation waits for all members. When a member dies or an operation fails,
    the operations of all members raise an error that names it, and the group can only be closed.

    ranks, name: its members, and its name.
    index: the place of this peer among the members.
    """

    def __init__(self, peer: Peering, ranks: Iterable[int], name: str | None) -> None:
        try:
            self.ranks = tuple(ranks)
        except TypeError:
            raise InvalidError(f"ranks is {cut(ranks)}: it must be a list of ranks") from None
        self.name = ",".join(map(str, self.ranks)) if name is None else name
        self._peer = peer
        self._number = _core.group(peer._at, self.name, self.ranks)
        self._closer = weakref.finalize(self, _close, self._number)
        self.index = self.ranks.index(peer.rank)
        self._waiting: tuple[object, Handle | Gathering, object] | None = None

    ranks: tuple[int, ...]
    name: str
    index: int

    def begin_barrier(self) -> Handle:
        """Begins a barrier: the handle ends when all members have begun it."""
        return Handle(self._peer, _core.group_barrier(self._number))

    def barrier(self, timeout: float | None = None) -> None:
        """Waits until all members have called it. After TimeoutError the next call continues this barrier."""
        handle = self._take("barrier") or self.begin_barrier()
        self._wait("barrier", handle, timeout)

    def begin_all_gather(self, data: Any) -> Gathering:
        """Begins an all-gather: see ``all_gather``."""
        return Gathering(self, Handle(self._peer, _core.group_all_gather(self._number, _bytes(data))))

    def all_gather(self, data: Any, timeout: float | None = None) -> list[bytes]:
        """Gives each member the bytes of all, by member.

        data: bytes, or an object with their buffer, of any size; it may differ between the members.

        After TimeoutError the next call with the same bytes continues.
        """
        mine = _bytes(data)
        gathering = self._take(mine)
        if not isinstance(gathering, Gathering):
            gathering = self.begin_all_gather(mine)
        self._wait(mine, gathering, timeout)
        return gathering.result(0)

    def begin_broadcast(self, x: Any, root: int = 0) -> Handle:
        """Begins a broadcast: see ``broadcast``."""
        return Handle(self._peer, _core.group_broadcast(self._number, x, root, root != self.index))

    def broadcast(self, x: Any, root: int = 0, timeout: float | None = None) -> None:
        """Copies the elements of the tensor of one member to those of all others.

        x: a tensor with any strides. All have one type and one number of elements, and their shapes a common division.
        root: the index of the member in ``ranks``.

        The tensor is in use until the operation has ended. After TimeoutError the next call with the same tensor
        continues. InvalidError, at all members: the tensors or the roots differ; the group can then only be closed.
        """
        what = ("broadcast", id(x), root)
        self._wait(what, self._take(what) or self.begin_broadcast(x, root), timeout, x)

    def begin_reduce(self, x: Any, into: Any = None, root: int = 0, op: Merge = "sum") -> Handle:
        """Begins a reduction: see ``reduce``."""
        merge = merge_number("op", op)
        if root == self.index and into is None:
            raise InvalidError("into is None: member root must give a tensor for the result")
        return Handle(self._peer, _core.group_reduce(self._number, x, into if root == self.index else None, merge, root))

    def reduce(self, x: Any, into: Any = None, root: int = 0, op: Merge = "sum", timeout: float | None = None) -> None:
        """Merges the elements of the tensors of all members into another tensor of one member.

        x, root: as for ``broadcast``. The elements are merged in the order of the members, so the bits are the same
            each time.
        into: where the result arrives at member root, of the type and size of x. The other members may leave it out.
        op: "sum", "avg" (of floats), "max", "min" or "product".
        """
        what = ("reduce", id(x), id(into), root, op)
        self._wait(what, self._take(what) or self.begin_reduce(x, into, root, op), timeout, (x, into))

    def _take(self, what: object) -> Handle | Gathering | None:
        """The operation that a call has not waited for to its end, if it is this one."""
        if self._waiting is None or self._waiting[0] != what:
            return None
        handle, self._waiting = self._waiting[1], None
        return handle

    def _wait(self, what: object, handle: Handle | Gathering, timeout: float | None, tensors: object = None) -> None:
        self._waiting = (what, handle, tensors)  # the tensors, so that no other object gets their identity
        try:
            handle.wait(timeout)
        finally:
            if handle.done():
                self._waiting = None

    def close(self) -> None:
        """Ends the group at this peer. An operation that has not ended fails, here and at the other members."""
        self._closer()

    def forget(self) -> None:
        """Ends the group as ``close`` does, and this peer no longer remembers its name.

        It is for names that no member uses again, such as those that are drawn by chance.
        """
        if self._closer.detach() is not None:
            _end(_core.group_forget, self._number)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<stepvan.Group: {self.name}>"


def _bytes(data: Any) -> bytes:
    if isinstance(data, bytes):
        return data
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise InvalidError(f"data is {cut(data)}: it must be bytes") from None


def _close(number: int) -> None:
    _end(_core.group_close, number)


def _end(how: Callable[[int], None], number: int) -> None:
    try:
        how(number)
    except Error:  # it ended with its node, or in a forked child
        pass
