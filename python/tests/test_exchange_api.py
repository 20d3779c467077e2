"""Tensors of a torch that offers them in C (DLPackExchangeAPI), with a torch that was given one."""

from pathlib import Path

PROGRAM = """
import gc, sys
sys.path.insert(0, {tests!r})
import exchange_api
import torch
import stepvan

calls = exchange_api.calls
node = stepvan.Node()
worker, server = node.worker, node.server


def exchange(x, out):
    handle = worker.push_pull([x], [1], [out], [2])
    (request,) = server.get_batch()
    (got,) = request.tensors
    assert got.dtype == x.dtype and got.shape == x.shape and torch.equal(got, x), (got, x)
    request.respond([got])
    handle.wait(10)
    assert torch.equal(out, x), (out, x)


registered = server.register_recv_buffer(node.empty((1 << 16,), "uint8"), [0], [1])
for dtype in exchange_api.TYPES.values():
    for shape in (), (1,), (3, 4), (2, 1, 5), (64, 64):
        x = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
        exchange(x, torch.zeros_like(x))
assert calls["look"] >= 3 * 50 and calls["make"] >= 50, calls

for wrong, text in [
    (torch.zeros(4, 4).t()[:, ::2], "contiguous"),
    (torch.zeros(4, 4).to_sparse(), ""),
    (torch.quantize_per_tensor(torch.zeros(4), 1.0, 0, torch.qint8), "cannot be moved"),
    (torch.zeros(1, dtype=torch.complex64).conj(), "resolve_conj"),
]:
    try:
        worker.push_pull([wrong], [1], [], [])
    except stepvan.InvalidError as error:
        assert text in str(error), error
    else:
        raise AssertionError(wrong)
try:
    worker.push_pull([], [], [torch.zeros(4, requires_grad=True)], [2])
except stepvan.InvalidError as error:
    assert "detach" in str(error), error
else:
    raise AssertionError("requires_grad")

class Own(torch.Tensor):  # of another class: by its attributes
    pass

looked = calls["look"]
worker.push_pull([torch.zeros(4).as_subclass(Own)], [1], [], [])
server.get_batch()[0].respond([])
assert calls["look"] == looked

kept = node.zeros((2, 3), torch.float32)
made = calls["make"]
kept += 1
assert made > 0 and kept.sum() == 6
registered.unregister()
node.stop(20)
del kept, registered
gc.collect()
assert calls["gone"] == calls["make"], calls
print("passed")
"""


def test_a_torch_with_an_exchange_api(run, scheduler):
    settings = {**scheduler(), "DMLC_ROLE": "joint"}
    assert run(PROGRAM.format(tests=str(Path(__file__).parent)), settings).result(timeout=60) == "passed\n"
