"""The nodes that ``stepvan bench`` measures."""

import ctypes
import importlib.util
import json
import queue
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from stepvan._bench import nixl_peer
from stepvan._bench.refit import Refit, Share
from stepvan._bench.spec import Spec, answer_to
from stepvan._bench.work import Asker, Part, Words, Work, draw


def bench(*arguments):
    command = [sys.executable, "-m", "stepvan", "bench", "--json", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=50)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workload", "echo", "--van", "shm,unix"],
        ["--workload", "echo", "--van", "tcp", "--inflight", "3", "--workers", "2"],
        ["--workload", "afd", "--van", "shm", "--push", "4KiB,8KiB", "--pull", "8KiB,2KiB"],
        ["--workload", "afd", "--van", "shm", "--in-place"],
        ["--workload", "fanout", "--van", "shm", "--servers", "2", "--pin", "1"],
        ["--workload", "weights", "--van", "shm", "--push", "1MiB"],
        ["--workload", "batch", "--van", "shm", "--workers", "2", "--inflight", "3"],
        ["--workload", "echo", "--van", "shm,tcp", "--think", "100us,1us-50us,90%1us+10%100us"],
        ["--workload", "echo", "--van", "shm", "--fresh", "--push", "4KiB"],
        ["--workload", "afd", "--van", "shm", "--think", "100us", "--push", "12", "--pull", "16"],
        ["--workload", "afd", "--van", "shm", "--fresh", "--think", "50us", "--push", "4KiB", "--workers", "1"],
        ["--workload", "afd", "--van", "shm", "--fresh", "--in-place", "--push", "4KiB", "--workers", "2"],
    ],
    ids=" ".join,
)
def test_workloads(arguments):
    """Answers are checked before anything is measured."""
    done = bench(*arguments, "--nodes", "go,numpy", "--count", "20", "--rounds", "3")
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        report = json.loads(line)
        assert report["p50_us"] > 0 and report["percentiles"]["count"] >= 20
        assert (report["limit"] == "go nodes") == ("nodes" in report)
    assert done.stdout.count('"nodes":"numpy"') == done.stdout.count("\n") / 2


def test_gloo():
    """Resharding by torch.distributed moves the same elements, which it checks itself."""
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    for more in ["--dim=0"], ["--dim=1", "--rows=256"]:
        done = bench("--workload", "refit", "--van", "tcp", "--peer", "gloo", "--bytes", "4MiB", "--count", "4", "--rounds", "2", "--to", "tp3", *more)
        assert done.returncode == 0, done.stderr
        own, gloo = map(json.loads, done.stdout.splitlines())
        assert gloo["nodes"] == "gloo" and gloo["limit"] == "go nodes"
        assert own["push_bytes"] == gloo["push_bytes"] > 0
        assert gloo["p50_us"] > 0 and gloo["ratio"] > 0


def share_of(destination, moves):
    return Share({"destination": destination, "bytes": 4096, "moves": moves})


def move_of(parameter=3, at=64):
    side = {"at": at, "strides": [8, 1]}
    return {"id": 1, "peer": 0, "extent": [4, 2], "mine": side, "theirs": side, "parameter": parameter, "global": [10, 20]}


def test_elements_follow_from_their_place():
    """As in bench/refit: parameter, row, column and version decide."""
    moves = share_of(True, [move_of()]).moves
    values = moves[0].values(2)
    assert values[1, 1] == (3 * 7919 + 2 * 257 + 11 * 40503 + 21 * 3) % 65536
    assert moves[0].size == 16


class Copying(Refit):
    """It moves nothing, or what belongs there."""

    def __init__(self, share, works):
        super().__init__(0, share, np.zeros(2048, np.uint16))
        self._works = works

    def run_once(self):
        if self._works and self.share.receives:
            for move in self.share.moves:
                self.view(move)[...] = move.values(self.version)


def test_a_wrong_element_is_found():
    moves = [move_of(), move_of(parameter=4, at=1024)]
    done = Copying(share_of(True, moves), works=True)
    assert done.check(1)["memory"] > 0
    assert done.prepared()["moved"] == 32 and done.prepared()["pairs"] == 1
    done.measure(3)
    assert len(done.report()["ends"]) == 4
    with pytest.raises(AssertionError, match="parameter 3 from peer 0 is wrong"):
        Copying(share_of(True, moves), works=False).check(1)
    Copying(share_of(False, moves), works=False).check(1)


def test_idle():
    done = bench("--workload", "idle", "--van", "shm", "--nodes", "numpy", "--count", "1")
    assert done.returncode == 0, done.stderr
    [report] = map(json.loads, done.stdout.splitlines())
    assert report["waiting_cpu"] > 0


@pytest.mark.parametrize("arguments", [[], ["--think", "50us", "--fresh"]], ids=" ".join)
def test_torch(arguments):
    done = bench("--workload", "echo", "--van", "shm", "--nodes", "torch", "--count", "20", "--rounds", "2", *arguments)
    assert done.returncode == 0, done.stderr
    [report] = map(json.loads, done.stdout.splitlines())
    assert report["nodes"] == "torch" and report["ratio"] > 0 and report["over_go_us"] != 0


@pytest.mark.parametrize(("size", "want"), [(3, [3, 4, 5]), (7, [3, 4, 5, 3, 4, 5, 3]), (2, [2 + 4 + 1, 3 + 1]), (1, [2 + 3 + 4 + 1])])
def test_answers(size, want):
    """As in Go: the bytes again and again, or sums of them, each with the mark."""
    assert answer_to(np.array([2, 3, 4], np.uint8), size, 1).tolist() == want


def test_answers_wrap_around():
    assert answer_to(np.array([255, 255], np.uint8), 1, 3) == [1]


@pytest.mark.skipif(importlib.util.find_spec("nixl") is not None, reason="NIXL is there")
def test_without_nixl():
    done = bench("--workload", "echo", "--van", "shm", "--peer", "nixl", "--count", "20", "--rounds", "2")
    assert done.returncode != 0
    assert " has no NIXL, which --peer nixl needs" in done.stderr
    assert "pip install --no-deps nixl-cu12==1.5.1 nixl==1.5.1 numpy" in done.stderr
    [report] = map(json.loads, done.stdout.splitlines())
    assert "nodes" not in report


@pytest.mark.skipif(importlib.util.find_spec("nixl") is None, reason="NIXL is not there")
@pytest.mark.parametrize("workload", ["echo", "afd"])
@pytest.mark.parametrize("work", [[], ["--think", "50us-100us"], ["--fresh"]], ids=" ".join)
def test_nixl(workload, work):
    done = bench("--workload", workload, "--van", "shm,tcp", "--peer", "nixl", "--count", "20", "--rounds", "2", *work)
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r.get("nodes") for r in reports] == [None, "nixl"] * 2


class FakeAgent:
    """As much of NIXL as a measurement needs, between two threads."""

    def __init__(self, boxes, name, config):
        self._boxes, self._name = boxes, name
        self._boxes[name] = queue.SimpleQueue()

    def create_backend(self, *arguments):
        pass

    def register_memory(self, *arguments, **options):
        pass

    def get_agent_metadata(self):
        return self._name.encode()

    def add_remote_agent(self, card):
        assert card.decode() in self._boxes

    def get_xfer_descs(self, descriptors, memory):
        return descriptors[0]

    def initialize_xfer(self, what, own, far, other, message, backends):
        assert (what, own[1]) == ("WRITE", far[1])
        return [own, far, other, message, 0]

    def transfer(self, handle):
        handle[-1] = 2
        return self.check_xfer_state(handle)

    def check_xfer_state(self, handle):
        own, far, other, message, polls = handle
        if polls > 0:
            handle[-1] -= 1
            return "PROC"
        ctypes.memmove(far[0], own[0], own[1])
        self._boxes[other].put((self._name, message))
        return "DONE"

    def get_new_notifs(self):
        try:
            name, message = self._boxes[self._name].get(timeout=0.01)
        except queue.Empty:
            return {}
        return {name: [message]}


@pytest.fixture
def peers(monkeypatch, tmp_path):
    """Makes a server and a worker of agents that are not NIXL's."""
    boxes = {}
    module = SimpleNamespace(nixl_agent=lambda name, config: FakeAgent(boxes, name, config), nixl_agent_config=lambda **options: options)
    monkeypatch.setattr(nixl_peer, "load", lambda: module)
    monkeypatch.setenv("UCX_TLS", "")

    def make(workload, push, pull, work=Work()):
        spec = Spec(workload=workload, van="shm", workers=1, push=push, pull=pull, inflight=1, in_place=False, work=work)
        return [nixl_peer.NixlPeer(role, tmp_path, spec) for role in ("server", "worker")]

    return make


THINK = (Part(0.5, 1_000, 1_000), Part(0.5, 10_000, 50_000))


@pytest.mark.parametrize(
    ("workload", "push", "pull", "work"),
    [
        ("echo", 8, 8, Work()),
        ("afd", 300, 600, Work()),
        ("afd", 600, 300, Work()),
        ("echo", 8, 8, Work(THINK)),
        ("echo", 80, 80, Work(fresh=True)),
        ("afd", 8, 16, Work(THINK, True)),
    ],
)
def test_exchanges_of_a_peer(monkeypatch, peers, workload, push, pull, work):
    monkeypatch.setattr(nixl_peer.NixlPeer, "_watched", lambda self: threading.Lock())  # signals are the main thread's
    server, worker = peers(workload, push, pull, work)

    def serve():
        server.check(3)
        server.measure(5)

    thread = threading.Thread(target=serve)
    thread.start()
    worker.check(3)
    reply = worker.measure(5)
    thread.join(10)
    assert not thread.is_alive()
    assert len(worker.times) == 5 and min(worker.times) > 0 and reply["elapsed"] >= sum(worker.times)


def test_a_peer_sees_wrong_bytes(monkeypatch, peers):
    monkeypatch.setattr(nixl_peer.NixlPeer, "_watched", lambda self: threading.Lock())
    server, worker = peers("afd", 8, 16)
    thread = threading.Thread(target=server.measure, args=(1,))  # answers with what is there
    thread.start()
    with pytest.raises(AssertionError, match="byte 0 of the answer of server 0 is wrong"):
        worker.check(1)
    thread.join(10)


def test_a_peer_whose_other_is_silent(monkeypatch, peers):
    monkeypatch.setattr(nixl_peer, "PATIENCE", 0.05)
    _, worker = peers("echo", 8, 8)
    with pytest.raises(TimeoutError, match="no exchange with the server has ended for"):
        worker.measure(5)


def test_draws():
    times = draw(THINK)
    drawn = [next(times) for _ in range(1000)]
    assert set(drawn) > {1_000} and all(t == 1_000 or 10_000 <= t <= 50_000 for t in drawn)
    assert 400 < drawn.count(1_000) < 600
    again = draw(THINK)
    assert drawn == [next(again) for _ in range(1000)]
    assert next(draw(())) == 0


def test_fresh_bytes():
    """Bytes of another exchange are noticed, wherever they are."""
    work, push, answer = Work(THINK, True), np.zeros(64, np.uint8), np.zeros(128, np.uint8)
    asker = Asker(work, push, [answer])
    pushed, written = Words(push, True), Words(answer, True)
    asker.write(1_000)
    old = push.copy()
    asker.write(1_000)
    assert (old.view(np.uint64) != push.view(np.uint64)).all()
    work.answer(pushed, written)
    asker.read()
    for at in range(8, 64, 8):
        push[at : at + 8], kept = old[at : at + 8], push[at : at + 8].copy()
        with pytest.raises(AssertionError, match="the pushed bytes are not those that the other side wrote"):
            work.answer(pushed, written)
        push[at : at + 8] = kept
    answer[120:] = 0
    with pytest.raises(AssertionError, match="answer 0 is not that to the push"):
        asker.read()
