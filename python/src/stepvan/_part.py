"""What one process has of a tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stepvan import _core
from stepvan._errors import InvalidError, cut


class Part:
    """What one process has of a tensor that several have together. Make it with one of the class methods.

    shape: the shape of the whole tensor.
    local: the shape of the part.
    """

    __slots__ = ("_encoded", "local", "shape")

    shape: tuple[int, ...]
    local: tuple[int, ...]

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded
        self.shape, self.local = _core.part_shape(encoded)

    @classmethod
    def shard(cls, shape: Iterable[int], dim: int, index: int, count: int) -> Part:
        """Shard ``index`` of ``count`` along a dimension, as ``torch.chunk`` divides it.

        The last shards may be smaller, or empty.
        """
        return cls.mesh(shape, [count], [("shard", dim)], index)

    @classmethod
    def spans(cls, shape: Iterable[int], *lists: Iterable[Sequence[int]]) -> Part:
        """For each dimension the ranges (start, stop) of the whole that the part has, one after another.

        A range (start, stop, local) lies at ``local`` in the part.
        """
        spans: list[tuple[int, int, int]] = []
        counts = []
        for i, ranges in enumerate(lists):
            at = 0
            try:
                listed = [tuple(one) for one in ranges]
            except TypeError:
                raise InvalidError(f"lists[{i}] is {cut(ranges)}: it must be a list of (start, stop)") from None
            for one in listed:
                if not 2 <= len(one) <= 3:
                    raise InvalidError(f"lists[{i}] has {cut(one)}: it must be (start, stop) or (start, stop, local)")
                local = one[2] if len(one) == 3 else at
                spans.append((one[0], one[1], local))
                at = local + one[1] - one[0]
            counts.append(len(listed))
        return cls(_core.part_of_spans(shape, spans, counts))

    @classmethod
    def mesh(cls, shape: Iterable[int], mesh: Sequence[int], placements: Sequence[Any], index: int) -> Part:
        """The part of an index of a mesh, as torch.distributed.tensor divides it.

        mesh: its sizes; in ``index`` the last dimension counts fastest.
        placements: one for each dimension of the mesh: "replicate", ("shard", dim), ("strided shard", dim, split_factor), or
            the placements of torch.
        """
        return cls(_core.part_of_mesh(shape, mesh, [_placement(p) for p in placements], index))

    @classmethod
    def partition(
        cls, shape: Iterable[int], dim: int, rank: int, world: int, stride: int = 1, sizes: Sequence[int] = ()
    ) -> Part:
        """The part of a rank of a tensor parallel group, by the attributes that Megatron gives a parameter.

        dim, stride, sizes: partition_dim, partition_stride and partition_sizes.
        """
        return cls(_core.part_of_partition(shape, (dim, stride, world, 0, 1), sizes, rank))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Part) and self._encoded == other._encoded

    def __hash__(self) -> int:
        return hash(self._encoded)

    def __repr__(self) -> str:
        return f"<stepvan.Part: {list(self.local)} of {list(self.shape)}>"


_kinds = {"replicate": (0, 1), "shard": (1, 2), "strided shard": (2, 3)}


def _placement(p: Any) -> tuple[int, int, int]:
    """(kind, dimension, factor) of a placement."""
    if hasattr(p, "is_partial"):
        return _placement_of_torch(p)
    words: tuple[Any, ...] = (p,) if isinstance(p, str) else tuple(p) if isinstance(p, tuple | list) else ()
    if words and isinstance(words[0], str) and words[0] in _kinds:
        kind, length = _kinds[words[0]]
        if len(words) == length:
            return (kind, *words[1:], *(0,) * (3 - length))
    raise InvalidError(f"placements has {cut(p)}: it must be 'replicate', ('shard', dim), ('strided shard', dim, factor), or one of torch")


def _placement_of_torch(p: Any) -> tuple[int, int, int]:
    if p.is_partial():
        raise InvalidError(f"the placement {cut(p)} has parts that are still to be added up: call .redistribute() first")
    if p.is_replicate():
        return 0, 0, 0
    factor = getattr(p, "split_factor", None)
    if type(p).__name__ not in ("Shard", "_StridedShard"):
        raise InvalidError(f"the placement {cut(p)} is not known: it must be Shard or Replicate")
    return (1, p.dim, 0) if factor is None else (2, p.dim, factor)


class Parts:
    """The parts of DTensors. Most tensors of a model share theirs."""

    def __init__(self) -> None:
        self._known: dict[Any, bytes | None] = {}

    def of(self, name: str, tensor: Any) -> bytes | None:
        """What this process has of a DTensor, encoded; None for nothing."""
        mesh = tensor.device_mesh
        key = (id(mesh), tensor.placements, tensor.shape)
        if key not in self._known:
            try:
                self._known[key] = self._read(mesh, tensor)
            except InvalidError as error:
                raise InvalidError(f"{name}: {error}") from None
        return self._known[key]

    def _read(self, mesh: Any, tensor: Any) -> bytes | None:
        coordinate = mesh.get_coordinate()
        if coordinate is None:
            return None
        sizes = tuple(mesh.mesh.shape)
        index = 0
        for size, at in zip(sizes, coordinate, strict=True):
            index = index * size + at
        rows = [_placement(p) for p in tensor.placements]
        ndim = len(tensor.shape)
        rows = [(kind, dim + ndim if dim < 0 else dim, factor) for kind, dim, factor in rows]
        return _core.part_of_mesh(tuple(tensor.shape), sizes, rows, index)
