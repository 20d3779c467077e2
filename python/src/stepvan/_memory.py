"""Tensors in shared memory."""

from collections.abc import Iterable
from typing import Any

from stepvan import _core
from stepvan._frameworks import discover, element


def make(node: int, shape: Iterable[int] | int, dtype: Any, zeroed: bool) -> Any:
    """A tensor in memory of the library, which lives as long as something shows it."""
    dims = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    code, is_torch = element(dtype)
    discover(not is_torch)
    size = _core.dtype_size(code)
    for n in dims:
        size *= n
    return _core.view(_core.allocate(node, max(size, 1), zeroed), dims, code, is_torch)
