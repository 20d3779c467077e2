"""Refits between two jobs of torchrun, with modules that torch itself has divided. oracle.sh runs both jobs.

    torchrun --nproc_per_node 4 refit_torchrun.py train HOST:PORT
    torchrun --nproc_per_node 3 refit_torchrun.py serve HOST:PORT

The trainers divide the model by FSDP2 and tensor parallelism, and take a step of SGD before each version. The other job
divides its tensors unevenly over three processes. After each version all seven compare the hashes of whole tensors.
"""

import sys

import stepvan
import torch.distributed as dist
from divided import digest, served, trainer
from torch.distributed.tensor import Shard

VERSIONS = 3
PLACEMENTS = {"first.weight": Shard(1), "second.weight": Shard(0)}


def main():
    trains, address = sys.argv[1] == "train", sys.argv[2]
    dist.init_process_group("gloo")
    job = {"host": address} if trains else {"cluster": address}
    with stepvan.join(dist.group.WORLD, **job, peers=7) as node:
        peer = node.peer
        if trains:
            model, step = trainer()
            stepvan.share_(model, node)
            tensors = model.state_dict()
        else:
            tensors = served(PLACEMENTS)
        seen = set()
        everybody = peer.group(range(peer.size))
        with peer.match("weights", tensors if trains else None, None if trains else tensors) as plan:
            for version in range(1, VERSIONS + 1):
                if trains:
                    step()
                plan.run(version).wait(60)
                hashes = set(everybody.all_gather(digest(tensors)))
                if len(hashes) != 1 or hashes <= seen:
                    raise SystemExit(f"version {version}: peer {peer.rank} of {peer.size} sees {len(hashes)} kinds of weights")
                seen |= hashes
        print(f"peer {peer.rank}: {VERSIONS} versions, the same weights in both jobs", flush=True)
        dist.barrier()


main()
