"""One process of the two jobs: torchrun --nproc-per-node 4 job.py train 127.0.0.1:9000

The other job is: torchrun --nproc-per-node 2 job.py serve 127.0.0.1:9000
"""

from __future__ import annotations

import argparse
import os
import sys

import model
import torch

import stepvan
from stepvan.tensor_bus import Agent, BatchHandler, TensorBusClient

WAIT = 60.0  # seconds that a process waits for the others


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=["train", "serve"])
    parser.add_argument("cluster", help="address:port of the scheduler, which rank 0 of train hosts")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--spoil", type=int, default=0, help="a step at which the trainers change weights that the check does not know of")
    options = parser.parse_args()
    peers = model.FSDP * model.TP + model.SERVERS
    if options.job == "train":
        node = stepvan.join(host=options.cluster, peers=peers, timeout=WAIT)
    else:
        node = stepvan.join(cluster=options.cluster, peers=peers, timeout=WAIT)
    with node, Agent(node) as agent, agent.client() as client:
        return train(node, client, options) if options.job == "train" else serve(node, client, options)


def open_pairs(client: TensorBusClient, trains: bool) -> None:
    """A pair for each layout. They open together."""
    sides = [("train", model.FSDP * model.TP, (model.FSDP, model.TP)), ("serve", model.SERVERS, (model.SERVERS,))]
    (side, size, mesh), (other, _, _) = sides if trains else sides[::-1]
    opened = []
    for name, (_, in_training, in_serving) in model.LAYOUT.items():
        placements = in_training if trains else in_serving
        opened.append(client.init_pair(name, side, other, size, mesh, placements, blocking=False, timeout=WAIT))
    for pair in opened:
        pair.wait(WAIT)


def register(node: stepvan.Node, client: TensorBusClient, parts: dict[str, torch.Tensor]) -> BatchHandler:
    stepvan.share_(parts, node)
    return client.register_tensors("model", [(part, name) for name, part in parts.items()], timeout=WAIT)


def train(node: stepvan.Node, client: TensorBusClient, options: argparse.Namespace) -> int:
    rank = int(os.environ["RANK"])
    open_pairs(client, True)
    parts = {name: part.clone() for name, part in model.trained(model.weights(0), rank).items()}
    with register(node, client, parts) as batch:
        for step in range(1, options.steps + 1):
            for name, gradient in model.trained(model.gradients(step), rank).items():
                parts[name] -= 0.1 * gradient
            if step == options.spoil and rank < model.TP:
                parts["norm"][0] += 1
            batch.transfer("send", blocking=True, timeout=WAIT)
        node.barrier(timeout=WAIT)  # the scheduler is in one of the trainers
    return 0


def serve(node: stepvan.Node, client: TensorBusClient, options: argparse.Namespace) -> int:
    rank = int(os.environ["RANK"])
    open_pairs(client, False)
    parts = {name: torch.empty_like(part, memory_format=torch.contiguous_format) for name, part in model.served(model.weights(0), rank).items()}
    wrong = 0
    with register(node, client, parts) as batch:
        for version in range(1, options.steps + 1):
            batch.transfer("recv", blocking=True, timeout=WAIT)
            want = model.served(model.weights(version), rank)
            bad = [name for name, part in parts.items() if not torch.equal(part.view(torch.int32), want[name].contiguous().view(torch.int32))]
            wrong += bool(bad)
            found = f" DIFFERS in {', '.join(bad)}" if bad else ", the trainers' bytes"
            sys.stdout.write(f"serve {rank}: version {version}{found}\n")  # at once: other processes print beside it
            sys.stdout.flush()
        node.barrier(timeout=WAIT)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
