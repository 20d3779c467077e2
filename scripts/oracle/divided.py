"""A model that torch divides, for two jobs of torchrun: refit_torchrun.py and bus_torchrun.py."""

import hashlib

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(37, 48)
        self.second = torch.nn.Linear(48, 22)

    def forward(self, x):
        return self.second(self.first(x).relu())


def trainer():
    """The model of a trainer, divided by FSDP2 and tensor parallelism, and what takes a step."""
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


def served(placements):
    """Tensors of the other job, by name. Without a placement, each process has all of a tensor."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    empty = Model().state_dict()
    return {name: distribute_tensor(torch.zeros_like(x), mesh, [placements.get(name, Replicate())]) for name, x in empty.items()}


def digest(tensors):
    hashed = hashlib.sha256()
    for name in sorted(tensors):
        hashed.update(tensors[name].full_tensor().detach().numpy().tobytes())
    return hashed.digest()
