"""What tensors may be, and what is said of others."""

import array
import ctypes

import ml_dtypes
import numpy as np
import pytest
import torch

import stepvan
from stepvan import _core, _frameworks


@pytest.fixture
def worker(cluster):
    return cluster().workers[0].worker


def refused(worker, match, push=None, pull=None):
    ok = torch.zeros(1)
    with pytest.raises(stepvan.InvalidError, match=match) as info:
        worker.push_pull([ok if push is None else push], [1], [ok if pull is None else pull], [2])
    return str(info.value)


def test_not_contiguous(worker):
    assert ".contiguous()" in refused(worker, r"^push\[0\]: it is not contiguous", push=torch.zeros(4, 4).t())
    refused(worker, r"^pull\[0\]: it is not contiguous", pull=np.zeros((4, 4))[:, 1])
    refused(worker, "not contiguous", push=memoryview(bytes(8))[::2])
    refused(worker, "not contiguous", push=np.zeros(8, ml_dtypes.bfloat16)[::2])


def test_read_only(worker):
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    refused(worker, r"pull\[0\]: it is read-only", pull=frozen)
    refused(worker, "read-only", pull=b"1234")
    bf16 = np.zeros(4, ml_dtypes.bfloat16)
    bf16.flags.writeable = False
    refused(worker, "read-only", pull=bf16)


def test_wrong_device(worker):
    assert ".cpu()" in refused(worker, "it is on device meta", push=torch.empty(4, device="meta"))


def test_not_dense(worker):
    refused(worker, "not dense|memory cannot be reached", push=torch.zeros(4, 4).to_sparse())


def test_not_dense_as_torch_2_says_it(worker):
    class Sparse(torch.Tensor):
        layout = torch.sparse_coo

        def is_contiguous(self, **_):
            return False

    sparse = torch.zeros(4, 4).as_subclass(Sparse)
    assert refused(worker, r"^push\[0\]: it is not dense", push=sparse).endswith(".to_dense()")


def test_lazy(worker):
    z = torch.zeros(3, dtype=torch.complex64)
    refused(worker, r"\.resolve_conj\(\)", push=z.conj())
    refused(worker, r"\.resolve_neg\(\)", push=torch.zeros(1, dtype=torch.complex64).conj().imag)


def test_types(worker):
    refused(worker, "cannot be moved", push=np.zeros(4, ">f4"))
    refused(worker, "cannot be moved", push=np.zeros(4, object))
    refused(worker, "cannot be moved", push=np.zeros(4, np.longdouble))
    refused(worker, "cannot be moved", push=torch.quantize_per_tensor(torch.zeros(4), 1.0, 0, torch.qint8))
    refused(worker, "is not a tensor", push=object())
    refused(worker, "is not a tensor", push=[1, 2])


def test_dimensions(worker):
    refused(worker, r"9 dimensions \(want at most 8\)", push=torch.zeros([1] * 9))
    refused(worker, r"9 dimensions \(want at most 8\)", push=np.zeros([1] * 9))


class Packed:
    """Speaks DLPack, and nothing else."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, stream=None):
        return self.tensor.__dlpack__()

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def test_dlpack(cluster):
    c = cluster()
    c.serve(lambda request: [request.tensors[0] * 2])
    x, y = torch.rand(3, 5), torch.empty(3, 5)
    c.workers[0].worker.push_pull([Packed(x)], [1], [Packed(y)], [2]).wait(10)
    assert torch.equal(y, x * 2)
    refused(c.workers[0].worker, "not contiguous", push=Packed(x.t()))


class Managed(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("kind", ctypes.c_uint8),
        ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    ]  # fmt: skip


class Vectors:
    """Two elements of a type of DLPack."""

    def __init__(self, kind, bits, lanes):
        self.shape, self.memory = ctypes.c_int64(2), bytearray(64)
        data = ctypes.addressof(ctypes.c_uint8.from_buffer(self.memory))
        self.managed = Managed(data, 1, 0, 1, kind, bits, lanes, ctypes.addressof(self.shape), None, 0, None, None)

    def __dlpack__(self, max_version=None):
        capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", ctypes.pythonapi))
        return capsule(ctypes.addressof(self.managed), NAME, None)


NAME = b"dltensor"


@pytest.mark.parametrize("vector", [(0, 8, 4), (1, 8, 2), (2, 16, 4), (0, 16, 2), (17, 8, 1), (17, 4, 1), (0, 0, 1), (0, 8, 0)])
def test_vectors_of_dlpack_are_no_numbers(cluster, vector):
    refused(cluster().workers[0].worker, r"DLPack type \(%d, %d bits, %d lanes\)" % vector, push=Vectors(*vector))


def test_arrays(cluster):
    c = cluster()
    c.serve(lambda request: [request.tensors[0] * 2])
    x, y = array.array("d", [1, 2, 3]), array.array("d", [0, 0, 0])
    c.workers[0].worker.push_pull([x], [1], [y], [2]).wait(10)
    assert y.tolist() == [2, 4, 6]


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "uint16", "uint32", "uint64"])
def test_types_that_torch_may_not_have_are_of_numpy(cluster, name):
    c = cluster()
    seen = []

    def answer(request):
        seen.append(request.tensors[0])
        return [request.tensors[0]]

    c.serve(answer)
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    x, y = np.array([1, 2, 4], dtype), np.zeros(3, dtype)
    c.workers[0].worker.push_pull([x], [1], [y], [2]).wait(10)
    assert (x == y).all()
    if getattr(torch, name, None) is None:
        assert seen[0].dtype == dtype
    else:
        assert seen[0].dtype == getattr(torch, name)


def test_subclasses(cluster):
    c = cluster()
    c.serve(lambda request: [request.tensors[0] * 2])
    x, y = torch.nn.Parameter(torch.ones(3)), torch.zeros(3)
    c.workers[0].worker.push_pull([x], [1], [y], [2]).wait(10)
    assert y.tolist() == [2, 2, 2]


def test_empty(cluster):
    node = cluster().workers[0]
    assert node.empty((2, 3), torch.bfloat16).dtype == torch.bfloat16
    assert node.zeros((2, 3), "float32").equal(torch.zeros(2, 3))
    assert node.zeros(4, np.float32).dtype == np.float32
    assert node.zeros(4, ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16
    assert node.zeros((), "int64").item() == 0 and node.empty((0, 3), "int8").shape == (0, 3)
    assert node.zeros(100_000, "float32").data_ptr() % 4096 == 0
    with pytest.raises(stepvan.InvalidError, match="there are bool"):
        node.empty(4, "float31")
    with pytest.raises(stepvan.Error):
        node.empty(2**50, "float32")


def test_masked_arrays(worker):
    masked = np.ma.masked_array(np.zeros(3), [0, 1, 0])
    assert ".filled()" in refused(worker, r"^push\[0\]: it is a masked array", push=masked)
    refused(worker, r"^pull\[0\]: it is a masked array", pull=masked)


@pytest.fixture(params=["fields", "attributes"])
def reads(request):
    """How the extension reads arrays: their fields in C, or their attributes, as with a numpy that it does not know."""
    functions = _frameworks._functions()
    known = _core.use_numpy(np.ndarray, np.empty, {}, functions if request.param == "fields" else None)
    assert known == (request.param == "fields"), "the extension knows the installed numpy"
    yield
    _core.use_numpy(np.ndarray, np.empty, {}, functions)


def test_numpy_that_is_not_known():
    for functions in None, 7, _core.main:
        assert not _core.use_numpy(np.ndarray, np.empty, {}, functions)
    known = _frameworks._functions()
    try:
        for other in np.memmap, np.generic:
            assert not _core.use_numpy(other, np.empty, {}, known), "the functions of another type"
    finally:
        assert _core.use_numpy(np.ndarray, np.empty, {}, known)


@pytest.mark.parametrize(
    "array",
    [
        np.array(5, np.int16), np.arange(6.0), np.ones((2, 3), np.float32), np.asfortranarray(np.ones((1, 4))), np.zeros((0, 3)),
        np.arange(12.0).reshape(3, 4)[1:], np.arange(8.0)[2:5], np.arange(4.0)[3:2:-1], np.ones((2, 1, 3))[:, ::2], np.array([True, False]),
        np.ones((1,) * 8), np.ones(3, np.complex64), np.ones(3, ml_dtypes.bfloat16), np.frombuffer(b"1234", np.uint8), np.ones(3, np.dtype("<f8")),
        np.broadcast_to(np.ones(1), (1, 1)),
    ],
)  # fmt: skip
def test_arrays_of_numpy(cluster, reads, array):
    c = cluster()
    c.serve(lambda request: [request.tensors[0], np.array(request.tensors[0].shape + (0,), np.int64)])
    y, shape = np.zeros(array.shape, array.dtype), np.zeros(array.ndim + 1, np.int64)
    c.workers[0].worker.push_pull([array], [1], [y, shape], [2, 3]).wait(10)
    assert y.tobytes() == array.tobytes() and shape.tolist() == [*array.shape, 0]


def test_arrays_of_numpy_that_cannot_be_moved(worker, reads):
    for pushed, why in [
        (np.zeros((4, 4)).T, "not contiguous"),
        (np.zeros(4)[::2], "not contiguous"),
        (np.broadcast_to(np.zeros(1), 4), "not contiguous"),
        (np.zeros([1] * 9), "9 dimensions"),
        (np.zeros(4, ">f4"), "cannot be moved"),
        (np.zeros(4, [("a", "f4"), ("b", "f4")]), "cannot be moved"),
        (np.zeros(4, "U1"), "cannot be moved"),
    ]:
        refused(worker, why, push=pushed)
    for pulled in np.frombuffer(b"1234", np.uint8), np.broadcast_to(np.zeros(1), (1, 1)):
        refused(worker, "read-only", pull=pulled)


def test_an_array_that_has_changed(cluster, reads):
    """Nothing about an array is remembered from one exchange to the next."""
    c = cluster()
    c.serve(lambda request: [request.tensors[0]])
    worker = c.workers[0].worker
    x, y = np.arange(8.0), np.zeros(8)
    worker.push_pull([x], [1], [y], [2]).wait(10)
    x.shape = y.shape = (2, 4)
    x += 1
    worker.push_pull([x], [1], [y], [2]).wait(10)
    assert (y == x).all()
    x.dtype = y.dtype = np.dtype(np.uint8)
    x[:] = np.arange(64).reshape(x.shape)
    worker.push_pull([x], [1], [y], [2]).wait(10)
    assert (y == x).all()
    y.flags.writeable = False
    refused(worker, "read-only", push=x, pull=y)


class Subclass(np.ndarray):
    pass


def test_other_subclasses_of_numpy(cluster):
    c = cluster()
    c.serve(lambda request: [request.tensors[0] * 2])
    x, y = np.ones(3).view(Subclass), np.zeros(3).view(Subclass)
    c.workers[0].worker.push_pull([x], [1], [y], [2]).wait(10)
    assert (y == 2).all()


def test_what_autograd_watches(cluster):
    """It may be pushed, but not be written to."""
    c = cluster()
    worker, server = c.workers[0].worker, c.servers[0].server
    leaf = torch.zeros(2, requires_grad=True)
    for watched in [leaf, torch.nn.Parameter(torch.zeros(2)), leaf * 2]:
        assert ".detach()" in refused(worker, r"^pull\[0\]: it requires grad", pull=watched)
        with pytest.raises(stepvan.InvalidError, match=r"\.detach\(\)"):
            server.register_recv_buffer(watched, [0], [1])
    c.serve(lambda request: [request.tensors[0] + 1])
    worker.push_pull([leaf], [1], [leaf.detach()], [2]).wait(10)
    assert leaf.tolist() == [1, 1]


class Raises:
    """Raises when it is looked at."""

    def __init__(self, error, name="__dlpack__"):
        self.error, self.name = error, name

    @property
    def __dlpack__(self):
        if self.name == "attribute":
            raise self.error
        return self.call

    def call(self, **options):
        raise self.error


class Rows:
    def __init__(self, error):
        self.error = error

    @property
    def shape(self):
        raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), RuntimeError("mine"), OSError("mine"), RecursionError()])
def test_exceptions_of_the_program_go_through(cluster, error):
    c = cluster()
    worker, server = c.workers[0].worker, c.servers[0].server
    ok = torch.zeros(1)
    for call in [
        lambda: worker.push_pull([Raises(error)], [1], [], []),
        lambda: worker.push_pull([Raises(error, "attribute")], [1], [], []),
        lambda: worker.push_pull([ok], [1], [Raises(error)], [2]),
        lambda: worker.register(Raises(error)),
        lambda: server.respond_vec(ok, [Rows(error)], [1]),
    ]:
        with pytest.raises(type(error)) as info:
            call()
        assert info.value is error


@pytest.mark.parametrize("error", [TypeError("mine"), ValueError("mine"), OverflowError("mine"), BufferError("mine")])
def test_exceptions_that_tell_of_the_tensor(worker, error):
    refused(worker, r"^push\[0\]: its __dlpack__ failed: mine", push=Raises(error))


def test_memory_that_is_gone(worker):
    view = memoryview(bytearray(4))
    view.release()
    refused(worker, r"^push\[0\]: its memory cannot be reached: .*released memoryview", push=view)
    refused(worker, r"^pull\[0\]: its memory cannot be reached: .*released memoryview", pull=view)


def test_pulls_share_no_memory(worker):
    y, row = torch.zeros(4), np.zeros(8)
    for pulls in [[y, y], [y[1:3], y[:2]], [row[2:], row[:3]]]:
        with pytest.raises(stepvan.InvalidError, match=r"pull tensors 0 \(key 2\) and 1 \(key 3\): they share memory"):
            worker.push_pull([torch.zeros(1)], [1], pulls, [2, 3])


def test_in_place(cluster):
    """What one server writes may be what was pushed to it; with several it may not."""
    one = cluster()
    one.serve(lambda request: [request.tensors[0] * 2, request.tensors[0][:0]])
    x = torch.ones(10_000)
    one.workers[0].worker.push_pull([x], [1], [x, x[:0]], [1, 2]).wait(10)
    assert x.eq(2).all()
    two = cluster(servers=2)
    with pytest.raises(stepvan.InvalidError, match="push tensor 0 .* to server 1: it shares memory with pull tensor 0 .*, which server 0 writes"):
        two.workers[0].worker.push_pull([x], [1], [x, torch.zeros(10_000)], [2, 3])
