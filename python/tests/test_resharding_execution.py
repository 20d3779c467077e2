"""How plans are executed: errors before anything is sent, quantized parameters, second copies, services."""

import dataclasses
import logging
from types import SimpleNamespace

import pytest
import torch

import stepvan
from stepvan.resharding import ReshardPlan, ReshardTransform, TransferOp, execute_reshard_plan, execution, version_of

S = slice


class Local:
    """Copies within this process. It does without a barrier."""

    requires_process_group_barrier = False

    def __init__(self):
        self.sends, self.recvs, self.runs = [], [], []
        self.fail = None

    def submit_send(self, tensor, dest_rank, task_id=None):
        self.sends.append((tensor, dest_rank, task_id))

    def submit_recv(self, tensor, src_rank, task_id=None):
        self.recvs.append((tensor, src_rank, task_id))

    def run(self):
        sends, recvs, self.sends, self.recvs = self.sends, self.recvs, [], []
        self.runs.append((sends, recvs))
        if self.fail is not None:
            for tensor, _, _ in recvs[: len(recvs) // 2]:
                tensor.fill_(-1)
            raise self.fail
        places = {}
        for tensor, _, task in sends:
            places.setdefault(task, []).append(tensor)
        for tensor, _, task in recvs:
            source = places[task].pop(0)
            assert (source.dtype, source.shape) == (tensor.dtype, tensor.shape)
            tensor.copy_(source)


def module(**tensors):
    found = torch.nn.Module()
    for name, tensor in tensors.items():
        found.register_parameter(name, tensor if isinstance(tensor, torch.nn.Parameter) else torch.nn.Parameter(tensor))
    return found


def plan(*ops, **more):
    """A plan of one rank with itself. An operation is its name, both slices, and perhaps its batch."""
    sends, recvs = [], []
    for task, (name, mine, theirs, *batch) in enumerate(ops):
        sends.append(TransferOp(name, 0, True, mine, theirs, task, *batch))
        recvs.append(TransferOp(name, 0, False, theirs, mine, task, *batch))
    return ReshardPlan(sends, recvs, **more)


ALL = (S(None), S(None))
HALVES = [(S(0, 2), S(None)), (S(2, 4), S(None))]
COLUMNS = [(S(None), S(0, 3)), (S(None), S(3, 6))]


def numbers(seed=0):
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))


class Quantized(torch.nn.Parameter):
    """A parameter that has its values in another form, as those of transformer engines are."""

    def __new__(cls, values):
        found = super().__new__(cls, torch.zeros_like(values, dtype=torch.bfloat16), False)
        found.values, found.calls = values.clone(), []
        return found

    def quantize_(self, values):
        self.calls.append(values.data_ptr())
        self.values = values.clone()

    def dequantize(self):
        self.calls.append("dequantize")
        return self.values.float()


# ------------------------------------------------------------------------------------------------------ what arrives


@pytest.mark.parametrize("parts", [[ALL], HALVES, COLUMNS])
def test_slices_land_where_they_belong(parts):
    src, dst, service = module(w=numbers()), module(w=torch.zeros(4, 6)), Local()
    execute_reshard_plan(plan(*[("w", part, part) for part in parts]), src, dst, service)
    assert torch.equal(src.w, dst.w)
    (_, recvs), at = service.runs[0], dst.w.data_ptr()
    direct = [at <= tensor.data_ptr() < at + 96 for tensor, _, _ in recvs]
    assert direct == [parts is not COLUMNS] * len(parts)
    assert all(not tensor.requires_grad and tensor.is_contiguous() for tensor, _, _ in (*service.runs[0][0], *recvs))


def test_strided_slices_land_in_place_where_the_service_takes_them():
    src, dst, service = module(w=numbers()), module(w=torch.zeros(4, 6)), Local()
    service.accepts_strides = True
    execute_reshard_plan(plan(*[("w", part, part) for part in COLUMNS]), src, dst, service)
    assert torch.equal(src.w, dst.w)
    assert [tensor.stride() for tensor, _, _ in service.runs[0][1]] == [(6, 1)] * 2
    assert [tensor.data_ptr() for tensor, _, _ in service.runs[0][0]] == [src.w.data_ptr(), src.w.data_ptr() + 12]


def test_quantized_destinations_are_quantized_once():
    for parts in ([ALL], HALVES, COLUMNS):
        src, dst, service = module(w=numbers().to(torch.bfloat16)), module(w=Quantized(torch.zeros(4, 6))), Local()
        execute_reshard_plan(plan(*[("w", part, part) for part in parts]), src, dst, service)
        assert len(dst.w.calls) == 1 and torch.equal(dst.w.values, src.w.detach())
        assert all(tensor.dtype == torch.bfloat16 for tensor, _, _ in service.runs[0][1])


def test_quantized_sources_are_dequantized_once():
    src, dst, service = module(w=Quantized(numbers())), module(w=torch.zeros(4, 6, dtype=torch.bfloat16)), Local()
    execute_reshard_plan(plan(*[("w", part, part) for part in HALVES]), src, dst, service)
    assert src.w.calls == ["dequantize"] and torch.equal(dst.w, src.w.values.to(torch.bfloat16))
    execute_reshard_plan(plan(*[("w", part, part) for part in HALVES]), src, dst, service)
    assert src.w.calls == ["dequantize"] * 2


def test_accumulators_are_made_once():
    pending, param = {}, Quantized(numbers())
    buffer, slices = execution._get_mxfp8_accumulator(pending, param)
    assert (buffer.dtype, buffer.shape, slices, param.calls) == (torch.bfloat16, (4, 6), [], [])
    slices.append(ALL)
    again, same = execution._get_mxfp8_accumulator(pending, param)
    assert again is buffer and same is slices and list(pending) == [id(param)] and pending[id(param)] == (param, buffer, slices)
    assert execution._get_mxfp8_accumulator(pending, Quantized(numbers()))[0] is not buffer


def test_writebacks_have_published_fields():
    names = [field.name for field in dataclasses.fields(execution._Writeback)]
    assert names == ["kind", "recv_buffer", "dst_param", "dst_slice", "param_name", "recv_bufs"]
    assert vars(execution._Writeback("direct")) == dict.fromkeys(names[1:]) | {"kind": "direct"}
    assert isinstance(execution.logger, logging.Logger)


def test_types_that_the_plan_allows_to_differ():
    src, dst = module(w=numbers()), module(w=torch.zeros(4, 6, dtype=torch.bfloat16))
    execute_reshard_plan(plan(("w", ALL, ALL), buffer_dtypes={"w": torch.float32}), src, dst, Local())
    assert torch.equal(dst.w, src.w.to(torch.bfloat16))


def test_caches_are_refreshed():
    src, dst = module(w=numbers()), module(w=torch.zeros(4, 6))
    dst.inner = torch.nn.Module()
    seen = []
    dst.inner.refresh_cache = lambda: seen.append(dst.w.detach().clone())
    dst.refresh_cache = "not a function"
    execute_reshard_plan(plan(("w", ALL, ALL)), src, dst, Local())
    assert len(seen) == 1 and torch.equal(seen[0], src.w)


def test_batches_end_one_after_the_other():
    src, dst, service = module(a=numbers(1), b=numbers(2)), module(a=torch.zeros(4, 6), b=Quantized(torch.zeros(4, 6))), Local()
    seen, run = [], service.run
    service.run = lambda: (seen.append((float(dst.a.sum()), len(dst.b.calls))), run())
    steps = plan(*[("b", part, part, 0) for part in COLUMNS], ("a", ALL, ALL, 2), num_batches=3, buffer_dtypes={"b": torch.float32})
    execute_reshard_plan(steps, src, dst, service)
    assert seen == [(0, 0), (0, 1), (0, 1)]
    assert torch.equal(dst.a, src.a) and torch.equal(dst.b.values, src.b.to(torch.bfloat16))
    assert [len(recvs) for _, recvs in service.runs] == [2, 0, 1]
    service.supports_incremental_runs = False
    execute_reshard_plan(steps, src, dst, service)
    assert len(service.runs) == 4 and len(service.runs[3][1]) == 3


# ------------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(src=module(v=numbers())), "'w': the plan sends it, and the source does not have it"),
        (dict(dst=module(v=numbers())), "'w': the plan receives it, and the destination does not have it"),
        (dict(src=None), "the plan sends it"),
        (dict(dst=None), "the plan receives it"),
        (dict(src=module(w=torch.zeros(3, 6))), "'w': a slice leaves the tensor"),
        (dict(dst=module(w=torch.zeros(4, 2, 3))), "'w': its slices do not fit"),
        (dict(plan=plan(("w", HALVES[0], HALVES[0]), ("w", HALVES[1], HALVES[0]))), "'w': an element comes twice"),
        (dict(dst=module(w=Quantized(numbers())), plan=plan(("w", HALVES[0], HALVES[0]))), r"it is quantized, and the plan does not bring all of it \(12 elements are missing\)"),
        (dict(dst=module(w=Quantized(numbers())), plan=plan(("w", HALVES[0], HALVES[0], 0), ("w", HALVES[1], HALVES[1], 1), num_batches=2)), "several batches"),
        (dict(plan=plan(("w", ALL, ALL, 1))), r"its batch is not there \(got 1 of 1\)"),
        (dict(plan=plan(("w", ALL, ALL), num_batches=0)), "the plan has no batch"),
        (dict(service=SimpleNamespace(submit_send=print, submit_recv=print)), "service: it has no method run"),
        (dict(src=torch.zeros(2)), "src_module: it is not a module"),
        (dict(missing="ignore"), "missing is wrong"),
        (dict(version=0), "version is wrong"),
    ],
)  # fmt: skip
def test_errors_come_before_anything_is_sent(change, message):
    service = Local()
    dst = module(w=torch.zeros(4, 6))
    call = {"plan": plan(*[("w", part, part) for part in HALVES]), "src": module(w=numbers()), "dst": dst, "service": service, **change}
    execute_reshard_plan(plan(("w", ALL, ALL)), module(w=numbers(1)), dst, Local(), version=3)
    with pytest.raises(stepvan.InvalidError, match=message):
        execute_reshard_plan(call.pop("plan"), call.pop("src"), call.pop("dst"), call.pop("service"), **call)
    assert service.sends == service.recvs == service.runs == []
    assert torch.equal(dst.w, numbers(1)) and version_of(dst) == 3


def test_tensors_that_the_plan_was_not_made_for():
    form = execution.TensorForm("w", torch.float32, torch.float32, (4, 6))
    made = plan(*[("w", part, part) for part in HALVES], rank=0, sources={"w": form}, destinations={"w": form})
    for src, dst in [(numbers().double(), numbers()), (numbers(), numbers().half()), (torch.zeros(5, 6), numbers())]:
        with pytest.raises(stepvan.InvalidError, match=r"'w': it is not what the plan was made for .*make a new plan at every rank"):
            execute_reshard_plan(made, module(w=src), module(w=dst), Local())


def test_what_is_missing_may_be_passed_over():
    src, dst, service = module(a=numbers(1), b=numbers(2)), module(a=torch.zeros(4, 6), b=torch.zeros(4, 6)), Local()
    both = plan(("a", ALL, ALL), ("b", ALL, ALL))
    del src._parameters["b"], dst._parameters["b"]
    execute_reshard_plan(both, src, dst, service, missing="skip")
    assert torch.equal(dst.a, src.a) and len(service.runs[0][0]) == len(service.runs[0][1]) == 1


def test_idle_ranks_run_too():
    service = Local()
    execute_reshard_plan(ReshardPlan([], [], num_batches=3), None, None, service)
    assert service.runs == [([], [])] * 3


def test_a_failure_leaves_version_0():
    src, dst, service = module(w=numbers()), module(w=torch.zeros(4, 6)), Local()
    halves = plan(*[("w", part, part) for part in HALVES])
    execute_reshard_plan(halves, src, dst, service, version=4)
    service.fail = ConnectionError("the peer died")
    with pytest.raises(ConnectionError):
        execute_reshard_plan(halves, src, dst, service, version=5)
    assert version_of(dst) == 0
    service.fail = None
    with pytest.raises(stepvan.InvalidError, match=r"version falls \(got 4, want at least 5\)"):
        execute_reshard_plan(halves, src, dst, service, version=4)
    execute_reshard_plan(halves, src, dst, service)
    assert version_of(dst) == 6 and torch.equal(dst.w, src.w)


# ------------------------------------------------------------------------------------------------------ second copies


def test_a_second_copy_is_swapped_in_when_it_is_whole():
    src, dst, service = module(w=numbers(), v=numbers(9)), module(w=torch.zeros(4, 6), v=torch.ones(4, 6)), Local()
    some = plan(*[("w", part, part) for part in COLUMNS], ("v", HALVES[0], HALVES[0]))
    param, seen, run = dst.w, [], service.run
    service.run = lambda: (run(), seen.append((dst.w.detach().clone(), version_of(dst))))
    places = set()
    for version in (1, 2, 3):
        src.w.data = numbers(version)
        before = dst.w.detach().clone()
        execute_reshard_plan(some, src, dst, service, version=version, atomic=True)
        assert torch.equal(seen[-1][0], before) and seen[-1][1] == version - 1  # while it arrived
        assert torch.equal(dst.w, src.w) and version_of(dst) == version and dst.w is param
        assert torch.equal(dst.v, torch.cat([src.v[:2], torch.ones(2, 6)]))
        places.add(dst.w.data_ptr())
    assert len(places) == 2
    service.fail = ConnectionError("the peer died")
    before = dst.w.detach().clone()
    with pytest.raises(ConnectionError):
        execute_reshard_plan(some, src, dst, service, version=4, atomic=True)
    assert torch.equal(dst.w, before) and version_of(dst) == 3
    service.fail = None
    execute_reshard_plan(some, src, dst, service, atomic=True)
    assert torch.equal(dst.w, src.w) and version_of(dst) == 5


def test_quantized_destinations_wait_for_all_batches():
    src, dst, service = module(a=numbers(1), b=numbers(2)), module(a=Quantized(torch.zeros(4, 6)), b=torch.zeros(4, 6)), Local()
    steps = plan(*[("a", part, part, 0) for part in COLUMNS], ("b", ALL, ALL, 1), num_batches=2, buffer_dtypes={"a": torch.float32})
    calls, run = [], service.run
    service.run = lambda: (run(), calls.append(len(dst.a.calls)))
    execute_reshard_plan(steps, src, dst, service, atomic=True)
    assert calls == [0, 0] and len(dst.a.calls) == 1
    assert torch.equal(dst.a.values, src.a.to(torch.bfloat16)) and torch.equal(dst.b, src.b)


# --------------------------------------------------------------------------------------------------------- transforms


class Twice(ReshardTransform):
    """Sends a slice and its double, and adds what arrives."""

    def __init__(self, sends=2, recvs=2):
        self.sends, self.recvs, self.calls = sends, recvs, []
        self.found = torch.zeros(4, 6)

    def should_transform(self, param_name):
        return param_name == "w"

    def prepare_send(self, param_name, src_slice, src_param):
        return [src_param[src_slice] * (i + 1) for i in range(self.sends)]

    def prepare_recv(self, param_name, dst_slice):
        return [torch.zeros(self.found[dst_slice].shape) for _ in range(self.recvs)]

    def finalize_recv(self, param_name, dst_slice, recv_buffers):
        self.found[dst_slice] = sum(recv_buffers)

    def begin_run(self):
        self.calls.append("begin")

    def end_run(self):
        self.calls.append("end")


@pytest.mark.parametrize("of_plan", [False, True])
def test_a_transform_replaces_slice_and_copy(of_plan):
    transform = Twice()
    src, dst = module(w=numbers(), v=numbers(1)), module(v=torch.zeros(4, 6))  # the transform has the place for w
    both = plan(*[("w", part, part) for part in HALVES], ("v", ALL, ALL), transform=transform if of_plan else None)
    execute_reshard_plan(both, src, dst, Local(), transform=None if of_plan else transform)
    assert torch.equal(transform.found, 3 * src.w.detach()) and torch.equal(dst.v, src.v)
    assert transform.calls == ["begin", "end"]


@pytest.mark.parametrize(("sends", "recvs", "more"), [(2, 1, "1 more sends"), (1, 3, "2 more receives"), (0, 1, "1 more receives")])
def test_counts_of_a_transform_that_differ(sends, recvs, more):
    service = Local()
    with pytest.raises(stepvan.InvalidError, match=rf"'w': the transform sends and receives other numbers of tensors \(got {more}\)"):
        execute_reshard_plan(plan(("w", ALL, ALL), rank=0), module(w=numbers()), module(w=numbers()), service, transform=Twice(sends, recvs))
    assert service.runs == service.sends == service.recvs == []


def test_a_service_may_take_whole_plans():
    src, dst, service = module(w=numbers()), module(w=torch.zeros(4, 6)), Local()
    calls, answer = [], [True]

    def whole(made, src_params, dst_params, transform):
        calls.append((made, sorted(src_params), sorted(dst_params), transform))
        if answer[0]:
            dst_params["w"].data.copy_(src_params["w"])
        return answer[0]

    service.execute_plan, service.set_plan = whole, lambda *args: calls.append(args)
    made = plan(("w", ALL, ALL))
    execute_reshard_plan(made, src, dst, service)
    assert calls == [(made, ["w"], ["w"], None)] and service.runs == [] and torch.equal(dst.w, src.w)
    src.w.data.mul_(2)
    answer[0] = False
    execute_reshard_plan(made, src, dst, service)
    assert calls[2:] == [(made, None)] and len(service.runs) == 1 and torch.equal(dst.w, src.w)


def test_barriers_are_those_of_the_group():
    count = []
    group = SimpleNamespace(barrier=lambda: count.append(1))
    for wants in (True, False, None):
        service = Local()
        if wants is None:
            service = SimpleNamespace(submit_send=service.submit_send, submit_recv=service.submit_recv, run=service.run)
        else:
            service.requires_process_group_barrier = wants
        count.clear()
        execute_reshard_plan(ReshardPlan([], [], num_batches=2), None, None, service, group)
        assert len(count) == (0 if wants is False else 2)
