"""Rosters: what a rank tells the planner. Package reshard of the library reads them, and has the encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from stepvan._errors import InvalidError
from stepvan.resharding import _dtypes

if TYPE_CHECKING:
    from stepvan.resharding.utils import ParameterMetadata

_ROSTER = 0xD8
_VERSION = 1
_BUFFER, _DIVIDED, _EXPERT, _INDEXED = 1, 2, 4, 8
_WHOLE, _PARALLEL, _SPANS = 0 << 4, 1 << 4, 3 << 4

MAX_RANK = 8  # dimensions of a tensor

Ranks = Sequence[int] | None


class Entry(NamedTuple):
    """A tensor in a roster."""

    name: str
    resolved: str
    groups: tuple[Ranks, Ranks, Ranks]  # tensor, data and expert parallel
    form: bytes


class _Varints(bytearray):
    """Bytes that end with numbers."""

    def add(self, number: int) -> None:
        if number < 0:
            raise InvalidError(f"reshard: a number is negative (got {number}, want 0 or more): check ranks, offsets and shapes")
        while number > 127:
            self.append(number & 127 | 128)
            number >>= 7
        self.append(number)

    def add_all(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.add(number)


def _shape(shape: Sequence[int]) -> bytes:
    if len(shape) > MAX_RANK:
        raise InvalidError(f"reshard: a tensor has too many dimensions (got {len(shape)}, want at most {MAX_RANK}): reshape it")
    b = _Varints([len(shape)])
    b.add_all(shape)
    return bytes(b)


def of_metadata(meta: ParameterMetadata) -> Entry:
    """A tensor with the attributes of Megatron-core."""
    flags = _PARALLEL
    for is_set, flag in ((meta.is_buffer, _BUFFER), (meta.is_tp, _DIVIDED), (meta.is_ep, _EXPERT), (meta.global_expert_index is not None, _INDEXED)):
        flags |= flag if is_set else 0
    b = _Varints([_dtypes.code(meta.name, meta.dtype), flags])
    b += _shape(meta.shape)
    sizes = meta.partition_sizes or []
    b.add_all([meta.partition_dim, meta.partition_stride, meta.num_experts or 0, len(sizes), *sizes])
    groups = (meta.tensor_parallel_group_ranks, meta.data_parallel_group_ranks, meta.expert_parallel_group_ranks)
    return Entry(meta.name, meta.name if meta.resolved_name is None else meta.resolved_name, groups, bytes(b))


def of_part(name: str, dtype: int, local: Sequence[int], part: bytes | None) -> Entry:
    """A tensor of which a rank has a part, as a stepvan.Part encodes it. None: it has the whole."""
    form = bytes([dtype, _WHOLE if part is None else _SPANS]) + _shape(local) + (part or b"")
    return Entry(name, name, (None, None, None), form)


def _numbering() -> tuple[dict[bytes, int], list[bytes], Callable[[bytes], int]]:
    """Numbers for byte strings, those that are equal having the same."""
    numbers: dict[bytes, int] = {}
    parts: list[bytes] = []

    def number(of: bytes) -> int:
        if of not in numbers:
            numbers[of] = len(numbers)
            parts.append(of)
        return numbers[of]

    return numbers, parts, number


def encode(rank: int, sources: Sequence[Entry], destinations: Sequence[Entry]) -> bytes:
    """The roster of a rank."""
    lists, list_parts, number_of_list = _numbering()
    forms, form_parts, number_of_form = _numbering()
    known: dict[int, int] = {}  # the numbers of lists, by id: parameters share them

    def group(ranks: Ranks) -> int:
        if ranks is None:
            return 0
        if id(ranks) not in known:
            b = _Varints()
            b.add_all([len(ranks), *ranks])
            known[id(ranks)] = number_of_list(bytes(b)) + 1
        return known[id(ranks)]

    def form(entry: Entry) -> int:
        b = _Varints()
        b.add_all(map(group, entry.groups))
        return number_of_form(bytes(b) + entry.form)

    sides = [_side(entries, form) for entries in (sources, destinations)]
    out = _Varints([_ROSTER, _VERSION])
    out.add(rank)
    out.add(len(lists))
    out += b"".join(list_parts)
    out.add(len(forms))
    for part in form_parts:
        out.add(len(part))
        out += part
    for side in sides:
        out += side
    return bytes(out)


def _side(entries: Sequence[Entry], form: Callable[[Entry], int]) -> bytes:
    b = _Varints()
    b.add(len(entries))
    _names(b, [entry.name for entry in entries])
    if all(entry.name == entry.resolved for entry in entries):
        b.append(0)
    else:
        _names(b, [entry.resolved for entry in entries])
    b.add_all(map(form, entries))
    return bytes(b)


def _names(to: _Varints, names: list[str]) -> None:
    """Names, of which each shares its beginning with the one before."""
    b = _Varints()
    before = b""
    for name in names:
        text = name.encode()
        shared = _shared(before, text)
        b.add(shared)
        b.add(len(text) - shared)
        b += text[shared:]
        before = text
    to.add(len(b))
    to += b


def _shared(a: bytes, b: bytes) -> int:
    """How many bytes both have in common at the beginning."""
    most = min(len(a), len(b))
    if a[:most] == b[:most]:
        return most
    low, high = 0, most  # a[:low] == b[:low], and a[:high] != b[:high]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if a[:middle] == b[:middle] else (low, middle)
    return low
