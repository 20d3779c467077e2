"""Programs written for StepMesh, unchanged except for the device."""

import inspect
import textwrap

import pytest

import fserver_lib
import stepvan
from conftest import environment


@pytest.fixture
def run(run_with_torch):
    return run_with_torch


SERVER = """
import torch
import fserver_lib as f

f.init()
stages, workers = 3, {workers}
buffer = torch.zeros(stages * workers, 4, 16)
f.register_recv_buffer(buffer, [w for w in range(workers) for s in range(stages)], [s for w in range(workers) for s in range(stages)])
f.barrier(True, True)
for i in range({batches}):
    batch = f.get_batch()
    assert len(batch) == workers
    tensors_vec = [tensors for handler, tensors, keys in batch]
    handlers = [handler for handler, tensors, keys in batch]
    ret = torch.cat([tensors[0] for tensors in tensors_vec]) + 1
    if i % 2:
        f.respond_vec(ret, tensors_vec, handlers)
    else:
        at = 0
        for tensors, handler in zip(tensors_vec, handlers):
            f.respond([ret[at : at + tensors[0].shape[0]]], handler, True)
            at += tensors[0].shape[0]
f.stop()
"""

WORKER = """
import torch
import fserver_lib as f

f.init()
f.barrier(True, True)
stages = 3
for i in range({rounds}):
    handlers, pulls, pushes = [], [], []
    for s in range(stages):
        rows = 1 + (i + s) % 4
        pushes.append(torch.full((rows, 16), float(i)))
        pulls.append(torch.zeros(rows, 16))
        handlers.append(f.push_pull([pushes[s]], [s], [pulls[s]], [s | 1 << 24], need_event=True))
    for s, handler in enumerate(handlers):
        f.wait(handler, timeout_ms=10000)
        assert torch.equal(pulls[s], pushes[s] + 1)
        all_handlers = f.get_all_handlers(handler)
        assert len(all_handlers) == 2 and all_handlers[0] == handler
        for h in all_handlers:
            trace = f.fetch_trace(h)
            assert len(trace) == 8 and all(isinstance(t, int) and t > 0 for t in trace)
assert f.get_nanosecond() > 0
print("done")
f.stop()
"""

SCHEDULER = "import fserver_lib as f; f.init(); f.stop()"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_program(run_alone, workers):
    run, settings = run_alone, environment(workers)
    scheduler = run(SCHEDULER, {**settings, "DMLC_ROLE": "scheduler"})
    rounds = 10
    server = run(SERVER.format(workers=workers, batches=3 * rounds), {**settings, "DMLC_ROLE": "server"})
    clients = [run(WORKER.format(rounds=rounds), {**settings, "DMLC_ROLE": "worker", "DMLC_NODE_RANK": str(i)}) for i in range(workers)]
    assert [c.result() for c in clients] == ["done\n"] * workers
    server.result()
    scheduler.result()


PUSHER = """
import torch, fserver_lib as f
f.init()
for i in range(5):
    f.wait(f.push_pull([torch.full((3,), float(i))], [1], [], []))
    {then}
f.stop()
"""

TAKER = """
import torch, fserver_lib as f
f.init()
for i in range(5):
    (request, tensors, keys), = f.get_batch()
    assert tensors[0].eq(i).all() and keys == [1]
    {then}
f.stop()
"""


@pytest.mark.parametrize("worker, server", [
    ("pass", "pass"),  # the next get_batch, and stop, answer
    ("f.barrier(True, True)", "f.barrier(True, True)"),
    ("pass", "f.respond([], request)"),
    ("pass", "n = f.SimpleNotify(); n.init()"),
])
def test_pushes_without_pulls_are_answered_by_what_waits_next(run, scheduler, worker, server):
    settings = scheduler()
    programs = [
        run(PUSHER.format(then=worker), {**settings, "DMLC_ROLE": "worker"}),
        run(TAKER.format(then=server), {**settings, "DMLC_ROLE": "server"}),
    ]
    for program in programs:
        program.result()


def test_pushes_without_pulls_end_with_the_answer(run, scheduler):
    settings = scheduler()
    worker = run(
        """
        import torch, fserver_lib as f, stepvan
        f.init()
        handler = f.push_pull([torch.zeros(3)], [1], [], [])
        f.barrier(True, True)  # in which the server answers
        f.wait(handler)
        refused = f.push_pull([torch.zeros(2, 1024)], [7], [], [])
        try:
            f.wait(refused)
        except stepvan.RemoteError as error:
            print(error.subject, "register a larger one" in str(error))
        f.wait(f.push_pull([torch.ones(1)], [7], [], []))
        late = f.push_pull([torch.ones(1)], [8], [], [])
        try:
            f.wait(late, 50)
        except stepvan.TimeoutError as error:
            print(error.subject, "delivered, not answered" in str(error), "deadline" in str(error))
        f.barrier(True, True)
        f.wait(late)
        f.stop()
        """,
        {**settings, "DMLC_ROLE": "worker"},
    )
    server = run(
        """
        import torch, fserver_lib as f, stepvan
        f.init()
        f.register_recv_buffer(torch.zeros(1), [0], [7])
        f.get_batch()
        f.barrier(True, True)
        try:
            f.get_batch()
        except stepvan.RefusedError as error:
            print(error.subject, "register a larger one" in str(error))
        (handler, tensors, keys), = f.get_batch()
        assert keys == [7] and tensors[0].eq(1).all()
        (handler, tensors, keys), = f.get_batch()
        assert keys == [8]
        stepvan.barrier(True, True)  # stepvan's own, which answers nothing
        f.stop()
        """,
        {**settings, "DMLC_ROLE": "server"},
    )
    assert worker.result() == "server 0 True\nserver 0 True False\n"
    assert server.result() == "worker 0 True\n"


def test_keys_of_pushes_are_free_at_the_next_batch(run, scheduler):
    program = run(
        """
        import torch, fserver_lib as f
        f.init()
        for i in range(5):
            handler = f.push_pull([torch.full((3,), float(i))], [1], [], [])
            (request, tensors, keys), = f.get_batch()
            assert tensors[0].eq(i).all() and keys == [1]
            f.wait(handler)
            done = f.push_pull([torch.zeros(1)], [2], [torch.zeros(1)], [3])
            (request, tensors, keys), = f.get_batch()
            f.respond([torch.zeros(1)], request)
            f.wait(done)
        f.stop()
        f.stop()
        """,
        {**scheduler(), "DMLC_ROLE": "joint"},
    )
    program.result()


@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("instance", [True, False])
def test_barriers(run, scheduler, flags, instance):
    program = run(
        f"import fserver_lib as f; f.init(); f.barrier(*{flags}, {instance}); f.barrier(*{flags}); f.stop()",
        {**scheduler(), "DMLC_ROLE": "joint"},
    )
    program.result()


def test_a_barrier_of_nobody(run, scheduler):
    program = run(
        """
        import stepvan, fserver_lib as f
        f.init()
        try:
            f.barrier(False, False)
        except stepvan.InvalidError:
            print("refused")
        try:
            f.wait(12345)
        except stepvan.StaleError:
            print("stale")
        f.stop()
        """,
        {**scheduler(), "DMLC_ROLE": "joint"},
    )
    assert program.result() == "refused\nstale\n"


def test_notifications(run, scheduler):
    program = run(
        """
        import torch, fserver_lib as f
        f.init()
        notify = f.SimpleNotify()
        notify.init()
        y = torch.zeros(3)
        handler = f.push_pull([torch.ones(3)], [1], [y], [2])
        notify.block_now_stream_and_get_batch()
        (request, tensors, keys), = notify.get_future_batch_data()
        f.respond([tensors[0] * 2], request)
        notify.stream_wait_event(handler)
        assert y.eq(2).all()
        notify.wait_event_done()
        f.stop()
        """,
        {**scheduler(), "DMLC_ROLE": "joint"},
    )
    program.result()


def test_the_next_batch_is_asked_for_before_the_last_one_is_answered(run, scheduler):
    """In lock-step the workers send nothing before they have the answer, so asking must not wait."""
    program = run(
        """
        import threading, torch, fserver_lib as f
        f.init()
        rounds = 20

        def work():
            for i in range(rounds):
                y = torch.zeros(3)
                f.wait(f.push_pull([torch.full((3,), float(i))], [1], [y], [2]))
                assert y.eq(2 * i).all()

        worker = threading.Thread(target=work)
        worker.start()
        notify = f.SimpleNotify()
        notify.init()
        notify.block_now_stream_and_get_batch()
        for i in range(rounds):
            (request, tensors, keys), = notify.get_future_batch_data()
            if i + 1 < rounds:
                notify.block_now_stream_and_get_batch()
            f.respond([tensors[0] * 2], request)
        worker.join()
        f.stop()
        """,
        {**scheduler(), "DMLC_ROLE": "joint"},
    )
    program.result()


@pytest.mark.parametrize("copier", ["auto", "worker", "server"])
@pytest.mark.parametrize("van", ["shm", "tcp"])
def test_tensors_are_the_callers_after_respond(run, scheduler, van, copier):
    """The worker gets what the server has responded. The server fills its buffer again before the worker acts."""
    program = run(
        """
        import torch, fserver_lib as f, stepvan
        f.init()
        for n in (1, 5000, 450_000, 3 << 20):
            for make in (lambda: stepvan.empty((1, n), torch.float32), lambda: torch.empty(1, n)):
                pull, answer = make(), make()
                for i, vec in enumerate((False, True)):
                    handler = f.push_pull([torch.ones(1)], [1], [pull], [2])
                    (request, tensors, keys), = f.get_batch()
                    answer.fill_(i + 1)
                    if vec:
                        f.respond_vec(answer, [answer], [request])
                    else:
                        f.respond([answer], request)
                    answer.fill_(-1)
                    f.wait(handler, 20000)
                    assert pull.eq(i + 1).all(), (n, make, vec, pull.unique())
        f.stop()
        """,
        {**scheduler(STEPVAN_VAN=van, STEPVAN_RESPONSE_COPY=copier), "DMLC_ROLE": "joint"},
    )
    program.result()


@pytest.mark.parametrize("van", ["shm", "tcp"])
def test_respond_with_full_pools(run, scheduler, van):
    """Answers larger than what is left of the pool, while both sides send: respond waits for room, and comes back."""
    program = run(
        """
        import torch, fserver_lib as f
        f.init()
        n, stages = 3 << 20, 3
        f.register_recv_buffer(torch.zeros(stages, n), [0] * stages, list(range(stages)))
        pushes, pulls = [torch.empty(n) for _ in range(stages)], [torch.empty(n) for _ in range(stages)]
        answer = torch.empty(n)
        for i in range(4):
            handlers = [f.push_pull([pushes[s].fill_(10 * i + s)], [s], [pulls[s]], [s + 100]) for s in range(stages)]
            for s in range(stages):
                (request, tensors, keys), = f.get_batch()
                answer.copy_(tensors[0]).add_(1)
                f.respond([answer], request)
                answer.fill_(-1)
            for s in range(stages):
                f.wait(handlers[s], 20000)
                assert pulls[s].eq(10 * i + s + 1).all(), (i, s, pulls[s].unique())
        f.stop()
        """,
        {**scheduler(STEPVAN_VAN=van, STEPVAN_POOL_BYTES="1MiB"), "DMLC_ROLE": "joint"},
    )
    program.result()


def test_a_buffer_with_the_rows_of_one_worker_only(run, scheduler):
    """respond_vec says what the buffer must have, and leaves the requests to be answered."""
    program = run(
        """
        import torch, stepvan, fserver_lib as f
        f.init()
        pulls = [torch.zeros(2, 3) for _ in range(2)]
        handlers = [f.push_pull([torch.ones(2, 3)], [i], [pulls[i]], [i + 10]) for i in range(2)]
        batches = [f.get_batch()[0] for _ in range(2)]
        vec, requests = [tensors for _, tensors, _ in batches], [request for request, _, _ in batches]
        try:
            f.respond_vec(torch.ones(2, 3), vec, requests)
        except stepvan.InvalidError as error:
            print(error)
        both = torch.arange(12.0).view(4, 3)
        f.respond_vec(both, vec, requests)
        both.fill_(-1)
        for handler in handlers:
            f.wait(handler)
        assert pulls[0].flatten().tolist() == [0, 1, 2, 3, 4, 5] and pulls[1].flatten().tolist() == [6, 7, 8, 9, 10, 11]
        f.stop()
        """,
        {**scheduler(), "DMLC_ROLE": "joint"},
    )
    text = program.result()
    assert "(got 2, want 4)" in text and "give the rows of all 2 requests" in text, text


def test_buffers_of_a_worker(run, scheduler):
    """A buffer that is pushed and pulled in place, by views of it, as newer programs do."""
    program = run(
        """
        import torch, fserver, stepvan
        import fserver.fserver_lib as f
        import fserver_lib
        assert f.get_batch is fserver_lib.get_batch is fserver.f.get_batch
        f.init()
        cache = torch.zeros(1024)
        assert f.regist_push_pull_buffer(cache, [0], cache, [0]) is None
        f.regist_push_pull_buffer(push_tensor=torch.zeros(2), push_keys=[0], pull_tensor=cache, pull_keys=[0])
        for n in [3, 1024, 70]:
            x = cache[:n].fill_(n)
            handler = f.push_pull([x], [65536], [x], [65536], need_event=True)
            (request, tensors, keys), = f.get_batch()
            assert keys == [65536]
            f.respond([tensors[0] + 2], request, need_event=True)
            f.wait(handler, 10000)
            assert x.eq(n + 2).all()
        try:
            f.regist_push_pull_buffer(cache.view(32, 32).t(), [0], cache, [0])
        except stepvan.InvalidError as error:
            print(error)
        f.stop()
        """,
        {**scheduler(), "DMLC_ROLE": "joint"},
    )
    assert "not contiguous" in program.result()


def test_buffers_of_a_worker_need_one(run, scheduler):
    settings = scheduler()
    server = run(
        """
        import torch, stepvan, fserver_lib as f
        f.init()
        try:
            f.regist_push_pull_buffer(torch.zeros(1), [0], torch.zeros(1), [0])
        except stepvan.InvalidError as error:
            print(error)
        f.stop()
        """,
        {**settings, "DMLC_ROLE": "server"},
    )
    worker = run("import fserver_lib as f; f.init(); f.stop()", {**settings, "DMLC_ROLE": "worker"})
    worker.result()
    assert "not a worker" in server.result()


def test_signatures():
    """Those of the original, and both of its names for the workers in a barrier."""
    wanted = {
        "init": "(plugin='')",
        "stop": "()",
        "finalize": "()",
        "push_pull": "(push_tensors, push_keys, pull_tensors, pull_keys, need_event=True)",
        "wait": "(handler, timeout_ms=10000)",
        "get_all_handlers": "(handler)",
        "fetch_trace": "(handler)",
        "get_batch": "()",
        "respond": "(tensors, handler, need_event=False)",
        "respond_vec": "(ret_buffer, tensors_vec, handler_vec)",
        "register_recv_buffer": "(tensor, worker_ranks, push_keys)",
        "barrier": "(include_server, include_worker=None, instance_barrier=True, *, include_client=None)",
        "get_nanosecond": "()",
        "regist_push_pull_buffer": "(push_tensor, push_keys, pull_tensor, pull_keys)",
        "map_pinned_tensor": "(tensor, device_index)",
        "write_flag": "(flag, seq)",
        "wait_flag": "(flag, seq)",
        "seq_add_one": "(seq)",
        "cudagraph_set_config": "(num_micro_batch)",
        "cudagraph_regist_flag": "(flag)",
        "cudagraph_set_stage": "(stage)",
        "cudagraph_replay": "(g)",
        "capture_begin": "()",
        "capture_end": "()",
    }
    assert {*wanted, "SimpleNotify"} == set(fserver_lib.__all__)
    for name, want in wanted.items():
        signature = inspect.signature(getattr(fserver_lib, name))
        plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
        assert str(inspect.Signature(plain)) == want


def test_names_for_a_gpu_raise_a_clear_error():
    for name, arguments in [
        ("map_pinned_tensor", ([], 0)),
        ("write_flag", ([], [])),
        ("wait_flag", ([], [])),
        ("seq_add_one", ([],)),
        ("cudagraph_set_config", (3,)),
        ("cudagraph_regist_flag", ([],)),
        ("cudagraph_set_stage", (0,)),
        ("cudagraph_replay", (0,)),
        ("capture_begin", ()),
        ("capture_end", ()),
    ]:
        with pytest.raises(stepvan.NotSupportedError, match=f"{name} .* GPU"):
            getattr(fserver_lib, name)(*arguments)


def test_before_init():
    with pytest.raises(stepvan.InvalidError, match="init"):
        fserver_lib.push_pull([], [], [], [])
    fserver_lib.stop()


def test_plugins_are_refused():
    with pytest.raises(stepvan.NotSupportedError, match="libdevice.so"):
        fserver_lib.init("libdevice.so")


def test_barrier_is_told_about_workers():
    with pytest.raises(TypeError, match="include_worker"):
        fserver_lib.barrier(True)
    with pytest.raises(stepvan.InvalidError, match="init"):
        fserver_lib.barrier(include_server=True, include_client=True)


SERVES = """
import fserver_lib as f, stepvan, torch
f.init()
f.barrier(True, True)
try:
    while True:
        for handler, tensors, keys in f.get_batch():
            f.respond([tensors[0] + 1], handler)
except stepvan.ClosedError:
    print("all have left")
except stepvan.PeerLostError as error:
    print("lost", error.subject)
    raise SystemExit(7)
"""

ASKS = """
import atexit, fserver_lib as f, os, sys, torch
f.init()
f.barrier(True, True)
x, y = torch.ones(3), torch.zeros(3)
f.wait(f.push_pull([x], [1], [y], [2]))
assert y.tolist() == [2, 2, 2]
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [("pass", 0), ("sys.exit()", 0), ("sys.exit(0)", 0), ("raise SystemExit", 0), ("atexit.register(lambda: print('last'))", 0), ("f.finalize()", 0)],
)
def test_a_program_that_ends_well_without_stop_ends_in_order(run, scheduler, end, code):
    settings = scheduler()
    server = run(SERVES, {**settings, "DMLC_ROLE": "server"})
    run(ASKS + end, {**settings, "DMLC_ROLE": "worker"}).result(code)
    assert server.result() == "all have left\n"


@pytest.mark.parametrize(
    ("end", "code"),
    [("raise ValueError(1)", 1), ("sys.exit(3)", 3), ("raise SystemExit(3)", 3), ("sys.exit('no')", 1), ("os._exit(0)", 0), ("os.kill(os.getpid(), 9)", -9), ("raise KeyboardInterrupt", -2)],
)
def test_a_program_that_fails_without_stop_is_dead(run, scheduler, end, code):
    settings = scheduler()
    server = run(SERVES, {**settings, "DMLC_ROLE": "server"})
    run(ASKS + end, {**settings, "DMLC_ROLE": "worker"}).result(code)
    assert server.result(7) == "lost worker 0\n"


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize(("end", "code", "told"), [("pass", 0, "all have left\n"), ("sys.exit(0)", 0, "all have left\n"), ("1 / 0", 1, "lost worker 0\n"), ("sys.exit(3)", 3, "lost worker 0\n")])
def test_a_child_of_multiprocessing_ends_as_its_program_does(run, scheduler, tmp_path, method, end, code, told):
    settings = scheduler()
    server = run(SERVES, {**settings, "DMLC_ROLE": "server"})
    (tmp_path / "child.py").write_text("def work():\n" + textwrap.indent(ASKS + end, "    "))
    parent = run(
        f"""
        import multiprocessing, sys
        if __name__ == "__main__":
            sys.path.insert(0, {str(tmp_path)!r})
            import child
            process = multiprocessing.get_context({method!r}).Process(target=child.work)
            process.start()
            process.join()
            sys.exit(process.exitcode)
        """,
        {**settings, "DMLC_ROLE": "worker", "PYTHONPATH": str(tmp_path)},
    )
    parent.result(code)
    assert server.result(7 if "lost" in told else 0) == told


@pytest.mark.parametrize(("end", "told"), [("sys.exit(0)", "ClosedError"), ("raise ValueError", "PeerLostError"), ("sys.exit(2)", "PeerLostError")])
def test_a_node_ends_as_its_block_does(run, scheduler, end, told):
    settings = scheduler()
    server = run(
        """
        import stepvan
        node = stepvan.Node()
        try:
            node.server.get_batch()
        except stepvan.Error as error:
            print(type(error).__name__)
        try:
            node.stop()
        except stepvan.PeerLostError:
            pass
        """,
        {**settings, "DMLC_ROLE": "server"},
    )
    run(f"import stepvan, sys\nwith stepvan.Node() as node:\n    {end}", {**settings, "DMLC_ROLE": "worker"}).result(None)
    assert server.result() == told + "\n"


def test_logs_in_a_pipe_are_text(run, scheduler):
    program = "import fserver_lib as f; f.init(); f.stop()"
    settings = {**scheduler(), "DMLC_ROLE": "joint", "STEPVAN_LOG_LEVEL": "info"}
    text = run(program, settings)
    text.result()
    assert "has stopped" in text.error and not text.error.startswith("{")
    json = run(program, {**settings, **scheduler(), "STEPVAN_LOG_LEVEL": "info", "STEPVAN_LOG_FORMAT": "json"})
    json.result()
    assert json.error.startswith("{")


def test_the_clock_is_that_of_perf_counter(run, scheduler):
    program = run(
        """
        import time, torch, fserver_lib as f
        f.init()
        before = time.perf_counter_ns()
        assert before <= f.get_nanosecond() <= time.perf_counter_ns()
        x, y = torch.ones(3), torch.zeros(3)
        handler = f.push_pull([x], [1], [y], [2])
        (request, tensors, keys), = f.get_batch()
        f.respond([x], request)
        f.wait(handler)
        after = time.perf_counter_ns()
        trace = f.fetch_trace(handler)
        slack = 1_000_000  # of reading two clocks
        assert len(trace) == 8 and all(before - slack <= at <= after + slack for at in trace if at), (before, trace, after)
        assert sum(at != 0 for at in trace) >= 6
        f.stop()
        """,
        {**scheduler(), "DMLC_ROLE": "joint"},
    )
    program.result()


def test_names_of_the_forks():
    import fserver
    import fserver.fslib

    assert fserver.fslib.push_pull is fserver_lib.push_pull and fserver_lib.finalize is fserver_lib.stop
    for use in fserver.SMCudaGraph, fserver.AfdTensorCommunicator, fserver.AfdTensorCommunicatorV2, fserver.capture_begin:
        with pytest.raises(stepvan.NotSupportedError, match="GPU.*CPU"):
            use()
    assert not hasattr(fserver, "nonsense")


@pytest.mark.parametrize("backend", ["DCU", "klx"])
def test_backends_without_a_driver_are_refused(run, backend):
    program = run(
        """
        import fserver_lib as f, stepvan
        try:
            f.init()
        except stepvan.ConfigError as error:
            print(error.subject, "no driver for its devices: set CPU" in str(error))
        """,
        {**environment(), "DMLC_ROLE": "worker", "STEPMESH_BACKEND": backend},
    )
    assert program.result() == "STEPMESH_BACKEND True\n"
