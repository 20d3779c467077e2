"""What the StepMesh connectors of vLLM and SGLang do: stages in flight, one answer buffer used for each respond."""

import pytest


@pytest.fixture
def run(run_with_torch):
    return run_with_torch


WORKERS, STAGES, LAYERS = 2, 3, 40

CONNECTOR = f"""
import collections, os, sys
import torch
import fserver_lib as ps

WORKERS, STAGES, LAYERS = {WORKERS}, {STAGES}, {LAYERS}
HIDDEN, MOST = (int(n) for n in sys.argv[1:3])


def rows_of(layer, stage, rank):
    return 1 + (layer + 2 * stage + 3 * rank) % MOST


class Attention:
    def __init__(self, rank):
        self.rank, self.events = rank, collections.deque()
        self.send = [torch.empty(MOST, HIDDEN) for _ in range(STAGES)]
        self.receive = [torch.empty(MOST, HIDDEN) for _ in range(STAGES)]

    def send_attn_output(self, stage, hidden):
        rows = len(hidden)
        self.receive[stage].fill_(-1)
        self.send[stage][:rows].copy_(hidden)
        event = ps.push_pull([self.send[stage][:rows]], [stage + int(self.rank * 1e6)], [self.receive[stage][:rows]], [stage + 1000])
        self.events.append((event, stage, rows))

    def recv_ffn_output(self):
        event, stage, rows = self.events.popleft()
        ps.wait(event, timeout_ms=50000)
        return self.receive[stage][:rows]


class Ffn:
    def __init__(self):
        chunks = [(rank, stage) for stage in range(STAGES) for rank in range(WORKERS)]
        self.buffer = torch.empty(len(chunks) * MOST, HIDDEN)
        ps.register_recv_buffer(self.buffer, [rank for rank, _ in chunks], [stage + int(rank * 1e6) for rank, stage in chunks])
        self.answer = torch.empty(WORKERS * MOST, HIDDEN)

    def recv_attn_output(self):
        batch = ps.get_batch()
        self.handles = [handle for handle, _, _ in batch]
        self.pushed = [tensors[0] for _, tensors, _ in batch]
        return torch.cat(self.pushed)

    def send_ffn_output(self, output, vector):
        self.answer[: len(output)].copy_(output)
        split = torch.split(output, [len(t) for t in self.pushed])
        if vector:
            ps.respond_vec(self.answer, split, self.handles)
        else:
            at = 0
            for part, handle in zip(split, self.handles):
                ps.respond([self.answer[at : at + len(part)]], handle)
                at += len(part)


def value(layer, stage, rank):
    return float(1 + 1000 * rank + 10 * layer + stage)


def attention(rank):
    ps.init()
    me = Attention(rank)
    ps.barrier(True, True)
    for layer in range(LAYERS):
        for stage in range(STAGES):
            me.send_attn_output(stage, torch.full((rows_of(layer, stage, rank), HIDDEN), value(layer, stage, rank)))
        for stage in range(STAGES):
            got = me.recv_ffn_output()
            want = torch.full((rows_of(layer, stage, rank), HIDDEN), 2 * value(layer, stage, rank) + 1)
            assert torch.equal(got, want), f"layer {{layer}}, stage {{stage}}: {{got.unique().tolist()}}, want {{want[0, 0]}}"
    ps.stop()


def ffn():
    ps.init()
    me = Ffn()
    ps.barrier(True, True)
    for i in range(LAYERS * STAGES):
        me.send_ffn_output(me.recv_attn_output() * 2 + 1, vector=i % 3 > 0)
        me.answer.fill_(-2)
    ps.stop()
"""

SCHEDULER = "import fserver_lib as f; f.init(); f.stop()"


@pytest.mark.parametrize(("hidden", "most"), [(4, 4), (1024, 5), (16 << 10, 64)])
@pytest.mark.parametrize("van", ["shm", "tcp"])
def test_an_answer_buffer_is_filled_again_after_each_respond(run, van, hidden, most):
    from conftest import environment

    settings = environment(WORKERS, STEPVAN_VAN=van, DMLC_LOCAL="0" if van == "tcp" else "1", DMLC_NODE_HOST="127.0.0.1")
    scheduler = run(SCHEDULER, {**settings, "DMLC_ROLE": "scheduler"})
    sizes = (str(hidden), str(most))
    server = run(CONNECTOR + "\nffn()\n", {**settings, "DMLC_ROLE": "server"}, *sizes)
    workers = [
        run(f"{CONNECTOR}\nattention({rank})\n", {**settings, "DMLC_ROLE": "worker", "DMLC_NODE_RANK": str(rank)}, *sizes)
        for rank in range(WORKERS)
    ]
    for program in [*workers, server, scheduler]:
        program.result()
