"""stepvan.join, in processes of their own."""

import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import pytest
from conftest import free_port

import stepvan


@pytest.fixture
def run(run_with_torch):
    return run_with_torch


PROGRAM = """
    import sys, stepvan, torch
    node = stepvan.join(timeout=float(sys.argv[1]), **eval(sys.argv[2]))
    print(node.peer.rank, node.peer.size, flush=True)
"""

SUM = PROGRAM + """
    with node:
        x = torch.full((3,), float(node.peer.rank))
        got = node.peer.group(range(node.peer.size)).all_gather(x.numpy().tobytes(), 30)
        print(sum(torch.frombuffer(bytearray(b), dtype=torch.float32)[0].item() for b in got), flush=True)
"""


def job(size, port, **more):
    """The environments of the processes of a job, as torchrun makes them."""
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "STEPVAN_LOG_LEVEL": "error", **more}
    return [{"RANK": str(rank), "LOCAL_RANK": str(rank), **shared} for rank in range(size)]


def test_one_job(run):
    programs = [run(SUM, settings, "60", "{}") for settings in job(3, free_port() - 1)]
    assert [p.line() for p in programs] == ["0 3", "1 3", "2 3"]
    assert [p.line() for p in programs] == ["3.0"] * 3
    for p in programs:
        p.result()


def test_two_jobs(run):
    cluster = f"127.0.0.1:{free_port()}"
    here = [run(SUM, s, "60", f"dict(host={cluster!r}, peers=3)") for s in job(2, free_port() - 1)]
    there = run(SUM, {"STEPVAN_LOG_LEVEL": "error"}, "60", f"dict(cluster={cluster!r}, peers=3)")
    programs = [*here, there]
    assert [p.line() for p in programs] == ["0 3", "1 3", "2 3"]
    assert [p.line() for p in programs] == ["3.0"] * 3
    for p in programs:
        p.result()


def test_slurm(run):
    for settings in job(2, port := free_port() - 1):
        rank = settings.pop("RANK")
        settings.update(SLURM_PROCID=rank, SLURM_NTASKS=settings.pop("WORLD_SIZE"))
        program = run(SUM, settings, "60", "{}")
        if rank == "0":
            first = program
    assert (first.line(), program.line()) == ("0 2", "1 2") and port
    first.result()
    program.result()


def test_a_process_group(run):
    code = """
        import sys, torch.distributed as d
        d.init_process_group("gloo")
        import stepvan
        with stepvan.join(timeout=60) as node, stepvan.join(d.new_group([0, 1]), timeout=60) as again:
            print(node.peer.rank, again.peer.size, flush=True)
            node.barrier(timeout=30)
    """
    programs = [run(code, settings) for settings in job(2, free_port())]
    assert [p.line() for p in programs] == ["0 2", "1 2"]
    for p in programs:
        p.result()


def test_the_death_of_the_host_ends_the_cluster(run):
    code = PROGRAM + """
        import time
        while True:
            try:
                node.check()
            except stepvan.PeerLostError as error:
                print(time.time(), error.subject, flush=True)
                break
            time.sleep(0.01)
        node.close()
    """.replace("\n    ", "\n")
    programs = [run(code, settings, "60", "{}") for settings in job(2, free_port() - 1)]
    assert [p.line() for p in programs] == ["0 2", "1 2"]
    killed = time.time()
    programs[0].process.kill()
    when, subject = programs[1].line().split(maxsplit=1)
    assert subject.startswith("scheduler") and float(when) - killed < 2
    programs[1].result()


def test_wrong_totals(run):
    cluster = f"127.0.0.1:{free_port()}"
    code = """
        import sys, stepvan
        try:
            stepvan.join(timeout=2, **eval(sys.argv[1]))
        except stepvan.Error as error:
            print(type(error).__name__, str(error).replace(chr(10), " "))
    """
    quiet = {"STEPVAN_LOG_LEVEL": "off"}
    first = run(code, quiet, f"dict(host={cluster!r}, peers=2)")
    other = run(code, quiet, f"dict(cluster={cluster!r}, peers=3)")
    assert "STEPVAN_NUM_PEER is peers" in other.result()
    expired = first.result()
    assert expired.startswith("ExpiredError") and "peer 1: not registered yet" in expired
    assert expired.rstrip().endswith("(stepvan.join: STEPVAN_NUM_PEER is peers; STEPVAN_START_TIMEOUT is timeout)")
    absent = run(code, quiet, f"dict(cluster='127.0.0.1:{free_port()}', peers=3)").result()
    assert absent.startswith("ExpiredError") and "scheduler" in absent


@pytest.mark.parametrize(
    ("environ", "arguments", "message"),
    [
        ({"RANK": "0"}, {}, "half set: RANK without WORLD_SIZE, MASTER_ADDR, MASTER_PORT"),
        ({"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "a"}, {}, "half set: RANK and WORLD_SIZE without MASTER_PORT"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, {}, "half set: SLURM_PROCID and SLURM_NTASKS without MASTER_ADDR"),
        ({"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, {}, "RANK is 2 and WORLD_SIZE is 2"),
        ({"RANK": "x", "WORLD_SIZE": "1"}, {}, "RANK is 'x'"),
        ({"MASTER_PORT": "x"}, {}, "MASTER_PORT is 'x'"),
        ({}, {"host": True, "cluster": "a:1", "peers": 2}, "host and cluster"),
        ({}, {"host": True}, "peers is missing"),
        ({}, {"cluster": "a:1"}, "peers is missing"),
        ({}, {"cluster": "a", "peers": 2}, "cluster is 'a': it must be 'address:port'"),
        ({}, {"host": "a:99999", "peers": 2}, "host is 'a:99999'"),
        ({}, {"cluster": "a:1", "peers": 1}, "peers is 1: it must be how many"),
        ({}, {"peers": 0}, "peers is 0"),
        ({}, {"timeout": -1}, "timeout is -1"),
        ({}, {"group": 5}, "group is 5: it must be a process group"),
    ],
)
def test_wrong_arguments(monkeypatch, environ, arguments, message):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(stepvan.InvalidError, match=message):
        stepvan.join(**arguments)


def test_a_process_alone(monkeypatch):
    monkeypatch.setenv("STEPVAN_LOG_LEVEL", "error")
    with stepvan.join(timeout=20) as node:
        assert (node.peer.rank, node.peer.size) == (0, 1) and node.cluster.startswith("127.0.0.1:")
    node = stepvan.join(timeout=20)
    node.close()


def test_a_job_too_many(run):
    cluster = f"127.0.0.1:{free_port()}"
    code = """
        import sys, stepvan
        try:
            stepvan.join(timeout=60, **eval(sys.argv[1]))
        except stepvan.RemoteError as error:
            print(error, flush=True)
    """
    quiet = {"STEPVAN_LOG_LEVEL": "off"}
    host = run(code, quiet, f"dict(host={cluster!r}, peers=3)")
    jobs = [run(code, quiet, f"dict(cluster={cluster!r}, peers=3)") for _ in range(2)]  # each is the third peer
    with ThreadPoolExecutor() as pool:
        refused = next(as_completed([pool.submit(p.line) for p in jobs]))
        for p in (host, *jobs):
            p.process.kill()
    assert "peer rank 2 is taken" in refused.result() and "more processes have come than peers says" in refused.result()
