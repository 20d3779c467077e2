"""Messages, futures' owners, and values that are brought to a device."""

import inspect
from collections import OrderedDict, defaultdict, namedtuple

import pytest
import torch

import stepvan
from stepvan.particles import messages, utils
from stepvan.particles._devices import torch_device
from stepvan.particles.waitable import Waitable

PUBLISHED = {
    "NELBroadcastParticlesAckMSG": [],
    "NELBroadcastParticlesMSG": ["in_queues", "out_queues", "particle_to_device"],
    "NELSaveModel": ["pid_fid"],
    "NELSaveModelAckPDMSG": ["pid_fid"],
    "NodeEvtLoopCleanupMSG": [],
    "NodeEvtLoopInitMSG": [],
    "ReceiveFuncAckMSG": [],
    "ReceiveFuncAckPDMSG": ["pid_fid", "result"],
    "ReceiveFuncMSG": ["pid_fid", "pid", "msg_name", "args"],
    "ReceiveFuncPDMSG": ["pid_fid", "pid_to", "msg", "args"],
    "ReceiveGetAckMSG": ["fid", "pid", "params", "params_grad"],
    "ReceiveGetMSG": ["pid_fid", "pid_caller", "pid"],
    "ReceiveParametersAckPDMSG": ["pid_fid", "params"],
    "ReceiveParametersPDMSG": ["pid_fid", "pid"],
    "ReceiveParticleInitAckPDMSG": [],
    "ReceiveParticleInitPDMSG": ["device", "pid", "mk_optim", "mk_scheduler", "prior", "train_key", "receive", "state"],
    "ReceiveRegisterAckPDMSG": [],
    "ReceiveRegisterPDMSG": ["pid", "msg", "fn", "state"],
}


def test_messages_have_their_arguments_as_attributes():
    assert sorted([*PUBLISHED, "MSG"]) == messages.__all__
    for name, want in PUBLISHED.items():
        kind = getattr(messages, name)
        assert list(inspect.signature(kind).parameters) == want and issubclass(kind, messages.MSG)
        values = [object() for _ in want]
        by_place, by_name = kind(*values), kind(**dict(zip(want, values, strict=True)))
        for message in (by_place, by_name):
            assert [getattr(message, field) for field in want] == values and repr(message).startswith(f"{name}(")
        with pytest.raises(TypeError):
            kind(*values, None)
        assert by_place != by_name, "messages with tensors have no equality"


def test_a_waitable_without_futures():
    with pytest.raises(NotImplementedError, match="wait: Waitable: it has no futures"):
        Waitable()._wait(0)


Pair = namedtuple("Pair", "a b")


class Bag(dict):
    note = None


def nested(x):
    bag = Bag(z=x)
    bag.note = "kept"
    return {"b": [x, {"c": (x, "text")}], "a": Pair(x, 3), 1: OrderedDict(y=x, x=None), "d": defaultdict(list, k=[x]), "e": bag, "f": torch.Size([2, 3])}


def check_kinds(made):
    assert list(made) == ["b", "a", 1, "d", "e", "f"] and list(made[1]) == ["y", "x"]
    assert type(made["a"]) is Pair and made["a"].b == 3 and type(made[1]) is OrderedDict and made[1]["x"] is None
    assert made["d"].default_factory is list and type(made["e"]) is Bag and made["e"].note == "kept" and type(made["f"]) is torch.Size
    assert type(made["b"][1]["c"]) is tuple and made["b"][1]["c"][1] == "text"


def test_detach_to_cpu_leaves_tuples_alone():
    x = torch.ones(2, requires_grad=True) * 2
    given = nested(x)
    made = utils.detach_to_cpu(given)
    check_kinds(made)
    for tensor in (made["b"][0], made[1]["y"], made["d"]["k"][0], made["e"]["z"]):
        assert not tensor.requires_grad and torch.equal(tensor, x)
    assert made["b"][1]["c"] is given["b"][1]["c"] and made["a"] is given["a"], "a tuple passes as it is"
    assert given["b"][0] is x and given["b"] is not made["b"], "what was given stays as it is"
    assert utils.detach_to_cpu(x).requires_grad is False
    for other in (3, "text", None, {1}, object):
        assert utils.detach_to_cpu(other) is other


@pytest.mark.parametrize("device", [0, "meta", torch.device("cpu")])
def test_to_device_keeps_the_graph(device):
    leaf = torch.ones(2, requires_grad=True)
    made = utils.to_device(device, nested(leaf * 2))
    check_kinds(made)
    for tensor in (made["b"][0], made["b"][1]["c"][0], made["a"].a, made[1]["y"], made["e"]["z"]):
        assert tensor.grad_fn is not None and tensor.device == torch_device(device)
    if torch_device(device).type == "cpu":
        made["a"].a.sum().backward()
        assert leaf.grad.tolist() == [2, 2]


def test_detach_to_device():
    leaf = torch.ones(2, requires_grad=True)
    plain, whole = torch.ones(2), torch.ones(2, dtype=torch.int64)
    made = utils.detach_to_device(0, nested(leaf * 2))
    check_kinds(made)
    for tensor in (made["b"][0], made["b"][1]["c"][0], made["a"].a):
        assert not tensor.requires_grad
    graph, fresh, number, same = utils.detach_to_device(0, (leaf * 2, plain, whole, leaf), requires_grad=True)
    assert graph.grad_fn is not None and fresh.requires_grad and fresh.is_leaf and not number.requires_grad and same.requires_grad
    assert not plain.requires_grad, "the caller's tensor stays as it is"
    (graph.sum() + fresh.sum()).backward()
    assert leaf.grad.tolist() == [2, 2] and fresh.grad.tolist() == [1, 1] and plain.grad is None


def test_containers_that_contain_themselves_are_refused():
    endless = [1]
    endless.append({"again": endless})
    for call in (utils.detach_to_cpu, lambda v: utils.to_device(0, v), lambda v: utils.detach_to_device(0, v)):
        with pytest.raises(stepvan.InvalidError, match="value: a list contains itself"):
            call(endless)
        shared = [torch.ones(1)]
        assert len(call([shared, shared])) == 2  # twice is not within itself


def test_numbers_of_devices(monkeypatch):
    if torch.cuda.is_available():
        pytest.skip("this machine has a device of CUDA")
    assert torch_device(0) == torch_device(3) == torch.device("cpu")
    for wrong in (-1, True, 1.5, None, "nowhere", []):
        with pytest.raises(stepvan.InvalidError, match="device is "):
            torch_device(wrong)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert torch_device(1) == torch.device("cuda", 1)
    with pytest.raises(stepvan.InvalidError, match="device is 2: torch has 2 devices of cuda"):
        torch_device(2)
