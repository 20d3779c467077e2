"""The types of elements: torch's, and the numbers that they have in rosters and plans."""

import torch

from stepvan._errors import InvalidError
from stepvan._frameworks import CODES

_of_torch: dict[torch.dtype, int] = {getattr(torch, name): code for name, code in CODES.items() if isinstance(getattr(torch, name, None), torch.dtype)}
_of_code: dict[int, torch.dtype] = {code: dtype for dtype, code in _of_torch.items()}
_names = {code: name for name, code in CODES.items()}


def code(name: str, dtype: torch.dtype) -> int:
    """The number of a type. name is the tensor's, for the error."""
    if dtype not in _of_torch:
        raise InvalidError(f"reshard: tensor {name!r}: its type cannot travel (got {dtype}): give a tensor of numbers")
    return _of_torch[dtype]


def dtype(code: int) -> torch.dtype:
    """The type with a number."""
    if code not in _of_code:
        raise InvalidError(f"reshard: this torch does not have the type {_names.get(code, code)} (got torch {torch.__version__}): use another version")
    return _of_code[code]


def name(code: int) -> str:
    """The name of the type with a number."""
    return f"torch.{_names[code]}" if code in _names else f"type {code}"
