"""Values as they travel: MessagePack, and tensors beside it.

What arrives is never executed, unless the loop allows pickle. A function travels as the name of its module and its own
name, and the receiver looks it up among the modules that it has loaded.
"""

from __future__ import annotations

import dataclasses
import pickle
import sys
import types
from typing import Any

import torch

from stepvan._errors import InvalidError, NotSupportedError, ProtocolError, cut
from stepvan.particles import messages

try:
    import msgspec
except ImportError as error:
    raise ImportError("particles need msgspec: pip install 'stepvan[particles]', or pip install msgspec") from error

PICKLED = 1  # the flag of the library

_TENSOR, _TUPLE, _FUNCTION, _MESSAGE, _NUMPY, _SET, _COMPLEX, _TORCH, _PAIRS = range(1, 10)
_encoder = msgspec.msgpack.Encoder()
_packed = _encoder.encode
_plain = (type(None), bool, int, float, str, bytes)
_kinds = {name: getattr(messages, name) for name in messages.__all__}
_functions = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type(torch.sin), type(torch.Tensor.add), type)
_DEEPEST = 200  # containers within containers

Value = tuple[bytes, list[Any], int]


def encode(what: str, value: Any, allow_pickle: bool = False) -> Value:
    """The bytes of a value, its tensors, and flags. what: names the value in errors.

    InvalidError: a part of it cannot be sent: the message says which one and why. Nothing was sent.
    """
    tensors: list[Any] = []
    try:
        return _packed(_pack(what, value, tensors, 0)), tensors, 0
    except (InvalidError, OverflowError, UnicodeEncodeError) as error:
        if not allow_pickle:
            if isinstance(error, InvalidError):
                raise
            raise InvalidError(f"{what}: it cannot be sent ({error}): send smaller numbers and valid text") from None
    try:
        return pickle.dumps(value), [], PICKLED
    except Exception as error:
        raise InvalidError(f"{what}: it cannot be pickled ({type(error).__name__}: {error}): send something else") from None


def decode(what: str, value: Value, allow_pickle: bool = False) -> Any:
    """Reads a value, and trusts nothing of it. Tensors show the memory that they came in.

    ProtocolError: the bytes do not make a value. NotSupportedError: it is pickled; then it stays unread.
    """
    data, tensors, flags = value
    if flags & PICKLED:
        if not allow_pickle:
            raise NotSupportedError(f"{what}: it is pickled, and this loop does not allow that: open it with allow_pickle=True")
        return pickle.loads(data)
    if not data and not tensors:
        return None
    try:
        return msgspec.msgpack.Decoder(ext_hook=_Reader(what, tensors)).decode(data)
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, ProtocolError | InvalidError):
            raise
        raise ProtocolError(f"{what}: its bytes do not make a value: {error}") from None


def _ext(code: int, value: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, _packed(value))


def _pack(what: str, value: Any, tensors: list[Any], depth: int) -> Any:
    """A value that MessagePack has, with everything else in extensions."""
    kind = type(value)
    if kind in _plain:
        return value
    if depth > _DEEPEST:
        raise InvalidError(f"{what}: more than {_DEEPEST} containers are within each other: send containers that end")
    if kind is list:
        return [_pack(what, item, tensors, depth + 1) for item in value]
    if kind is tuple:
        return _ext(_TUPLE, [_pack(what, item, tensors, depth + 1) for item in value])
    if kind is dict:
        if all(type(key) is str for key in value):
            return {key: _pack(what, item, tensors, depth + 1) for key, item in value.items()}
        return _ext(_PAIRS, [[_pack(what, k, tensors, depth + 1), _pack(what, v, tensors, depth + 1)] for k, v in value.items()])
    if isinstance(value, torch.Tensor):
        return _pack_tensor(what, value, tensors)
    return _pack_other(what, value, tensors, depth)


def _pack_tensor(what: str, value: torch.Tensor, tensors: list[Any]) -> msgspec.msgpack.Ext:
    if value.layout is not torch.strided or value.is_quantized or value.device.type == "meta":
        raise InvalidError(f"{what}: a tensor has the layout {value.layout} on {value.device}: only dense tensors with elements are sent")
    plain = value.detach().cpu().resolve_conj().resolve_neg()
    tensors.append(plain if all(s >= 0 for s in plain.stride()) else plain.contiguous())
    return _ext(_TENSOR, len(tensors) - 1)


def _pack_other(what: str, value: Any, tensors: list[Any], depth: int) -> Any:
    kind = type(value)
    if kind is set or kind is frozenset:
        return _ext(_SET, [kind is frozenset, *(_pack(what, item, tensors, depth + 1) for item in value)])
    if kind is complex:
        return _ext(_COMPLEX, [value.real, value.imag])
    if kind is torch.Size:
        return _ext(_TORCH, ["Size", *map(int, value)])
    if kind is torch.dtype or kind is torch.device:
        return _ext(_TORCH, [kind.__name__, str(value).removeprefix("torch.")])
    if kind.__module__ == "numpy" and hasattr(value, "dtype") and hasattr(value, "tolist"):
        return _pack_numpy(what, value, tensors)
    if kind.__name__ in _kinds and kind is _kinds[kind.__name__]:
        fields = {field.name: _pack(f"{what}: {field.name}", getattr(value, field.name), tensors, depth + 1) for field in dataclasses.fields(value)}
        return _ext(_MESSAGE, [kind.__name__, fields])
    if isinstance(value, _functions):
        return _ext(_FUNCTION, list(name_of(what, value)))
    raise InvalidError(
        f"{what}: {cut(value)} cannot be sent: send tensors, numbers, text, bytes, containers of these, or functions of modules; "
        "allow_pickle sends more"
    )


def _pack_numpy(what: str, value: Any, tensors: list[Any]) -> msgspec.msgpack.Ext:
    try:
        array = torch.from_numpy(value.copy() if value.shape else value.reshape(1).copy())
    except (TypeError, ValueError, AttributeError):
        raise InvalidError(f"{what}: numpy's {cut(value)} cannot be sent: torch has no tensor with its elements") from None
    tensors.append(array)
    return _ext(_NUMPY, [len(tensors) - 1, list(value.shape), isinstance(value, sys.modules["numpy"].ndarray)])


class _Reader:
    """Makes the values of extensions."""

    def __init__(self, what: str, tensors: list[Any]) -> None:
        self._what = what
        self._tensors = tensors

    def __call__(self, code: int, data: memoryview) -> Any:
        value = msgspec.msgpack.Decoder(ext_hook=self).decode(data)
        if code == _TUPLE:
            return tuple(value)
        if code == _TENSOR:
            return self._tensor(value)
        if code == _PAIRS:
            return dict(map(tuple, value))
        if code == _FUNCTION:
            return function_of(self._what, *value)
        if code == _MESSAGE:
            name, fields = value
            if name not in _kinds:
                raise ProtocolError(f"{self._what}: there is no message {cut(name)}")
            return _kinds[name](**fields)
        if code == _SET:
            return (frozenset if value[0] else set)(value[1:])
        if code == _COMPLEX:
            return complex(*value)
        if code == _NUMPY:
            array = self._tensor(value[0]).numpy().reshape(value[1])
            return array if value[2] else array[()]
        if code == _TORCH:
            return _torch_value(self._what, *value)
        raise ProtocolError(f"{self._what}: an extension has the number {code}, which means nothing")

    def _tensor(self, index: Any) -> Any:
        if type(index) is not int or not 0 <= index < len(self._tensors):
            raise ProtocolError(f"{self._what}: it names tensor {cut(index)} of {len(self._tensors)}")
        return self._tensors[index]


def _torch_value(what: str, kind: Any, *values: Any) -> Any:
    if kind == "Size":
        return torch.Size(values)
    if kind == "device":
        return torch.device(*values)
    made = getattr(torch, values[0]) if kind == "dtype" and type(values[0]) is str and values[0].isidentifier() else None
    if not isinstance(made, torch.dtype):
        raise ProtocolError(f"{what}: torch has no {cut(kind)} {cut(values)}")
    return made


def name_of(what: str, function: Any) -> tuple[str, str]:
    """The module and the name by which another process finds a function.

    InvalidError: it has none: it is a lambda, a closure, or a method of an object.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    short = getattr(function, "__name__", None)
    for place in ((module, name), ("torch", short)):  # builtins of torch have names of its inside
        if isinstance(place[0], str) and isinstance(place[1], str) and _look_up(*place) is function:
            return place[0], place[1]
    if isinstance(function, types.MethodType | types.BuiltinMethodType):
        kind = "a method of an object"
    elif isinstance(name, str) and "<" in name:
        kind = "a lambda" if name.endswith("<lambda>") else "a function within a function"
    else:
        kind = "no function that its module has under this name"
    shown = f"{module}.{name}" if isinstance(name, str) else cut(function)
    raise InvalidError(f"{what}: {shown} cannot be sent: it is {kind}: define a function in a module that both processes have loaded")


def function_of(what: str, module: Any, name: Any) -> Any:
    """The function with a name, in a module that this process has loaded."""
    if type(module) is not str or type(name) is not str:
        raise ProtocolError(f"{what}: the name of a function is {cut((module, name))}")
    if module not in sys.modules and module != "__main__":
        raise InvalidError(f"{what}: function {module}.{name}: this process has not loaded the module: import it here, too")
    found = _look_up(module, name)
    if not callable(found):
        raise InvalidError(f"{what}: function {module}.{name}: the module has none of that name here: load the same version in both processes")
    return found


def _look_up(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    *classes, last = name.split(".")
    for part in classes:  # no way leads through another module
        found = getattr(found, part, None)
        if not isinstance(found, type):
            return None
    return getattr(found, last, None)
