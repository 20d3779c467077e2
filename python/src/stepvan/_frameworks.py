"""Finds which of torch, numpy and ml_dtypes are loaded, and tells the extension.

This module never imports torch: programs may import it before or after stepvan, or not at all.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

from stepvan import _core

CODES: dict[str, int] = _core.dtype_names()
"""The numbers of the element types, by name."""

_known: set[str] = set()  # what the extension knows
_absent: set[str] = set()  # what could not be imported; it is not tried again


def discover(everything: bool) -> None:
    """Finds which are loaded; with ``everything`` it imports numpy and ml_dtypes where they are installed."""
    torch = sys.modules.get("torch")
    if "torch" not in _known and torch is not None and _use_torch(torch):
        _known.add("torch")
    numpy = _module("numpy", everything)
    if numpy is None:
        return
    extra = _module("ml_dtypes", everything)
    wanted = "numpy" if extra is None else "ml_dtypes"
    if wanted not in _known and _use_numpy(numpy, extra):
        _known.add(wanted)


def _module(name: str, load: bool) -> ModuleType | None:
    module = sys.modules.get(name)
    if module is not None or not load or name in _absent:
        return module
    try:
        return importlib.import_module(name)
    except ImportError:
        _absent.add(name)
        return None


def _use_torch(torch: ModuleType) -> bool:
    """False while another thread is still importing it."""
    try:
        tensor, empty, frombuffer = torch.Tensor, torch.empty, torch.frombuffer
        torch.is_tensor(empty(0))
    except AttributeError:
        return False
    dtypes = {code: found for name, code in CODES.items() if (found := getattr(torch, name, None)) is not None}
    storage = next((name for name in ("untyped_storage", "_storage") if hasattr(tensor, name)), None)
    _core.use_torch(tensor, empty, frombuffer, storage, dtypes)
    return True


def _use_numpy(numpy: ModuleType, extra: ModuleType | None) -> bool:
    if not hasattr(numpy, "ndarray") or not hasattr(numpy, "empty"):
        return False
    dtypes: dict[int, Any] = {}
    for name, code in CODES.items():
        kind = getattr(numpy, "bool_" if name == "bool" else name, None)
        if not isinstance(kind, type) and extra is not None:
            kind = getattr(extra, name, None)
        if isinstance(kind, type):
            dtypes[code] = numpy.dtype(kind)
    _core.use_numpy(numpy.ndarray, numpy.empty, dtypes, _functions())
    return True


def _functions() -> Any:
    """Numpy's functions in C, where extensions look for them; None if they are not there."""
    for name in "numpy._core._multiarray_umath", "numpy.core._multiarray_umath":
        try:
            return importlib.import_module(name)._ARRAY_API
        except (ImportError, AttributeError):
            pass
    return None


def element(dtype: Any) -> tuple[int, bool]:
    """The number of a dtype, and whether its tensors are of torch.

    ``dtype`` is a dtype of torch or numpy, or a name ("bfloat16"). A name means torch where torch is loaded.
    """
    from stepvan._errors import InvalidError, cut

    torch = sys.modules.get("torch")
    if isinstance(dtype, str):
        name, is_torch = dtype, torch is not None
    elif torch is not None and isinstance(dtype, torch.dtype):
        name, is_torch = str(dtype).removeprefix("torch."), True
    else:
        numpy = _module("numpy", True)
        try:
            if dtype is None:  # numpy would read it as float64
                raise TypeError
            name, is_torch = numpy.dtype(dtype).name, False  # type: ignore[union-attr]
        except (AttributeError, TypeError):
            raise InvalidError(f"dtype is {cut(dtype)}: give one of torch or numpy, or a name such as 'bfloat16'") from None
    if name not in CODES:
        raise InvalidError(f"dtype is {cut(dtype)}: there are {', '.join(CODES)}")
    return CODES[name], is_torch


_core.set_discover(discover)
discover(False)
