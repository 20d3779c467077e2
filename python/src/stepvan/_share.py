"""Moves tensors of torch into memory that other processes of the machine can reach."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from stepvan import _core
from stepvan._errors import InvalidError, calling, cut
from stepvan._frameworks import discover

_ALIGNMENT = 64  # bytes: blocks begin at such addresses, as memory of torch does
_FILES = 64  # how many files there are at most, apart from those with a single large storage
_LEAST_FILE = 256 << 20


class _Place(NamedTuple):
    """A tensor, and the addresses of its elements."""

    name: str  # "" for one that was not given
    tensor: Any
    start: int
    end: int

    def storage(self) -> Any:
        """The storage in torch, which holds the memory."""
        tensor = self.tensor
        return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor._storage()


class _Block(NamedTuple):
    """Memory that moves as one, from the first to the last byte of tensors that share it."""

    places: list[_Place]  # by start
    start: int
    size: int


class Files(NamedTuple):
    """Where shared memory comes from.

    allocate: makes a file of so many bytes, and gives memory that shows it.
    holds: whether bytes at an address lie in such a file.
    """

    allocate: Callable[[int], Any]
    holds: Callable[[int, int], bool]


def files_of(node: int) -> Files:
    """Those of a node."""

    def allocate(size: int) -> Any:
        with calling("share_", node):
            return _core.allocate(node, size, False, True)

    return Files(allocate, _core.in_own_file)


def share(what: Any, files: Files) -> None:
    """Moves the tensors of a module, a dict, a list, or one tensor. What is shared already stays where it is."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise _nothing(what)
    discover(False)
    # Subclasses, modes and defaults of the program have no say in what happens to memory.
    with torch._C.DisableTorchFunction(), torch.inference_mode(False):
        given = [place for name, tensor in _named(torch, what) if (place := _given(torch, name, tensor, files)) is not None]
        if given:
            for batch in _batches(_blocks(given, _living(torch, given))):
                _move(torch, batch, files)


def _nothing(what: Any) -> InvalidError:
    return InvalidError(f"share_: {cut(what)} has no tensors of torch: give a module, a dict or list of tensors, or a tensor")


def _named(torch: Any, what: Any) -> Iterator[tuple[str, Any]]:
    """The tensors to move, with names for messages. A wrapper, such as a DTensor, counts as its parts."""
    found = False
    for name, value in _items(torch, what):
        if isinstance(value, torch.Tensor):
            found = True
            yield from _parts(torch, name, value)
    if not found:
        raise _nothing(what)


def _items(torch: Any, what: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(what, torch.nn.Module):
        return [*what.named_parameters(), *what.named_buffers()]
    if isinstance(what, Mapping):
        return [(str(name), value) for name, value in what.items()]
    if isinstance(what, list | tuple):
        return [(f"[{i}]", value) for i, value in enumerate(what)]
    return [("the tensor", what)]


def _parts(torch: Any, name: str, tensor: Any) -> Iterator[tuple[str, Any]]:
    """The tensors that have the memory of one."""
    names: Iterable[str] = ()
    if hasattr(type(tensor), "__tensor_flatten__"):
        names = tensor.__tensor_flatten__()[0]
    elif type(tensor) is not torch.Tensor and hasattr(tensor, "_local_tensor"):  # the DTensor of torch 2.0
        names = ("_local_tensor",)
    if not names:
        yield name, tensor
    for part in names:
        yield from _parts(torch, f"{name}.{part}", getattr(tensor, part))


def _given(torch: Any, name: str, tensor: Any, files: Files) -> _Place | None:
    """Where a tensor lies that is to be moved; None when there is nothing to move."""
    _check(torch, name, tensor)
    place = _look(name, tensor)
    if place is None or files.holds(place.start, place.end - place.start):
        return None
    if tensor.is_shared():
        raise InvalidError(f"share_: {name}: torch shares its memory with other processes, which it would leave: do not call share_memory_() before")
    if place.start % tensor.element_size() != 0:
        raise InvalidError(f"share_: {name}: it begins between two elements: give a .clone() of it")
    return place


def _check(torch: Any, name: str, tensor: Any) -> None:
    if torch.nn.parameter.is_lazy(tensor):
        raise InvalidError(f"share_: {name}: it has no shape yet: call the module once before")
    if tensor.is_conj() or tensor.is_neg():
        raise InvalidError(f"share_: {name}: it is conjugated or negated lazily: call .resolve_conj() and .resolve_neg() before")
    if tensor.device.type != "cpu":
        raise InvalidError(f"share_: {name}: it is on device {tensor.device}: only memory of the CPU is shared")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise InvalidError(f"share_: {name}: it is {'quantized' if tensor.is_quantized else tensor.layout}: only dense tensors are shared")


def _look(name: str, tensor: Any) -> _Place | None:
    """Where a tensor lies; None for one without elements."""
    if tensor.numel() == 0:
        return None
    start = tensor.data_ptr()
    if start == 0:
        raise InvalidError(f"share_: {name}: it has no memory: give it some before, such as by resize_")
    steps = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return _Place(name, tensor, start, start + (steps + 1) * tensor.element_size())


def _living(torch: Any, given: list[_Place]) -> list[_Place]:
    """The other tensors of this process in memory of the CPU."""
    known = {id(place.tensor) for place in given}
    found = []
    for thing in gc.get_objects():
        kind = type(thing)
        if not issubclass(kind, torch.Tensor) or id(thing) in known or hasattr(kind, "__tensor_flatten__"):
            continue
        try:
            place = _look("", thing) if thing.device.type == "cpu" and thing.layout is torch.strided else None
        except Exception:  # of a subclass, or of a tensor without a memory: neither shares any
            continue
        if place is not None:
            found.append(place)
    return found


def _blocks(given: list[_Place], living: list[_Place]) -> list[_Block]:
    """What moves together: the given tensors of a storage, those that overlap them, those that overlap these, ..."""
    joined: list[list[_Place]] = []
    end = 0
    for place in sorted(given + living, key=lambda place: place.start):
        if place.start < end:
            joined[-1].append(place)
        else:
            joined.append([place])
        end = max(end, place.end)
    blocks: dict[int, list[_Place]] = {}
    for places in joined:
        storages = {place.storage().data_ptr() for place in places if place.name}
        if storages:
            blocks.setdefault(min(storages), []).extend(places)
    return [_block(places) for places in blocks.values()]


def _block(places: list[_Place]) -> _Block:
    start = places[0].start // _ALIGNMENT * _ALIGNMENT  # so that each address keeps its alignment
    end = max(place.end for place in places)
    return _Block(places, start, -(-(end - start) // _ALIGNMENT) * _ALIGNMENT)


def _batches(blocks: list[_Block]) -> Iterator[list[_Block]]:
    """Blocks by file. While a file is filled, its tensors exist twice."""
    limit = max(_LEAST_FILE, sum(block.size for block in blocks) // _FILES)
    batch: list[_Block] = []
    for block in blocks:
        if batch and sum(other.size for other in batch) + block.size > limit:
            yield batch
            batch = []
        batch.append(block)
    yield batch


def _move(torch: Any, batch: list[_Block], files: Files) -> None:
    """Copies blocks into a file of their own, and lets their tensors show it. After an error nothing has changed."""
    memory = files.allocate(sum(block.size for block in batch))
    before = [(place.tensor, place.tensor.data) for block in batch for place in block.places]  # views of the same kind
    offset = 0
    try:
        for block in batch:
            shared = torch.frombuffer(memory, dtype=torch.uint8, count=block.size, offset=offset)
            _copy(torch, block, shared)
            _show(torch, block, _Place("", shared, 0, 0).storage())
            offset += block.size
    except BaseException:
        for tensor, data in before:
            with torch.inference_mode(tensor.is_inference()):
                tensor.data = data
        raise


def _copy(torch: Any, block: _Block, shared: Any) -> None:
    """Copies the bytes of the tensors, and nothing of what lies between them."""
    done = block.start
    for place in block.places:
        start = max(done, place.start)
        if start < place.end:
            storage = place.storage()
            old = torch.empty(0, dtype=torch.uint8).set_(storage)
            first = storage.data_ptr()
            shared[start - block.start : place.end - block.start] = old[start - first : place.end - first]
            done = place.end


def _show(torch: Any, block: _Block, storage: Any) -> None:
    for place in block.places:
        tensor = place.tensor
        first = (place.start - block.start) // tensor.element_size()
        with torch.inference_mode(tensor.is_inference()):  # else torch confuses the two kinds of tensors
            tensor.data = torch.empty(0, dtype=tensor.dtype).set_(storage, first, tensor.size(), tensor.stride())
