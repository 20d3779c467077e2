"""Programs written for StepMesh, unchanged but for the device."""

import inspect

import pytest

import fserver_lib
import stepvan

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
def test_a_program(run, workers):
    from conftest import environment

    settings = environment(workers)
    scheduler = run(SCHEDULER, {**settings, "DMLC_ROLE": "scheduler"})
    rounds = 10
    server = run(SERVER.format(workers=workers, batches=3 * rounds), {**settings, "DMLC_ROLE": "server"})
    clients = [run(WORKER.format(rounds=rounds), {**settings, "DMLC_ROLE": "worker", "DMLC_NODE_RANK": str(i)}) for i in range(workers)]
    assert [c.result() for c in clients] == ["done\n"] * workers
    server.result()
    scheduler.result()


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
    assert "no worker" in server.result()


def test_signatures():
    """Those of the original, and both of its names for the workers in a barrier."""
    wanted = {
        "init": "(plugin='')",
        "stop": "()",
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
