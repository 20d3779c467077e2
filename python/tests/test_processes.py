"""Processes: spawned, forked, killed, left."""

import multiprocessing
import pathlib
import signal
import subprocess
import sys
import textwrap

import pytest
import torch

import stepvan
from conftest import environment

SERVER = """
import stepvan, sys
with stepvan.Node() as node:
    for batch in node.server:
        for request in batch:
            request.respond([t * 2 for t in request.tensors])
"""


def test_across_processes(run, scheduler):
    settings = scheduler(workers=2)
    server = run("import torch\n" + SERVER, {**settings, "DMLC_ROLE": "server"})
    code = """
        import stepvan, torch
        with stepvan.Node() as node:
            print(node.peers[0].van, node.peers[0].reason)
            for n in [1, 1000, 1_000_000]:
                x, y = torch.rand(n), torch.empty(n)
                node.worker.push_pull([x], [1], [y], [2]).wait(20)
                assert torch.equal(y, x * 2)
                x, y = node.empty(n, torch.float32).fill_(n), node.empty(n, torch.float32)
                node.worker.push_pull([x], [1], [y], [2]).wait(20)
                assert torch.equal(y, x * 2)
        """
    workers = [run(code, {**settings, "DMLC_ROLE": "worker"}) for _ in range(2)]
    assert [w.result() for w in workers] == ["shm same machine\n"] * 2
    server.result()


def test_numpy_is_used_without_torch(run, scheduler):
    settings = scheduler()
    server = run(SERVER + "assert 'torch' not in sys.modules", {**settings, "DMLC_ROLE": "server"})
    worker = run(
        """
        import stepvan, numpy as np, ml_dtypes
        with stepvan.Node() as node:
            for dtype in [np.float32, np.uint16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]:
                x, y = np.ones((2, 3), dtype), np.zeros((2, 3), dtype)
                node.worker.push_pull([x], [1], [y], [2]).wait(20)
                assert (y == np.full((2, 3), 2, dtype)).all(), y
        """,
        {**settings, "DMLC_ROLE": "worker"},
    )
    worker.result()
    server.result()


@pytest.mark.parametrize("imports", ["import stepvan, torch", "import torch, stepvan", "import numpy, stepvan, torch, ml_dtypes", "import stepvan; from torch import nn"])
def test_imports_in_any_order(run, scheduler, imports):
    program = run(
        f"""
        {imports}
        import stepvan, torch
        stepvan.init()
        x, y = torch.ones(3), torch.zeros(3)
        handler = stepvan.push_pull([x], [1], [y], [2])
        (request, tensors, keys), = stepvan.get_batch()
        assert isinstance(tensors[0], torch.Tensor)
        stepvan.respond([tensors[0] @ torch.ones(3, 3)], request)
        stepvan.wait(handler)
        assert y.tolist() == [3, 3, 3]
        stepvan.stop()
        """,
        {**scheduler(), "DMLC_ROLE": "joint"},
    )
    program.result()


def _spawned(settings, role, results):
    node = stepvan.Node({**settings, "DMLC_ROLE": role})
    if role == "server":
        for batch in node.server:
            for request in batch:
                request.respond([request.tensors[0] * 2])
    else:
        y = torch.zeros(4)
        node.worker.push_pull([torch.ones(4)], [1], [y], [2]).wait(20)
        results.put(y.tolist())
    node.stop(20)


def test_multiprocessing_spawn(scheduler):
    settings = scheduler()
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=_spawned, args=(settings, role, results)) for role in ("server", "worker")]
    for p in processes:
        p.start()
    assert results.get(timeout=30) == [2, 2, 2, 2]
    for p in processes:
        p.join(30)
        assert p.exitcode == 0


def test_a_forked_child_gets_an_error(run, scheduler):
    program = run(
        """
        import os, stepvan, torch
        stepvan.init()
        x = stepvan.zeros(4, torch.float32)
        handler = stepvan.push_pull([x], [1], [torch.zeros(4)], [2])
        pid = os.fork()
        if pid == 0:
            for call in [
                lambda: stepvan.push_pull([x], [2], [x], [3]),
                lambda: stepvan.wait(handler),
                lambda: stepvan.get_batch(timeout=1),
                lambda: stepvan.barrier(True, True),
                lambda: stepvan.stop(),
                lambda: stepvan.Node(),
                lambda: stepvan.empty(4, torch.float32),
            ]:
                try:
                    call()
                    raise SystemExit(3)
                except stepvan.ForkedError as error:
                    assert "spawn" in str(error)
            del x
            raise SystemExit(0)  # an ordinary exit, with all that runs then
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        (request, tensors, _), = stepvan.get_batch()
        stepvan.respond([tensors[0] + 1], request)
        stepvan.wait(handler)
        stepvan.stop()
        print("the parent went on")
        """,
        {**scheduler(), "DMLC_ROLE": "joint"},
    )
    assert program.result() == "the parent went on\n"


EXCHANGE = """
def work():
    f.init()
    x, y = torch.ones(3), torch.zeros(3)
    handler = f.push_pull([x], [1], [y], [2])
    (request, tensors, keys), = f.get_batch()
    f.respond([tensors[0] + 1], request)
    f.wait(handler)
    assert y.tolist() == [2, 2, 2]
    f.stop()
"""


def ports(scheduler):
    """The ports of two clusters that await a joint process each."""
    return [scheduler()["DMLC_PS_ROOT_PORT"] for _ in range(2)]


@pytest.mark.parametrize("order", ["parent first", "child first", "both at once"])
def test_import_then_fork(run, scheduler, order):
    """An import does not load the library: parent and child may both use stepvan, each in a cluster of its own."""
    program = run(
        f"""
        import os, sys, torch, fserver_lib as f
{textwrap.indent(EXCHANGE, " " * 8)}
        order, ports = {order!r}, sys.argv[1:]
        go, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            if order == "parent first":
                os.read(go, 1)
            os.environ["DMLC_PS_ROOT_PORT"] = ports[0]
            work()
            os._exit(0)
        os.environ["DMLC_PS_ROOT_PORT"] = ports[1]
        if order == "parent first":
            work()
            os.write(tell, b".")
        elif order == "both at once":
            work()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        if order == "child first":
            work()
        print("good")
        """,
        {**environment(), "DMLC_ROLE": "joint"},
        *ports(scheduler),
    )
    assert program.result() == "good\n"


def test_import_then_fork_by_multiprocessing(run, scheduler):
    program = run(
        f"""
        import multiprocessing, os, sys, torch, fserver_lib as f
{textwrap.indent(EXCHANGE, " " * 8)}
        def at(port):
            os.environ["DMLC_PS_ROOT_PORT"] = port
            work()
        children = [multiprocessing.get_context("fork").Process(target=at, args=(port,)) for port in sys.argv[1:]]
        for child in children:
            child.start()
        for child in children:
            child.join()
            assert child.exitcode == 0
        print("good")
        """,
        {**environment(), "DMLC_ROLE": "joint"},
        *ports(scheduler),
    )
    assert program.result() == "good\n"


@pytest.mark.parametrize(
    ("use", "named"),
    [
        ("stepvan.get_nanosecond()", "get_nanosecond()"),
        ("stepvan._core.version()", "the version of the library"),
        ("stepvan.init()", "init() or Node()"),
    ],
)
def test_the_error_of_a_forked_child_names_the_first_use(run, use, named):
    program = run(
        f"""
        import os, stepvan
        try:
            {use}
        except stepvan.ConfigError:
            pass
        stepvan.get_nanosecond()
        pid = os.fork()
        if pid == 0:
            for call in stepvan.init, stepvan.Node, stepvan.get_nanosecond:
                try:
                    call()
                    os._exit(3)
                except stepvan.ForkedError as error:
                    print(error, flush=True)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        """
    )
    lines = program.result().splitlines()
    assert len(lines) == 3 and all(f"first for {named}:" in line and "spawn" in line for line in lines), lines


def test_a_child_that_executes_a_program(run, scheduler):
    program = run(
        """
        import stepvan, subprocess, sys
        stepvan.init()
        subprocess.run([sys.executable, "-c", "import stepvan; print(stepvan.get_nanosecond() > 0)"], check=True)
        stepvan.stop()
        """,
        {**scheduler(), "DMLC_ROLE": "joint"},
    )
    assert program.result() == "True\n"


@pytest.mark.parametrize("how", ["pass", "raise SystemExit(0)", "handler = stepvan.push_pull([torch.zeros(9)], [1], [torch.zeros(9)], [2])",
                                 "threading.Thread(target=stepvan.get_batch, daemon=True).start(); time.sleep(0.1)",
                                 "request = stepvan.Node", "x = stepvan.zeros(4, torch.float32)"])
def test_exit_without_stop(run, scheduler, how):
    program = run(
        f"""
        import stepvan, threading, time, torch
        stepvan.init()
        {how}
        """,
        {**scheduler(), "DMLC_ROLE": "joint"},
    )
    program.result(timeout=20)


def test_exit_while_a_server_waits(run, scheduler):
    settings = scheduler()
    server = run(
        """
        import stepvan
        node = stepvan.Node()
        try:
            node.server.get_batch()
        except stepvan.Error as error:
            print(type(error).__name__)
        """,
        {**settings, "DMLC_ROLE": "server"},
    )
    run("import stepvan; stepvan.init()", {**settings, "DMLC_ROLE": "worker"}).result(timeout=20)
    assert server.result() in ("PeerLostError\n", "ClosedError\n")


def test_a_lost_peer(run, scheduler):
    settings = scheduler()
    server = run(
        "import stepvan; node = stepvan.Node(); b = node.server.get_batch(); print('ready', flush=True); node.server.get_batch()",
        {**settings, "DMLC_ROLE": "server"},
    )
    worker = run(
        """
        import stepvan, torch
        node = stepvan.Node()
        handle = node.worker.push_pull([torch.zeros(1)], [1], [torch.zeros(1)], [2])
        try:
            handle.wait(20)
        except stepvan.PeerLostError as error:
            assert isinstance(error, ConnectionError)
            print(error.subject)
        for call in [node.check, node.stop]:
            try:
                call()
            except stepvan.Error as error:
                print(type(error).__name__)
        """,
        {**settings, "DMLC_ROLE": "worker"},
    )
    assert server.line() == "ready"
    server.process.send_signal(signal.SIGKILL)
    assert worker.result().split("\n")[0] == "server 0"


@pytest.mark.parametrize("victim", ["worker", "server"])
def test_errors_are_about_the_dead(run, scheduler, victim):
    settings = scheduler()
    waits = "import stepvan, time; node = stepvan.Node(); print('ready', flush=True); time.sleep(60)"
    tells = """
        import stepvan, torch, time
        node = stepvan.Node()
        print('ready', flush=True)
        while True:
            try:
                node.check()
                time.sleep(0.01)
            except stepvan.PeerLostError as error:
                print(error.subject)
                break
        if node.worker:
            calls = [lambda: node.worker.push_pull([torch.zeros(1)], [1], [], []), node.barrier, node.stop]
        else:
            calls = [lambda: node.server.get_batch("any"), node.barrier, node.stop]
        for call in calls:
            try:
                call()
            except stepvan.PeerLostError as error:
                print(error.subject)
        """
    role = {"worker": waits if victim == "worker" else tells, "server": waits if victim == "server" else tells}
    nodes = {name: run(code, {**settings, "DMLC_ROLE": name}) for name, code in role.items()}
    assert [node.line() for node in nodes.values()] == ["ready", "ready"]
    nodes.pop(victim).process.send_signal(signal.SIGKILL)
    (other,) = nodes.values()
    assert other.result().split("\n")[:-1][-4:] == [f"{victim} 0"] * 4


def test_wrong_settings():
    with pytest.raises(stepvan.ConfigError) as info:
        stepvan.Node({**environment(), "DMLC_ROLE": "wrker"})
    assert isinstance(info.value, ValueError) and info.value.subject == "DMLC_ROLE"
    with pytest.raises(stepvan.ConfigError) as info:
        stepvan.Node({**environment(), "DMLC_ROLE": None})
    assert "DMLC_ROLE" in str(info.value)
    with pytest.raises(stepvan.InvalidError):
        stepvan.Node({"DMLC_ROLE": 7})


def test_the_environment_of_the_moment(run):
    """Also what the program itself has set, after the import."""
    program = run(
        """
        import os, stepvan
        try:
            stepvan.init()
        except stepvan.ConfigError as error:
            print(error.subject)
        os.environ["DMLC_ROLE"] = "wrker"
        try:
            stepvan.init()
        except stepvan.ConfigError as error:
            print("wrker" in str(error))
        """
    )
    first, second = program.result().split()
    assert first.startswith("DMLC_") and second == "True"


def test_the_command(run):
    import subprocess, sys

    done = subprocess.run([sys.executable, "-m", "stepvan", "version"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and stepvan._core.version() in done.stdout
    assert subprocess.run([sys.executable, "-m", "stepvan", "nothing"], capture_output=True, timeout=30).returncode == 2
    alone = subprocess.run([sys.executable, "-m", "stepvan"], capture_output=True, text=True, timeout=30)
    assert alone.returncode == 0 and "Usage:" in alone.stdout, alone.stderr


def test_the_command_launches_programs(tmp_path):
    import subprocess, sys

    program = tmp_path / "program.py"
    text = """
import stepvan, torch
with stepvan.Node() as node:
    if node.role == "worker":
        x, y = torch.rand(128, 4096), torch.empty(128, 4096)
        node.worker.push_pull([x], [1], [y], [2]).wait()
        print("equal", torch.equal(y, x * 2))
    elif node.role == "server":
        for batch in node.server:
            for request in batch:
                request.respond([request.tensors[0] * 2])
"""
    program.write_text(text)
    command = [sys.executable, "-m", "stepvan", "launch", "-n", "2w1s", "--", sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("equal True") == 2


def test_interrupts_in_the_background():
    """The tests of Ctrl-C pass in a process that was started to ignore it, as a job in the background is."""
    test = str(pathlib.Path(__file__).with_name("test_waiting.py")) + "::test_interrupts[wait]"
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "pytest", "-q", test],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout
