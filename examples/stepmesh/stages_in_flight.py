"""Three stages in flight, waited for in any order, with the trace of every handler.

1 or more workers, 1 server.
"""

import os
import random

import fserver_lib as f
import torch
from keys import gen_pull_key, gen_push_key, get_microbatch

is_worker = os.environ.get("DMLC_ROLE") == "worker"
is_server = os.environ.get("DMLC_ROLE") == "server"
worker_count = int(os.environ.get("DMLC_NUM_WORKER", "1"))
rank = int(os.environ.get("DMLC_NODE_RANK", "0"))
device = "cpu"

num_iters, num_stages = 100, 3
num_token, dim = 32, 512


def check_trace(trace, start, end):
    """Only times of one clock are compared: 0, 1, 6, 7 are the worker's, 2 to 5 the server's."""
    assert len(trace) == 8 and all(isinstance(t, int) for t in trace), trace
    mine = [trace[0], trace[1], trace[6], trace[7]]
    assert mine == sorted(mine), f"worker's times go backwards: {trace}"
    assert trace[2:6] == sorted(trace[2:6]), f"server's times go backwards: {trace}"
    assert start <= trace[0] and trace[7] <= end, f"{trace} not within {start} to {end}"


if is_worker:
    f.init()
    f.barrier(False, True)
    random.seed(rank)
    inputs = [torch.empty([num_token, dim], dtype=torch.bfloat16, device=device) for _ in range(num_stages)]
    extras = [torch.empty([num_token], dtype=torch.int32, device=device) for _ in range(num_stages)]
    outputs = [torch.empty([num_token, dim], dtype=torch.bfloat16, device=device) for _ in range(num_stages)]
    seen = set()

    for itr in range(num_iters):
        flying = []
        for stage in range(num_stages):
            inputs[stage].copy_(torch.rand([num_token, dim]))
            extras[stage].fill_(itr)
            start = f.get_nanosecond()
            handler = f.push_pull(
                [inputs[stage], extras[stage]],
                [gen_push_key(0, stage), gen_push_key(1, stage)],
                [outputs[stage]],
                [gen_pull_key(0, stage)],
                need_event=True,
            )
            flying.append((stage, handler, start))
        assert len({handler for _, handler, _ in flying}) == num_stages
        random.shuffle(flying)
        for stage, handler, start in flying:
            handlers = f.get_all_handlers(handler)
            assert len(handlers) == 3 and handlers[0] == handler, handlers
            f.wait(handler, timeout_ms=20000)
            end = f.get_nanosecond()
            f.wait(handler)  # again: at once
            assert torch.equal(outputs[stage], inputs[stage] * 2 + stage + itr), f"iter {itr}, stage {stage}"
            for h in handlers:
                check_trace(f.fetch_trace(h), start, end)
            seen.update(handlers)
    print(f"worker {rank}: {num_iters} x {num_stages} stages checked, {len(seen)} handlers")

elif is_server:
    f.init()
    f.barrier(True, False)
    for i in range(num_iters * num_stages):
        batches = f.get_batch()
        for w in range(worker_count):
            comm_id, (x, extra), keys = batches[w]
            stage = get_microbatch(keys[0])
            assert stage == i % num_stages, f"worker {w}: stage {stage} as number {i}"
            f.respond([x * 2 + stage + int(extra[0])], comm_id, need_event=True)
    print(f"server: {num_iters * num_stages} batches answered")

else:
    f.init()

f.stop()
