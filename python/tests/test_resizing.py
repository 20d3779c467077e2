"""Registered tensors of torch keep their storage: torch refuses to resize it."""

import pytest
import torch

import stepvan

REFUSED = "not resizable"

TENSORS = {
    "float32": lambda: torch.arange(8.0),
    "bfloat16": lambda: torch.ones(8, dtype=torch.bfloat16),
    "bool": lambda: torch.ones(8, dtype=torch.bool),
    "complex64": lambda: torch.ones(8, dtype=torch.complex64),
    "no dimensions": lambda: torch.tensor(1.0),
    "part of a storage": lambda: torch.arange(16.0)[4:12],
    **{
        name: lambda name=name: torch.ones(8).to(getattr(torch, name))
        for name in ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "uint16")
        if hasattr(torch, name)
    },
}


def storage_of(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor._storage()


def state(tensor):
    """What the program can see of a tensor, except its values."""
    storage = storage_of(tensor)
    return (
        (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.requires_grad)
        + (tensor.is_leaf, tensor._version, tensor.is_shared(), type(tensor), storage.data_ptr(), storage.nbytes())
    )


def check_fixed(tensor):
    address = tensor.data_ptr()
    with pytest.raises(RuntimeError, match=REFUSED):
        tensor.detach().resize_(1000)
    with pytest.raises(RuntimeError):
        storage_of(tensor).resize_(0)
    assert tensor.data_ptr() == address


@pytest.mark.parametrize("kind", TENSORS)
def test_a_registered_tensor_cannot_be_resized(cluster, kind):
    worker = cluster().workers[0].worker
    tensor = TENSORS[kind]()
    before, values = state(tensor), tensor.clone()
    with worker.register(tensor):
        assert state(tensor) == before
        assert tensor.view(-1).tolist() == values.view(-1).tolist()
        check_fixed(tensor)


def test_a_parameter(cluster):
    worker = cluster().workers[0].worker
    parameter = torch.nn.Parameter(torch.ones(8))
    before = state(parameter)
    worker.register(parameter)
    assert state(parameter) == before
    check_fixed(parameter)
    parameter.sum().backward()
    assert parameter.grad.eq(1).all()


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("van", ["tcp", "shm"])
def test_a_receive_buffer_cannot_be_resized(cluster, van):
    c = cluster(STEPVAN_VAN=van)
    worker, server = c.workers[0].worker, c.servers[0].server
    buffer, done = torch.zeros(64), torch.zeros(1)
    before = state(buffer)
    server.register_recv_buffer(buffer, [0], [5])
    assert state(buffer) == before
    check_fixed(buffer)
    with pytest.raises(RuntimeError, match=REFUSED):
        torch.add(torch.ones(1000), 1, out=buffer.view(-1)[:])
    handle = worker.push_pull([torch.full((64,), 3.0)], [5], [done], [6])
    request = server.get_batch(timeout=10)[0]
    request.respond([torch.ones(1)])
    handle.wait(10)
    assert buffer.eq(3).all()


def test_what_torch_can_do_without_more_memory_goes_on(cluster):
    worker = cluster().workers[0].worker
    tensor = torch.arange(8.0)
    with worker.register(tensor):
        assert tensor.resize_(4).tolist() == [0, 1, 2, 3]
        assert tensor.resize_(8).tolist() == list(range(8))
        assert tensor.clone().resize_(1000).shape == (1000,)


def test_registering_again(cluster):
    """It changes no more than the first time, and copies nothing; the mark outlasts the registrations."""
    worker = cluster().workers[0].worker
    tensor = torch.arange(8.0)
    before = state(tensor)
    first, second = worker.register(tensor), worker.register(tensor)
    assert int(first) != int(second) and state(tensor) == before
    first.unregister()
    check_fixed(tensor)
    second.unregister()
    check_fixed(tensor)


def test_tensors_that_are_refused_or_empty_can_be_resized(cluster):
    c = cluster()
    wrong = torch.zeros(4, 4).t()
    with pytest.raises(stepvan.InvalidError):
        c.workers[0].worker.register(wrong)
    buffer = torch.zeros(4)
    with pytest.raises(stepvan.InvalidError, match="give one of each per chunk"):
        c.servers[0].server.register_recv_buffer(buffer, [0], [5, 6])
    for tensor in (wrong, buffer):
        assert tensor.resize_(1000).shape == (1000,)


def test_tensors_that_are_only_pushed_can_be_resized_later(cluster):
    c = cluster()
    c.serve(lambda request: [request.tensors[0] * 2])
    x, y = torch.ones(4), torch.zeros(4)
    c.workers[0].worker.push_pull([x], [1], [y], [2]).wait(10)
    assert y.eq(2).all()
    assert x.resize_(1000).shape == (1000,) and y.resize_(1000).shape == (1000,)


def test_without_numpy_what_could_be_resized_is_refused(run, scheduler):
    """As where torch is older than numpy: it has no numpy then, by which it is kept from resizing."""
    program = run(
        """
        import sys, warnings
        sys.modules["numpy"] = None
        warnings.simplefilter("ignore")
        import torch, stepvan
        try:
            torch.zeros(1).numpy()
            raise SystemExit("torch has numpy")
        except RuntimeError:
            pass
        node = stepvan.Node()
        plain, ours = torch.zeros(64), node.zeros(64, torch.float32)
        for register in [lambda t: node.worker.register(t), lambda t: node.server.register_recv_buffer(t, [0], [5])]:
            try:
                register(plain)
                raise SystemExit("registered")
            except stepvan.NotSupportedError as error:
                assert "numpy<2" in str(error) and "not available" in str(error), error
            with register(ours):
                try:
                    ours.detach().resize_(1000)
                    raise SystemExit("resized")
                except RuntimeError:
                    pass
        assert plain.resize_(1000).shape == (1000,)
        node.stop()
        """,
        {**scheduler(), "DMLC_ROLE": "joint"},
    )
    program.result()
