"""Moves weights between two jobs of torchrun over the tensor bus, with DTensors of torch itself. oracle.sh runs both.

    torchrun --nproc_per_node 4 bus_torchrun.py train HOST:PORT
    torchrun --nproc_per_node 2 bus_torchrun.py serve HOST:PORT

The trainers divide the model by FSDP2 and tensor parallelism, and take a step of SGD before each round. The other job
divides it by tensor parallelism alone. After each round all six compare the hashes of whole tensors.
"""

import sys

import stepvan
import torch.distributed as dist
from divided import digest, served, trainer
from stepvan.tensor_bus import Agent
from torch.distributed.tensor import Shard

ROUNDS = 3
SIZES = {"train": 4, "serve": 2}
WAIT = 60.0
PLACEMENTS = {"first.weight": Shard(0), "first.bias": Shard(0), "second.weight": Shard(1)}


def main():
    side, address = sys.argv[1:]
    trains = side == "train"
    other = "serve" if trains else "train"
    dist.init_process_group("gloo")
    job = {"host": address} if trains else {"cluster": address}
    with stepvan.join(dist.group.WORLD, **job, peers=sum(SIZES.values())) as node, Agent(node) as agent, agent.client() as client:
        if trains:
            model, step = trainer()
            stepvan.share_(model, node)
            tensors = model.state_dict()
        else:
            tensors = served(PLACEMENTS)
        opened = [
            client.init_pair(name, side, other, SIZES[side], x.device_mesh, x.placements, blocking=False, timeout=WAIT)
            for name, x in sorted(tensors.items())
        ]
        for pair in opened:
            pair.wait(WAIT)
        peer = node.peer
        everybody = peer.group(range(peer.size))
        seen = set()
        with client.register_tensors("model", [(x, name) for name, x in sorted(tensors.items())], timeout=WAIT) as batch:
            for number in range(1, ROUNDS + 1):
                if trains:
                    step()
                batch.transfer("send" if trains else "recv", blocking=True, timeout=WAIT)
                hashes = set(everybody.all_gather(digest(tensors)))
                if len(hashes) != 1 or hashes <= seen:
                    raise SystemExit(f"round {number}: peer {peer.rank} of {peer.size} sees {len(hashes)} kinds of weights")
                seen |= hashes
        layouts = {str(tuple(x.placements)) for x in tensors.values()}
        print(f"peer {peer.rank}: {ROUNDS} rounds of the bus, the same weights in both jobs, {len(layouts)} layouts", flush=True)
        dist.barrier()


main()
