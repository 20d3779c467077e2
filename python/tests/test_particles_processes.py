"""Particles in several processes, and what becomes of the others when one dies."""

import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from conftest import environment
from particle_town import RECEIVE, linear, sgd

import stepvan
from stepvan.particles.push import PusH

KNOWN_WITHIN = 2.0  # seconds
X, Y = torch.linspace(-1, 1, 12).reshape(4, 3), torch.linspace(0, 1, 4).reshape(4, 1)

SERVE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch, stepvan, particle_town
from stepvan.particles.push import serve
torch.set_num_threads(1)
try:
    with stepvan.Node() as node:
        serve(particle_town.linear, 3, multi=node)
        print("ended", flush=True)
except stepvan.Error as error:
    print(type(error).__name__, error.subject, error, flush=True)
"""

DRIVE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import stepvan, particle_town
from stepvan.particles.push import PusH
with stepvan.Node() as node, PusH(particle_town.linear, 3, multi=node) as push:
    push.p_create(None, device=1, receive=particle_town.RECEIVE)
    print("driving", flush=True)
    sys.stdin.read() if sys.stdin else None
    import time
    time.sleep(600)
"""


@pytest.fixture
def job(scheduler, run_with_torch):
    """Starts processes that serve, and gives a PusH in this process."""
    nodes, pushes = [], []

    def start(peers, van="shm"):
        settings = scheduler(0, 0, STEPVAN_NUM_PEER=str(peers), STEPVAN_VAN=van, DMLC_LOCAL="0" if van == "tcp" else "1")
        settings["DMLC_ROLE"] = "peer"
        programs = [run_with_torch(SERVE, {**settings, "DMLC_NODE_RANK": str(rank)}) for rank in range(1, peers)]
        nodes.append(stepvan.Node({**settings, "DMLC_NODE_RANK": "0"}))
        pushes.append(PusH(linear, 3, multi=nodes[-1]))
        return pushes[-1], programs

    yield start
    for push in pushes:
        push.close()
    for node in nodes:
        try:
            node.stop(30)
        except stepvan.Error:  # somebody died
            pass
        node.close()


@pytest.mark.parametrize("van", ["shm", "tcp"])
def test_processes_give_the_numbers_of_one(job, van):
    push, programs = job(3, van)
    pids = [push.p_create(sgd, train_key=i, device=i % 3, receive=RECEIVE) for i in range(4)]
    assert {peer.van for peer in push._node.peers if peer.role == "peer"} == {van}
    threads, _ = torch.get_num_threads(), torch.set_num_threads(1)
    values = push.p_wait([push.p_launch(pid, "train", X, Y, 3) for pid in pids])
    for pid, losses in zip(pids, values.values(), strict=True):
        torch.manual_seed(pid)
        module = linear()
        optimizer = sgd(module.parameters())
        for got in losses:
            module.zero_grad()
            loss = torch.nn.functional.mse_loss(module(X), Y)
            loss.backward()
            optimizer.step()
            assert got == loss.item()
        assert all(torch.equal(p, q) for p, q in zip(push.p_parameters(pid), module.parameters(), strict=True))
        params, grads = push.p_launch(pids[(pid + 1) % 4], "see", pid).wait()
        assert torch.equal(params[0], module.weight) and torch.equal(grads[0], module.weight.grad)
    torch.set_num_threads(threads)
    path = [1, 2, 0, 1, 2, 0, 3, 2, 1]
    assert push.p_launch(0, "pass_on", path).wait(30) == [0, *path]
    push.close()
    for program in programs:
        assert program.line() == "ended"


@pytest.mark.parametrize("van", ["shm", "tcp"])
def test_a_killed_loop_is_told_to_every_future_that_needs_it(job, van):
    push, programs = job(3, van)
    here, dies, stays = (push.p_create(None, device=i, receive=RECEIVE) for i in range(3))
    push.p_wait([push.p_launch(pid, "echo") for pid in (here, dies, stays)])
    waiting = {
        "the driver's": push.p_launch(dies, "hold"),
        "of a particle here": push.p_launch(here, "relay", dies, "hold"),
        "of a particle of a third process": push.p_launch(stays, "relay", dies, "hold"),
        "a view": push.nel.get(-1, dies),
        "a chain": push.p_launch(stays, "relay", here, "relay", dies, "hold"),
    }
    while push.nel.get(-1, stays).wait(30) is None:
        pass
    programs[0].process.send_signal(signal.SIGKILL)
    began = time.monotonic()
    told = {}

    def wait(name):
        try:
            told[name] = waiting[name].wait(30)
        except stepvan.Error as error:
            told[name] = error

    threads = [threading.Thread(target=wait, args=(name,)) for name in waiting]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < KNOWN_WITHIN
    view = told.pop("a view")  # which may have been there before
    assert not isinstance(view, stepvan.Error) or "peer 1" in str(view)
    for name, error in told.items():
        assert isinstance(error, stepvan.PeerLostError | stepvan.RemoteError) and "peer 1" in str(error), (name, error)
    assert isinstance(told["the driver's"], stepvan.PeerLostError) and told["the driver's"].subject == "peer 1"
    for pid in (here, stays):
        assert push.p_launch(pid, "echo", pid).wait(30) == (pid,), "the others go on"
    for call in (lambda: push.p_launch(dies, "echo").wait(30), lambda: push.nel.get(-1, dies).wait(30), lambda: push.p_parameters(dies)):
        with pytest.raises(stepvan.PeerLostError, match="peer 1"):
            call()


def test_a_process_that_serves_learns_that_the_driver_died(scheduler, run_with_torch):
    settings = {**scheduler(0, 0, STEPVAN_NUM_PEER="2"), "DMLC_ROLE": "peer"}
    driver = run_with_torch(DRIVE, {**settings, "DMLC_NODE_RANK": "0"})
    serving = run_with_torch(SERVE, {**settings, "DMLC_NODE_RANK": "1"})
    assert driver.line() == "driving"
    driver.process.send_signal(signal.SIGKILL)
    began = time.monotonic()
    assert serving.line().startswith("PeerLostError peer 0 ")
    assert time.monotonic() - began < KNOWN_WITHIN


def test_a_function_that_never_ends_is_named_at_the_close(cluster):
    c = cluster(0, 0, 1)
    push = PusH(linear, 3, multi=c.peers[0])
    pid = push.p_create(None)
    go, inside = threading.Event(), threading.Event()

    def endless(particle):
        inside.set()
        go.wait(60)

    push.nel.register_receive(pid, "endless", endless, None)
    future = push.p_launch(pid, "endless")
    assert inside.wait(30)
    with pytest.raises(stepvan.TimeoutError, match="endless"):
        push.close(0.2)
    with pytest.raises(stepvan.ClosedError):
        future.wait(30)
    go.set()
    push.nel.close(30)


def test_a_thread_that_stays_is_named_at_the_close(cluster, monkeypatch):
    c = cluster(0, 0, 1)
    push = PusH(linear, 3, multi=c.peers[0])
    pid = push.p_create(None, receive=RECEIVE)
    go, done = threading.Event(), stepvan._core.particle_done
    monkeypatch.setattr(stepvan._core, "particle_done", lambda *args: (done(*args), go.wait(60)))
    assert push.p_launch(pid, "echo", 1).wait(30) == (1,)
    with pytest.raises(stepvan.TimeoutError, match=r"close: threads have not ended \(stepvan particles 0\)"):
        push.close(0.1)
    go.set()
    push.nel.close(30)


def test_settings_of_a_job_do_not_reach_a_push_of_its_own(monkeypatch):
    for name, value in environment(0, 0, 5, DMLC_ROLE="peer", RANK="3", WORLD_SIZE="7", MASTER_ADDR="127.0.0.1", MASTER_PORT="1").items():
        monkeypatch.setenv(name, value)
    with PusH(linear, 3) as push:
        assert push.p_create(None, receive=RECEIVE) == 0 and push.p_launch(0, "echo", 1).wait() == (1,)
        future = push.p_launch(0, "echo", 2)
    with pytest.raises(stepvan.Error):
        push.p_launch(0, "echo", 1).wait()
    assert repr(future)


def test_an_error_of_the_program_ends_all():
    with pytest.raises(ZeroDivisionError), PusH(linear, 3) as push:
        pid = push.p_create(None, receive=RECEIVE)
        push.p_launch(pid, "echo", 1).wait()
        raise ZeroDivisionError
    with pytest.raises(stepvan.Error):
        push.p_launch(pid, "echo", 1).wait()
