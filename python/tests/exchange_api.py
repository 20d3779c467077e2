"""Gives an older torch the DLPackExchangeAPI (DLPack 1.3) of torch 2.10; it is made with ctypes, and counts calls."""

import ctypes as c
import weakref
from collections import Counter

import torch

calls: Counter[str] = Counter()
TYPES = {  # by what it is in DLPack: kind, bits, lanes
    (0, 8, 1): torch.int8, (0, 32, 1): torch.int32, (0, 64, 1): torch.int64, (1, 8, 1): torch.uint8,
    (2, 16, 1): torch.float16, (2, 32, 1): torch.float32, (2, 64, 1): torch.float64, (4, 16, 1): torch.bfloat16,
    (5, 64, 1): torch.complex64, (6, 8, 1): torch.bool,
}  # fmt: skip


class Tensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p), ("device", c.c_int32), ("id", c.c_int32), ("ndim", c.c_int32), ("kind", c.c_uint8), ("bits", c.c_uint8),
        ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("offset", c.c_uint64),
    ]  # fmt: skip


class Managed(c.Structure):
    _fields_ = [
        ("major", c.c_uint32), ("minor", c.c_uint32), ("context", c.c_void_p), ("deleter", c.CFUNCTYPE(None, c.c_void_p)),
        ("flags", c.c_uint64), ("tensor", Tensor),
    ]  # fmt: skip


Make = c.PYFUNCTYPE(c.c_int, c.POINTER(Managed), c.POINTER(c.c_void_p))
Look = c.PYFUNCTYPE(c.c_int, c.py_object, c.POINTER(Tensor))


class Exchange(c.Structure):
    _fields_ = [
        ("major", c.c_uint32), ("minor", c.c_uint32), ("older", c.c_void_p), ("allocate", c.c_void_p), ("lend", c.c_void_p),
        ("make", Make), ("look", Look), ("stream", c.c_void_p),
    ]  # fmt: skip


@Look
def look(tensor, out):
    calls["look"] += 1
    if tensor.is_sparse:
        return -1
    shape = tensor.__dict__.setdefault("shape_", (c.c_int64 * tensor.dim())(*tensor.shape))
    strides = tensor.__dict__.setdefault("strides_", (c.c_int64 * tensor.dim())(*tensor.stride()))
    kind, bits, lanes = next((k for k, v in TYPES.items() if v == tensor.dtype), (99, 8, 1))
    out[0] = Tensor(tensor.data_ptr(), 1, 0, tensor.dim(), kind, bits, lanes, shape, strides, 0)
    return 0


@Make
def make(managed, out):
    calls["make"] += 1
    m, t = managed[0], managed[0].tensor
    shape = t.shape[: t.ndim]
    size = max(1, t.bits * t.lanes // 8)
    for n in shape:
        size *= n
    assert (m.major, t.device, t.offset) == (1, 1, 0)
    step = 1
    for n, stride in zip(reversed(shape), reversed(t.strides[: t.ndim])):
        assert stride == step
        step *= n
    memory = (c.c_uint8 * size).from_address(t.data)
    address = c.addressof(m)
    weakref.finalize(memory, gone, address)
    tensor = torch.frombuffer(memory, dtype=TYPES[t.kind, t.bits, t.lanes]).view(shape)
    c.pythonapi.Py_IncRef(c.py_object(tensor))
    out[0] = id(tensor)
    return 0


def gone(address):
    calls["gone"] += 1
    Managed.from_address(address).deleter(address)


def install():
    c.pythonapi.PyCapsule_New.restype = c.py_object
    c.pythonapi.PyCapsule_New.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
    newer = Exchange(2, 0, c.addressof(EXCHANGE))
    torch.Tensor.__dlpack_c_exchange_api__ = c.pythonapi.PyCapsule_New(c.addressof(newer), NAME, None)
    return newer


NAME = b"dlpack_exchange_api"
EXCHANGE = Exchange(1, 3, None, None, None, make, look, None)
NEWER = install()
