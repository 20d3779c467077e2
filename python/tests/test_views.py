"""Views with strides of tensors of torch and numpy, and of objects with DLPack or the buffer protocol."""

import array
import ctypes

import ml_dtypes
import numpy as np
import pytest
import torch
from test_tensors import Managed, Packed, reads  # noqa: F401

import stepvan
from stepvan import _core


def views(*tensors, write=False, names=None):
    names = names or [f"t{i}" for i in range(len(tensors))]
    return _core.make_views([(name, tensor, None) for name, tensor in zip(names, tensors)], write)


def view(tensor, write=False):
    """(address, type, shape, strides) of one tensor."""
    [(name, *found, shared)] = views(tensor, write=write).list()
    assert name == "t0" and not shared
    return tuple(found)


def elements(tensor, write=False):
    """What lies where a view says, as a tensor of torch."""
    address, dtype, shape, strides = view(tensor, write)
    if 0 in shape:
        return torch.empty(shape, dtype=getattr(torch, dtype))
    span = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides))
    size = np.dtype(getattr(ml_dtypes, dtype, dtype)).itemsize
    memory = (ctypes.c_uint8 * (span * size)).from_address(address)
    return torch.frombuffer(memory, dtype=getattr(torch, dtype)).as_strided(shape, strides).clone()


def refused(match, tensor, write=False):
    with pytest.raises(stepvan.InvalidError, match=match) as info:
        view(tensor, write)
    return str(info.value)


X = torch.arange(48.0).reshape(4, 3, 4)


@pytest.mark.parametrize(
    "tensor",
    [
        X, X.transpose(0, 2), X[:, 1], X[..., 2:3], X[::2, :, ::3], X[0, 0, 0], X.permute(1, 0, 2)[1:],
        X[1:1], X[:, 2:2].transpose(0, 2), torch.ones(3, 1).expand(3, 5), torch.ones(1).expand(7), torch.zeros([1] * 8), X.unfold(2, 2, 1),
        torch.zeros(4, 3, 2, 2).to(memory_format=torch.channels_last), torch.arange(6, dtype=torch.int16)[1::2], torch.nn.Parameter(torch.ones(3, 3)).t(),
        torch.arange(6).to(torch.bfloat16).view(2, 3).t(), torch.view_as_real(torch.ones(3, dtype=torch.complex64))[:, 1],
    ],
)  # fmt: skip
@pytest.mark.parametrize("subclass", [False, True])
def test_torch(tensor, subclass):
    tensor = tensor.as_subclass(type("Other", (torch.Tensor,), {})) if subclass else tensor  # which is read by its attributes
    address, dtype, shape, strides = view(tensor)
    assert shape == tuple(tensor.shape) and "torch." + dtype == str(tensor.dtype)
    if tensor.numel() > 0:
        assert address == tensor.data_ptr()
        assert all(n == 1 or a == b for n, a, b in zip(shape, strides, tensor.stride()))
    assert torch.equal(elements(tensor), tensor)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24.0).reshape(4, 6), np.arange(24.0).reshape(4, 6).T, np.arange(24.0).reshape(4, 6)[1:, ::3], np.broadcast_to(np.ones(3), (2, 3)),
        np.asfortranarray(np.ones((3, 4))), np.float32(np.arange(8))[::2], np.zeros((0, 3)), np.zeros((3, 0)).T, np.array(5, np.int16),
        np.arange(4.0)[3:2:-1], np.arange(12, dtype=np.int8).reshape(3, 4)[:, 1], np.zeros(4, [("a", "f4"), ("b", "f4")])["b"],
        np.zeros((3, 0))[::-1], np.arange(8).astype(ml_dtypes.bfloat16)[::2],
    ],
)  # fmt: skip
def test_numpy(reads, array):  # noqa: F811
    address, dtype, shape, strides = view(array)
    assert shape == array.shape and dtype == array.dtype.name
    if array.size > 0:
        assert address == array.ctypes.data
        assert all(n == 1 or a * array.itemsize == b for n, a, b in zip(shape, strides, array.strides))
    assert elements(array).tolist() == array.tolist()


def test_numpy_that_no_view_has(reads):  # noqa: F811
    for reverse in [np.arange(6)[::-1], np.ones((2, 3))[:, ::-1], np.arange(6).astype(ml_dtypes.bfloat16)[::-1]]:
        assert "ascontiguousarray" in refused(r"^t0: dimension [01] runs backwards, with the stride -", reverse)
    odd = np.zeros(4, np.dtype([("a", "u1"), ("b", "f4")]))["b"]
    refused(r"^t0: the stride of dimension 0 is no multiple of an element \(got 5 bytes, want a multiple of 4\)", odd)
    refused("9 dimensions", np.zeros([1] * 9))
    refused("cannot be moved", np.zeros((4, 4), ">f4").T)
    refused("read-only", np.broadcast_to(np.ones(3), (2, 3)), write=True)
    frozen = np.zeros((4, 4))
    frozen.flags.writeable = False
    refused("read-only", frozen.T, write=True)
    assert view(np.zeros((4, 4)).T, write=True)[3] == (1, 4)
    refused("masked array", np.ma.masked_array(np.zeros(3), [0, 1, 0])[::2])


def test_torch_that_no_view_has():
    refused(r"^t0: it has 9 dimensions \(want at most 8\)", torch.zeros([1] * 9))
    assert ".cpu()" in refused("it is on device meta", torch.empty(4, 4, device="meta").t())
    refused("it is not dense: use .to_dense|memory cannot be reached", torch.zeros(4, 4).to_sparse())
    assert ".resolve_neg()" in refused("lazily", torch.zeros(3, dtype=torch.complex64).conj().imag)
    assert ".resolve_conj()" in refused("lazily", torch.zeros(3, 3, dtype=torch.complex64).conj().t())
    assert ".detach()" in refused("requires grad", torch.nn.Parameter(torch.ones(3, 3)).t(), write=True)
    refused("larger than any memory", torch.zeros(1).expand(2**31, 2**31))
    refused("is not a tensor", [1, 2])


def test_dlpack():
    x = torch.arange(12.0).reshape(3, 4)
    for tensor in [x, x.t(), x[:, 1::2], x[:0]]:
        assert torch.equal(elements(Packed(tensor)), tensor)


class Reversed:
    """An object whose DLPack says that its dimension runs backwards."""

    def __init__(self, strides=(-1,), shape=(4,)):
        self.memory = bytearray(64)
        self.shape, self.strides = ((ctypes.c_int64 * len(shape))(*shape), (ctypes.c_int64 * len(shape))(*strides))
        data = ctypes.addressof(ctypes.c_uint8.from_buffer(self.memory))
        self.managed = Managed(data, 1, 0, len(shape), 0, 8, 1, ctypes.addressof(self.shape), ctypes.addressof(self.strides), 0, None, None)

    def __dlpack__(self, max_version=None):
        capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", ctypes.pythonapi))
        return capsule(ctypes.addressof(self.managed), b"dltensor", None)


def test_dlpack_that_no_view_has():
    refused(r"^t0: dimension 0 runs backwards, with the stride -1", Reversed())
    assert view(Reversed((-3, 1), (1, 2)))[3] == (1, 1)
    assert view(Reversed((2**62, 2**62), (2, 2)))[3] == (2**62, 2**62), "which the library refuses"


def test_buffers():
    m = memoryview(array.array("i", range(12)))
    assert elements(m[1::3]).tolist() == [1, 4, 7, 10]
    assert elements(m.cast("B").cast("i", (3, 4))).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    refused("runs backwards", m[::-1])
    refused("read-only", memoryview(b"1234")[::2], write=True)


def test_shared_memory(cluster):
    node = cluster().workers[0]
    x = node.zeros((4, 4), "float32")
    assert [shared for *_, shared in views(x, x.t(), x[1:, ::2], torch.zeros(3)).list()] == [True, True, True, False]
    assert views(x[3:]).list()[0][-1], "the span of the view counts, and not the bytes that it steps over"


def test_wrong_arguments():
    with pytest.raises(TypeError):
        _core.make_views([("a", X)], False)
    with pytest.raises(stepvan.InvalidError, match="the name of a tensor is 5: it must be text"):
        views(X, names=[5])
    with pytest.raises(stepvan.InvalidError, match="the name of a tensor is .*: it must be text"):
        views(X, names=["a\0b"])
    with pytest.raises(stepvan.InvalidError, match="tensors is 5: it must be a list"):
        _core.make_views(5, False)
    with pytest.raises(stepvan.InvalidError, match="^b: "):
        views(X, 5, names=["a", "b"])
    assert views().list() == []


class Holder:
    """As a DTensor has its part."""

    def __init__(self, tensor):
        self._local_tensor = tensor


def test_what_has_not_changed():
    x, a, p = torch.zeros(4, 4), np.zeros((4, 4)), torch.nn.Parameter(torch.zeros(3))
    v = views(x, x.t(), a[::2], p, torch.zeros(0), memoryview(bytes(4)))
    for _ in range(3):
        v.check()
    x.add_(1)
    a[:] = 1
    with torch.no_grad():
        p.mul_(2)
    p.grad = torch.ones(3)
    v.check()


def moved(x):
    x.data = torch.zeros_like(x)


CHANGES = {
    "moved": (moved, "moved or resized"),
    "larger": (lambda x: x.resize_(100, 4), "shape, strides or type was changed"),
    "smaller": (lambda x: x.resize_(2, 4), "shape, strides or type was changed"),
    "transposed": (lambda x: x.t_(), "shape, strides or type was changed"),
    "freed": (lambda x: x._storage().resize_(0) if not hasattr(x, "untyped_storage") else x.untyped_storage().resize_(0), "has no memory.*could be moved when"),
    "other storage": (lambda x: x.set_(torch.zeros(4, 4)), "moved or resized"),
    "shared by torch": (lambda x: x.share_memory_(), "moved or resized"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("inner", [False, True])
def test_what_has_changed(change, inner):
    x = torch.zeros(4, 4)
    items = [("before", torch.zeros(3), None), ("model.w", Holder(x) if inner else x, "_local_tensor" if inner else None), ("after", x, None)]
    v = _core.make_views(items, False)
    v.check()
    function, why = CHANGES[change]
    function(x)
    with pytest.raises(stepvan.InvalidError, match=rf"^model\.w: .*{why}.*make the plan again"):
        v.check()


def test_another_part():
    whole = Holder(torch.zeros(4))
    v = _core.make_views([("w", whole, "_local_tensor")], True)
    v.check()
    old, whole._local_tensor = whole._local_tensor, torch.zeros(4)
    with pytest.raises(stepvan.InvalidError, match="^w: its memory was moved"):
        v.check()
    whole._local_tensor = old
    v.check()
    del whole._local_tensor
    with pytest.raises(AttributeError):
        v.check()


def test_memory_lives_as_long_as_the_views():
    x = torch.full((1 << 16,), 7.0)
    v = views(x)
    address = x.data_ptr()
    x.data = torch.zeros(1)
    del x
    again = [torch.full((1 << 16,), 3.0) for _ in range(4)]  # which would get the memory
    assert all(other.data_ptr() != address for other in again)
    assert (ctypes.c_float * 4).from_address(address)[:] == [7.0] * 4
    assert v.list()[0][1] == address
