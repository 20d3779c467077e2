"""Refits between two jobs of torchrun, with modules that torch itself has divided. oracle.sh runs both jobs.

    torchrun --nproc_per_node 4 refit_torchrun.py train HOST:PORT
    torchrun --nproc_per_node 3 refit_torchrun.py serve HOST:PORT

The trainers divide the model by FSDP2 and tensor parallelism, and take a step of SGD before each version. The other job
divides its tensors unevenly over three processes. After each version all seven compare the hashes of whole tensors.
"""

import hashlib
import sys

import stepvan
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

VERSIONS = 3


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(37, 48)
        self.second = torch.nn.Linear(48, 21)

    def forward(self, x):
        return self.second(self.first(x).relu())


def trainer():
    """The model of a trainer, and what takes a step."""
    torch.manual_seed(0)
    model = Model()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    parallelize_module(model, mesh["tp"], {"first": ColwiseParallel(), "second": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 37)).square().mean().backward()
        optimizer.step()

    return model, step


def served():
    """Tensors of the other job: matrices are divided by columns or rows, and each process has all of the biases."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    placements = {"first.weight": Shard(1), "second.weight": Shard(0)}
    empty = Model().state_dict()
    return {name: distribute_tensor(torch.zeros_like(x), mesh, [placements.get(name, Replicate())]) for name, x in empty.items()}


def digest(tensors):
    hashed = hashlib.sha256()
    for name in sorted(tensors):
        hashed.update(tensors[name].full_tensor().detach().numpy().tobytes())
    return hashed.digest()


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
            tensors = served()
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
