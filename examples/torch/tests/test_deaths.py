"""What the connector does and says when a process dies in the middle, with the real stepvan."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from conftest import EXAMPLE
from test_processes import pytestmark  # noqa: F401

sys.path.append(str(EXAMPLE.parents[1] / "python" / "tests"))

import preloaded  # noqa: E402


class Peer:
    """A process with a connector that runs commands."""

    def __init__(self, parent, environment, role, rank, *options):
        code = preloaded.running(str(EXAMPLE / "tests" / "peer.py"))
        environment = {**environment, "DMLC_ROLE": role, "DMLC_NODE_RANK": str(rank)}
        self.process = parent.converse(code, environment, options)

    def begin(self, line):
        self.process.stdin.write(line + "\n")

    def end(self):
        return self.process.stdout.readline().rstrip("\n")

    def __call__(self, line):
        self.begin(line)
        return self.end()

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def with_torch():
    parent = preloaded.Parent()
    yield parent
    parent.close()


@pytest.fixture
def cluster(with_torch):
    """Starts a scheduler, workers and servers; none of them survives the test."""
    started, reserved = [], []

    def start(workers, servers, policy, van, options=None):
        s = socket.socket()  # keeps the port for the scheduler, which sets SO_REUSEADDR as well
        reserved.append(s)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("DMLC_", "STEPVAN_"))}
        environment = {
            **clean,
            "DMLC_NUM_WORKER": str(workers),
            "DMLC_NUM_SERVER": str(servers),
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(port),
            "STEPVAN_BATCH": policy,
            "STEPVAN_VAN": van,
            "STEPVAN_LOG_LEVEL": "error",
            "STEPVAN_START_TIMEOUT": "60s",
        }
        started.append(subprocess.Popen([sys.executable, "-m", "stepvan", "scheduler"], env=environment))
        options = options or {}
        peers = [Peer(with_torch, environment, "worker", i, *options.get(i, [])) for i in range(workers)]
        peers += [Peer(with_torch, environment, "server", i) for i in range(servers)]
        started.extend(p.process for p in peers)
        for peer in peers:
            assert "stepvan.Node" in peer.end()
        return peers[:workers], peers[workers:]

    yield start
    for process in started:
        process.kill()
        process.wait()
    for s in reserved:
        s.close()


def leave(*peers):
    """All close their connectors: none of them hangs, and those that notice a loss report it."""
    for peer in peers:
        peer.begin("connector.close()")
    return [peer.end() for peer in peers]


LOST = "PeerLostError"
vans = pytest.mark.parametrize("van", ["shm", "tcp"])


@vans
def test_others_go_on_without_a_worker(cluster, van):
    (worker, dying), (server,) = cluster(2, 1, "any", van)
    assert dying("send(2)") == "None"
    assert server("take()") == "[2.0]"
    dying.kill()
    assert worker("send(1)") == "None"
    assert server("take()") == "[1.0]"
    assert server("answer()") == "None"
    assert worker("recv()") == "10.0"
    assert server("answer()") == "None"  # an answer to a dead worker is no error
    assert worker("send(3, stage=1, layer=1)") == "None"
    assert server("take()") == "[3.0]"
    assert server("answer()") == "None"
    assert worker("recv()") == "30.0"
    server.begin("take()")
    worker.begin("connector.close()")
    assert server.end().startswith("ClosedError")  # an orderly end
    assert leave(server) == ["None"]
    assert worker.end() == "None"


@vans
def test_a_merged_answer_reaches_those_who_live(cluster, van):
    (worker, dying), (server,) = cluster(2, 1, "lockstep", van)
    assert worker("send(1)") == dying("send(2)") == "None"
    assert server("take()") == "[1.0, 2.0]"
    worker.begin("recv()")
    dying.kill()
    answered, received = server("answer()"), worker.end()
    # Either side may learn of the death first. Nobody hangs, and nobody gets a wrong sum.
    assert answered == "None" or LOST in answered and "worker 1" in answered
    assert received == "10.0" or LOST in received and "worker 1" in received


@vans
@pytest.mark.parametrize("policy", ["any", "lockstep"])
def test_a_dead_server(cluster, policy, van):
    (worker,), (server, dying) = cluster(1, 2, policy, van)
    assert worker("send(1)") == worker("send(2, stage=1)") == "None"
    assert server("take()") == dying("take()") == "[1.0]"
    assert server("answer()") == "None"
    worker.begin("recv()")
    dying.kill()
    told = worker.end()
    assert LOST in told and "server 1" in told
    assert LOST in worker("recv()")  # the other stage
    assert "nothing is in flight" in worker("recv()")
    assert LOST in worker("send(3)")  # every server gets all rows: without one there is no sum
    for said in leave(server, worker):  # a request of stage 1 is unanswered at the server
        assert said == "None" or LOST in said


@vans
def test_a_dead_worker_in_lockstep_ends_all(cluster, van):
    (worker, dying), (server,) = cluster(2, 1, "lockstep", van)
    assert worker("send(1)") == "None"
    worker.begin("recv()")
    server.begin("take()")
    dying.kill()
    for said in (worker.end(), server.end(), server("take()"), worker("send(2) or recv()")):
        assert LOST in said and "worker 1" in said
    assert all(LOST in said for said in leave(worker, server))


@vans
@pytest.mark.parametrize("policy", ["any", "lockstep"])
def test_a_worker_with_another_configuration_is_refused(cluster, policy, van):
    (worker, other), (server,) = cluster(2, 1, policy, van, {1: ["hidden_size=6"]})
    assert worker("send(1)") == other("send(2)") == "None"
    assert server("take()") == "[1.0]"
    assert server("answer()") == "None"
    assert worker("recv()") == "10.0"
    server.begin("take()")
    assert other("recv()").startswith("RefusedError about '': server 0 has refused stage 0: worker 1 sent ")
    for peer in (worker, other):
        peer.begin("connector.close()")
    assert server.end().startswith("ClosedError")
    assert leave(server) == [worker.end()] == [other.end()] == ["None"]
