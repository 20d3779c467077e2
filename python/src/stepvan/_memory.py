"""Tensors in shared memory."""

import operator
from collections.abc import Iterable
from typing import Any

from stepvan import _core
from stepvan._errors import InvalidError, calling, cut
from stepvan._frameworks import discover, element


def make(node: int, shape: Iterable[int] | int, dtype: Any, zeroed: bool) -> Any:
    """A tensor in memory of the library, which lives as long as a tensor or buffer refers to it."""
    dims = dims_of(shape)
    code, is_torch = element(dtype)
    discover(not is_torch)
    size = _core.dtype_size(code)
    for n in dims:
        size *= n
    if size >= 2**63:
        raise InvalidError(f"shape is {cut(shape)}: that is larger than any memory")
    with calling("zeros" if zeroed else "empty", node):
        memory = _core.allocate(node, max(size, 1), zeroed, False)
    return _core.view(memory, dims, code, is_torch)


def dims_of(shape: Iterable[int] | int) -> tuple[int, ...]:
    """The dimensions of a shape."""
    try:
        dims = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    except TypeError:
        dims = (-1,)
    if any(n < 0 for n in dims):
        raise InvalidError(f"shape is {cut(shape)}: it must be a number from 0 on, or a list of them")
    return dims
