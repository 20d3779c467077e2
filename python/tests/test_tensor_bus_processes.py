"""Agents of the tensor bus in processes of their own, and what becomes of the others when one stops or dies."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from conftest import environment

import stepvan
from stepvan.tensor_bus import TensorBusClient, _session


class Agents:
    """Agents, each in a process of its own, and clients of them in this one."""

    def __init__(self, folder, count, *arguments, **settings):
        self.settings = environment(0, 0, count, **settings)
        self.paths = [str(folder / f"{i}.sock") for i in range(count)]
        self.processes = [self.start("scheduler")]
        self.agents = [self.start("agent", "--socket", path, *arguments, rank=i) for i, path in enumerate(self.paths)]
        self.processes += self.agents
        self.clients = []

    def start(self, *command, rank=0):
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("DMLC_", "STEPVAN_"))}
        environ = {**inherited, **self.settings, "DMLC_NODE_RANK": str(rank)}
        return subprocess.Popen([sys.executable, "-m", "stepvan", *command], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def client(self, agent, rank=0, **options):
        self.clients.append(TensorBusClient(agent, path=self.paths[agent], rank=rank, **{"connection_timeout": 30, **options}))
        return self.clients[-1]

    def close(self):
        for c in self.clients:
            c.close()
        for p in reversed(self.processes):
            p.send_signal(signal.SIGCONT)
            p.terminate()
        for p in self.processes:
            p.kill() if self.ended(p) is None else None
            p.communicate()

    @staticmethod
    def ended(p):
        try:
            return p.wait(20)
        except subprocess.TimeoutExpired:
            return None


@pytest.fixture
def agents(tmp_path):
    made = []
    tmp_path.chmod(0o700)

    def start(count=2, *arguments, **settings):
        made.append(Agents(tmp_path, count, *arguments, **settings))
        return made[-1]

    yield start
    for a in made:
        a.close()


def together(*calls):
    """What calls return that wait for each other."""
    results = [None] * len(calls)

    def run(i):
        try:
            results[i] = calls[i]()
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    for r in results:
        if isinstance(r, Exception):
            raise r
    return results


def open_pair(a, b, name="weights", here=None, there=None):
    def one(client, local, remote, size, placements):
        return lambda: client.init_pair(name, local, remote, size, None if placements is None else (size,), placements)

    together(*(one(x, "training", "inference", len(a), here) for x in a), *(one(x, "inference", "training", len(b), there) for x in b))


def register(clients, tensors, batch="step", pair="weights"):
    def one(client, of):
        return lambda: client.register_tensors(batch, [(x, pair) for x in (of if isinstance(of, list) else [of])])

    return together(*(one(c, of) for c, of in zip(clients, tensors, strict=True)))


def exchange(send, recv):
    for r in [*(h.transfer("send") for h in send), *(h.transfer("recv") for h in recv)]:
        r.wait()


def memory_files(process):
    folder = f"/proc/{process.pid}/fd"
    found = 0
    for name in os.listdir(folder):
        try:
            found += "memfd:stepvan" in os.readlink(f"{folder}/{name}")
        except OSError:
            pass
    return found


@pytest.mark.parametrize("vans", ["shm", "tcp"])
def test_rounds(agents, vans):
    """A module with tied weights moves to where its agent reaches it, and stays the same."""
    x = agents(STEPVAN_VANS=vans)
    a, b = [x.client(0, 0), x.client(0, 1)], [x.client(1, 0), x.client(1, 1)]
    open_pair(a, b, here=[("shard", 0)], there=[("shard", 1)])
    models = [torch.nn.Linear(6, 10, bias=False), a[1].share_(torch.nn.Linear(6, 10, bias=False))]
    where = [m.weight.data_ptr() for m in models]
    tied = [m.weight.data[:5] for m in models]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.5) for m in models]
    targets = [b[0].empty((20, 3), torch.float32), torch.zeros(20, 3)]
    *out, one, two = register(a + b, [m.weight for m in models] + targets)
    for number in range(1, 4):
        for m, o in zip(models, optimizers, strict=True):
            m.weight.grad = torch.ones_like(m.weight)
            o.step()
        exchange(out, [one, two])
        whole = torch.cat([m.weight.data for m in models])
        assert torch.equal(torch.cat(targets, 1), whole)
        assert torch.equal(tied[0], models[0].weight.data[:5]) and one.query_status() == ("done", number, None)
    assert [m.weight.data_ptr() == at for m, at in zip(models, where, strict=True)] == [False, True]
    targets[1].add_(1)
    exchange([one, two], out)
    assert torch.equal(torch.cat([m.weight.data for m in models]), torch.cat(targets, 1))
    models[1].weight.data = models[1].weight.data.clone()
    with pytest.raises(stepvan.InvalidError, match="its memory was moved"):
        out[1].transfer("send")
    for h in (*out, one, two):
        h.close()


def test_memory_goes_back(agents):
    x = agents(1)
    c = x.client(0)
    open_pair([c], [d := x.client(0, 1)])
    before = memory_files(x.agents[0])
    arrays = [c.empty((100, 3), np.float32) for _ in range(5)] + [c.empty(0, "int32")]
    arrays[0][:] = 7
    target = d.empty((100, 3), torch.float32)
    out, into = register([c, d], [[arrays[0], torch.zeros(0)], [target, torch.zeros(0)]])
    exchange([out], [into])
    assert target.unique().tolist() == [7] and memory_files(x.agents[0]) > before + 4
    out.close()
    into.close()
    del arrays, target, out, into
    for client in c, d:
        client.query_status("none")
    deadline = time.monotonic() + 30
    while memory_files(x.agents[0]) > before + 2 and time.monotonic() < deadline:  # two hold tensors without elements
        time.sleep(0.01)
    assert memory_files(x.agents[0]) <= before + 2
    for private in np.zeros(3), np.zeros((2, 2), np.int8):
        with pytest.raises(stepvan.InvalidError, match=r"tensors\[0\]: it lies in private memory.*: make it with TensorBusClient.empty"):
            c.register_tensors("other", [(private, "weights")])
    with pytest.raises(stepvan.InvalidError, match="the largest is"):
        c.empty(1 << 62, "uint8")


def test_an_agent_that_is_stopped(agents, monkeypatch):
    """Every wait for it ends, and its partners do not wait for ever: they may have given it up."""
    monkeypatch.setattr(_session, "GRACE", 0.2)
    x = agents()
    a, b = x.client(0, silence=60.0), x.client(1)
    open_pair([a], [b])
    out, into = register([a, b], [torch.ones(3), torch.zeros(3)])
    x.agents[0].send_signal(signal.SIGSTOP)
    result = out.transfer("send")
    with pytest.raises(stepvan.TimeoutError, match="Transfer: it has not completed in time"):
        result.wait(0.1)
    with pytest.raises(stepvan.TimeoutError, match="it does not answer: is its process stopped"):
        a.init_pair("other", "x", "y", 1, timeout=0)
    with pytest.raises(stepvan.TimeoutError, match="it does not answer: is its process stopped"):
        x.client(0, 1, connection_timeout=0.2)
    with pytest.raises(stepvan.TimeoutError, match="it does not read what it is sent|it does not answer"):
        for i in range(10_000):  # until the socket is full
            a.init_pair(f"{i}" + "p" * 40, "x", "y", 1, blocking=False, timeout=0.3)
    x.agents[0].send_signal(signal.SIGCONT)
    try:
        into.transfer("recv", blocking=True)
    except stepvan.PeerLostError:
        assert into.query_status().state == "failed"
    else:
        assert into.query_status() == ("done", 1, None)


def test_an_agent_that_is_silent(agents):
    """Its clients give it up, whatever they wait for. One that lives may let commands wait for others."""
    x = agents(1)
    patient, a = x.client(0, silence=0.5), x.client(0, 1, silence=0.5)
    waiting = patient.init_pair("late", "x", "y", 1, blocking=False)
    with pytest.raises(stepvan.TimeoutError, match="InitPair: it has not completed in time: wait again"):
        waiting.wait(2)
    assert patient.query_status("none").state == "unknown"
    x.agents[0].send_signal(signal.SIGSTOP)
    silent = f"agent at {x.paths[0]}: it has been silent for 0.5 s.*have process {x.agents[0].pid} continue"
    for call in waiting.wait, lambda: a.query_status("none"), lambda: a.empty(3, "float32"):
        with pytest.raises(stepvan.PeerLostError, match=silent) as lost:
            call()
        assert lost.value.subject == f"agent at {x.paths[0]}"
    x.agents[0].send_signal(signal.SIGCONT)
    again = x.client(0, 2, silence=0.5)
    alone = again.init_pair("late", "x", "y", 1, blocking=False)
    x.agents[0].send_signal(signal.SIGSTOP)
    while not alone.done():  # nobody waits for it
        time.sleep(0.01)
    with pytest.raises(stepvan.PeerLostError, match="it has been silent for 0.5 s"):
        alone.wait()


def test_threads_of_one_client(agents):
    """One of them reads, and the others get their answers from it, also when it leaves."""
    x = agents(1)
    a, b = x.client(0), x.client(0, 1)
    waiting = [a.init_pair(f"p{i}", "x", "y", 1, blocking=False) for i in range(8)]
    early = threading.Thread(target=lambda: pytest.raises(stepvan.TimeoutError, waiting[0].wait, 0.3))
    early.start()
    ended = [threading.Thread(target=w.wait) for w in waiting]
    for t in ended:
        t.start()
    early.join(30)
    for i in reversed(range(8)):
        assert ended[i].is_alive()
        b.init_pair(f"p{i}", "y", "x", 1)
        ended[i].join(30)
        assert not ended[i].is_alive() and all(t.is_alive() for t in ended[:i])
    together(*[lambda: [a.query_status("none") for _ in range(200)]] * 4)


def test_an_agent_that_dies(agents):
    x = agents(3)
    a, b, c = x.client(0), x.client(1), x.client(2)
    open_pair([a], [b])
    open_pair([b], [c], "other")
    out, into = register([a, b], [torch.ones(1 << 20), torch.zeros(1 << 20)])
    keep, kept = register([b, c], [torch.ones(3), y := torch.zeros(3)], "other", "other")
    waiting = a.init_pair("late", "x", "y", 1, blocking=False)
    results = [out.transfer("send"), into.transfer("recv"), into.transfer("recv")]
    x.agents[0].kill()
    began = time.monotonic()
    with pytest.raises(stepvan.PeerLostError, match="agent at .*0.sock") as lost:
        waiting.wait()
    assert lost.value.subject == f"agent at {x.paths[0]}"
    with pytest.raises(stepvan.PeerLostError, match="peer 0") as lost:
        results[2].wait()
    assert lost.value.subject == "peer 0" and time.monotonic() - began < 2
    for call in lambda: out.transfer("send"), out.query_status, lambda: a.empty(3, "float32"), lambda: x.client(0, connection_timeout=0.2):
        with pytest.raises((stepvan.PeerLostError, stepvan.TimeoutError)):
            call()
    assert into.query_status().state == "failed"
    into.close()
    a.close()
    exchange([keep], [kept])  # what does not name it goes on
    assert torch.equal(y, torch.ones(3))


CLIENT = """
    import sys, torch
    from stepvan.tensor_bus import TensorBusClient
    c = TensorBusClient(0, path=sys.argv[1], rank=0)
    c.init_pair("weights", "training", "inference", 1)
    h = c.register_tensors("step", [(torch.arange(1000.0), "weights")])
    h.transfer("send", blocking=True)
    print("sent", flush=True)
    sys.stdin.readline()
    h.transfer("recv")
    print("waits", flush=True)
    c.init_pair("never", "x", "y", 1)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_client_that_dies(agents, run_with_torch, how):
    x = agents()
    b = x.client(1)
    program = run_with_torch(CLIENT, {}, x.paths[0])
    b.init_pair("weights", "inference", "training", 1, timeout=60)
    into = b.register_tensors("step", [(y := torch.zeros(1000), "weights")])
    into.transfer("recv", blocking=True)
    assert torch.equal(y, torch.arange(1000.0)) and program.line() == "sent"
    ahead = into.transfer("recv")
    again = x.client(0, 1)
    os.kill(program.process.pid, how)
    began = time.monotonic()
    with pytest.raises(stepvan.PeerLostError, match="a client of peer 0 has ended"):
        ahead.wait()
    assert time.monotonic() - began < 2
    program.result(None)
    into.close()
    open_pair([again], [b], "new")  # the agent serves others
    out, into = register([again, b], [torch.ones(3), y := torch.zeros(3)], "new", "new")
    exchange([out], [into])
    assert torch.equal(y, torch.ones(3))


def test_both_jobs_at_one_agent(agents):
    x = agents(1, "--queue", "5")
    a, b = x.client(0, 0), x.client(0, 0)
    open_pair([a], [b], here=[("partial", "sum")], there=["replicate"])
    out, into = register([a, b], [torch.full((4,), 1.5), y := torch.zeros(4, dtype=torch.bfloat16)])
    exchange([out], [into])
    assert y.tolist() == [1.5] * 4
    waiting = [a.init_pair(f"p{i}", "x", "y", 1, blocking=False) for i in range(5)]
    with pytest.raises(stepvan.WouldBlockError, match="5 commands of this client have not completed"):
        out.transfer("send")
    into.query_status()
    assert not any(r.done() for r in waiting)


def test_a_forked_client(agents):
    x = agents(1)
    c = x.client(0)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            c.query_status("b")
        except stepvan.ForkedError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0 and c.query_status("b").state == "unknown"
