"""The types of elements: torch's, and the numbers that they have in rosters and plans."""

import torch

from stepvan._errors import InvalidError
from stepvan._frameworks import CODES

_of_torch: dict[torch.dtype, int] = {getattr(torch, name): code for name, code in CODES.items() if isinstance(getattr(torch, name, None), torch.dtype)}
_of_code: dict[int, torch.dtype] = {code: dtype for dtype, code in _of_torch.items()}
_names = {code: name for name, code in CODES.items()}

# The types that are converted into each other while elements are copied, as Tensor.copy_ does it.
_converted = {
    getattr(torch, name) for name in ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)
}


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


def converts(one: torch.dtype, other: torch.dtype) -> bool:
    """Whether elements are converted from one type into another one on their way."""
    return one != other and {one, other} <= _converted


def on_the_way(source: torch.dtype, destination: torch.dtype) -> torch.dtype:
    """The type that elements have on their way: the smaller one of both."""
    return destination if torch.finfo(destination).bits < torch.finfo(source).bits else source
