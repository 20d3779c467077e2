"""Push and pull with several tensors whose sizes change from iteration to iteration.

1 or more workers, 1 or more servers. A worker pushes tokens, gate and a scale; each
server answers with two tensors: gated tokens, times its rank + 1, and the row sums.
Pull tensor s*2 + i is written by server s.
"""

import os
import random

import fserver_lib as f
import torch
from keys import gen_pull_key, gen_push_key, get_worker_rank

is_worker = os.environ.get("DMLC_ROLE") == "worker"
is_server = os.environ.get("DMLC_ROLE") == "server"
server_count = int(os.environ.get("DMLC_NUM_SERVER", "1"))
worker_count = int(os.environ.get("DMLC_NUM_WORKER", "1"))
rank = int(os.environ.get("DMLC_NODE_RANK", "0"))
device = "cpu"

num_iters = 200
max_tokens, dim = 96, 64


def compute(tokens, gate, scale, server):
    gated = (tokens * gate * scale * (server + 1)).to(torch.bfloat16)
    return gated, tokens.sum(dim=1)


f.init()

if is_worker:
    random.seed(rank)
    torch.manual_seed(rank)
    tokens_buffer = torch.empty([max_tokens, dim], dtype=torch.float32, device=device)
    gate_buffer = torch.empty([max_tokens, dim], dtype=torch.float32, device=device)
    scale = torch.empty([1], dtype=torch.float32, device=device)
    out_buffers = [
        (
            torch.empty([max_tokens, dim], dtype=torch.bfloat16, device=device),
            torch.empty([max_tokens], dtype=torch.float32, device=device),
        )
        for _ in range(server_count)
    ]
    f.barrier(True, True)

    for itr in range(num_iters):
        n = max_tokens if itr == 0 else random.randint(1, max_tokens)
        push_tensors = [tokens_buffer[:n], gate_buffer[:n], scale]
        for t in push_tensors:
            t.copy_(torch.rand(t.shape))
        pull_tensors = [t[:n] for pair in out_buffers for t in pair]
        for t in pull_tensors:
            t.zero_()
        handler = f.push_pull(
            push_tensors,
            [gen_push_key(i) for i in range(len(push_tensors))],
            pull_tensors,
            [gen_pull_key(i) for i in range(len(pull_tensors))],
        )
        f.wait(handler)
        for s in range(server_count):
            gated, sums = compute(*push_tensors, s)
            assert torch.equal(pull_tensors[2 * s], gated), f"iter {itr}, server {s}: tokens differ"
            assert torch.equal(pull_tensors[2 * s + 1], sums), f"iter {itr}, server {s}: sums differ"
    print(f"worker {rank}: {num_iters} iterations of {server_count} servers checked")

elif is_server:
    f.barrier(True, True)
    for _ in range(num_iters):
        batches = f.get_batch()
        assert len(batches) == worker_count
        for w, (comm_id, tensors, keys) in enumerate(batches):
            assert keys == [gen_push_key(i, 0, w) for i in range(3)]
            assert get_worker_rank(keys[0]) == w
            f.respond(list(compute(*tensors, rank)), comm_id)
    print(f"server {rank}: {num_iters} batches answered")

f.stop()
