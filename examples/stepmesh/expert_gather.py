"""One matrix product for the tokens of all workers, answered with respond_vec.

2 or more workers, 1 or more servers. Pushes are received in place in one registered
buffer; each worker has its own number of tokens, which changes.
"""

import os
import random

import fserver_lib as f
import torch
from keys import gen_pull_key, gen_push_key

is_worker = os.environ.get("DMLC_ROLE") == "worker"
is_server = os.environ.get("DMLC_ROLE") == "server"
server_count = int(os.environ.get("DMLC_NUM_SERVER", "1"))
worker_count = int(os.environ.get("DMLC_NUM_WORKER", "1"))
rank = int(os.environ.get("DMLC_NODE_RANK", "0"))
device = "cpu"

num_iters, num_stages = 60, 2
max_tokens, dim, out_dim = 48, 32, 16


def expert(server):
    """The weights of a server: small whole numbers, so that every sum is exact."""
    generator = torch.Generator().manual_seed(100 + server)
    return torch.randint(-3, 4, [dim, out_dim], generator=generator).to(torch.float32)


f.init()

if is_worker:
    random.seed(rank)
    experts = [expert(s) for s in range(server_count)]
    send = [torch.empty([max_tokens, dim], device=device) for _ in range(num_stages)]
    recv = [[torch.empty([max_tokens, out_dim], device=device) for _ in experts] for _ in range(num_stages)]
    f.barrier(True, True)  # the servers have registered their buffers

    for itr in range(num_iters):
        handlers = []
        for stage in range(num_stages):
            n = random.randint(1, max_tokens)
            send[stage][:n] = torch.randint(-9, 10, [n, dim]).to(torch.float32)
            pull_tensors = [t[:n].zero_() for t in recv[stage]]
            handler = f.push_pull(
                [send[stage][:n]],
                [gen_push_key(0, stage)],
                pull_tensors,
                [gen_pull_key(s, stage) for s in range(server_count)],
            )
            handlers.append((handler, n))
        for stage, (handler, n) in enumerate(handlers):
            f.wait(handler)
            for s, weights in enumerate(experts):
                want = send[stage][:n] @ weights
                assert torch.equal(recv[stage][s][:n], want), f"iter {itr}, stage {stage}, server {s}"
    print(f"worker {rank}: {num_iters} x {num_stages} products of {server_count} servers checked")

elif is_server:
    chunks = [(w, stage) for w in range(worker_count) for stage in range(num_stages)]
    recv_buffer = torch.empty([len(chunks) * max_tokens, dim], device=device)
    f.register_recv_buffer(recv_buffer, [w for w, _ in chunks], [gen_push_key(0, stage, w) for w, stage in chunks])
    ret_buffer = torch.empty([worker_count * max_tokens, out_dim], device=device)
    ret_buffers = [ret_buffer, torch.empty_like(ret_buffer)]  # an answer may still be on its way
    weights = expert(rank)
    f.barrier(True, True)

    for i in range(num_iters * num_stages):
        batches = f.get_batch()
        recv_tensor_list = [batches[w][1][0] for w in range(worker_count)]
        comm_id_list = [batches[w][0] for w in range(worker_count)]
        stage = i % num_stages
        for w, tensor in enumerate(recv_tensor_list):
            assert tensor.data_ptr() == recv_buffer[chunks.index((w, stage)) * max_tokens].data_ptr(), "not in place"
        tokens = torch.cat(recv_tensor_list)
        out = ret_buffers[stage][: len(tokens)]
        torch.matmul(tokens, weights, out=out)
        f.respond_vec(ret_buffers[stage], recv_tensor_list, comm_id_list)
    print(f"server {rank}: {num_iters * num_stages} products answered")

f.stop()
