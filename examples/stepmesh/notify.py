"""SimpleNotify: the stream, on a CPU the calling thread, waits for exchanges and batches.

1 or more workers, 1 server.
"""

import os

import fserver_lib as f
import torch
from keys import gen_pull_key, gen_push_key

is_worker = os.environ.get("DMLC_ROLE") == "worker"
is_server = os.environ.get("DMLC_ROLE") == "server"
worker_count = int(os.environ.get("DMLC_NUM_WORKER", "1"))
rank = int(os.environ.get("DMLC_NODE_RANK", "0"))
device = "cpu"

num_iters, num_token, dim = 100, 16, 128

f.init()
signal = f.SimpleNotify()
signal.init()

if is_worker:
    x = torch.empty([num_token, dim], dtype=torch.bfloat16, device=device)
    y = torch.empty([num_token, dim], dtype=torch.bfloat16, device=device)
    for itr in range(num_iters):
        x.fill_(rank * num_iters + itr)
        handler = f.push_pull([x], [gen_push_key(0)], [y], [gen_pull_key(0)])
        signal.stream_wait_event(handler)
        z = y + 1  # on the stream: behind the exchange
        signal.wait_event_done()
        assert torch.equal(z, 1 - x), f"iter {itr}"
    print(f"worker {rank}: {num_iters} iterations checked")

elif is_server:
    for _ in range(num_iters):
        signal.block_now_stream_and_get_batch()
        batches = signal.get_future_batch_data()
        assert len(batches) == worker_count
        for comm_id, (x,), _ in batches:
            f.respond([-x], comm_id)
    print(f"server: {num_iters} batches answered")

f.stop()
