"""A process of the example. torchrun starts it as well:

torchrun --nproc-per-node 2 node.py --particles 4

The process with the rank 0 drives: it makes the particles, runs the three methods, and compares them with plain.py.
"""

from __future__ import annotations

import argparse
import os
import sys

import digits
import methods
import plain
import torch

import stepvan
from stepvan.particles.push import Nodes, PusH, serve


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--particles", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--cache", type=int, default=2, help="how many particles are on a device at a time")
    parser.add_argument("--spoil", action="store_true", help="change a weight of a particle, to see that it is found")
    options = parser.parse_args()
    if min(options.particles, options.epochs, options.width, options.cache) < 1:
        parser.error("all numbers must be at least 1")
    torch.set_num_threads(1)  # the number of threads decides about the last bits of a sum
    with stepvan.join(timeout=60) as node:
        nodes = Nodes(node, devices=2)
        if node.peer.rank == 0:
            return drive(node, nodes, options)
        for _ in METHODS:
            serve(digits.make_model, options.width, cache_size=options.cache, multi=nodes)
            node.barrier(timeout=60)
        return 0


def drive(node: stepvan.Node, nodes: Nodes, options: argparse.Namespace) -> int:
    wrong = 0
    for name, run in METHODS.items():
        with PusH(digits.make_model, options.width, cache_size=options.cache, multi=nodes) as push:
            places = node.peer.size * len(push.nel.devices)
            for i in range(options.particles):
                push.p_create(digits.make_optimizer, digits.make_scheduler, train_key=i, device=i % places, receive=methods.RECEIVE)
            got = run(push, options.epochs)
            if options.spoil and name == "swag":
                push.p_launch(0, "move", torch.ones(sum(p.numel() for p in push.p_parameters(0))), 1e-6).wait()
            weights = [methods.flat(push.p_parameters(pid)) for pid in push.particle_ids()]
        if node.peer.size > 1:
            node.barrier(timeout=60)
        modules, want = getattr(plain, name)(options.particles, options.width, options.epochs)
        same = torch.equal(got, want) and all(torch.equal(w, methods.flat(m.parameters())) for w, m in zip(weights, modules, strict=True))
        wrong += not same
        vans = sorted({peer.van for peer in node.peers if peer.role == "peer" and peer.van})
        print(
            f"{name}: {options.particles} particles, {node.peer.size} x {len(nodes.devices)} devices{' over ' if vans else ''}{', '.join(vans)}: "
            f"{digits.accuracy(got):.1%} of the digits, {'the bits of one process' if same else 'OTHER BITS'}",
            flush=True,
        )
    return 1 if wrong else 0


def ensemble(push: PusH, epochs: int) -> torch.Tensor:
    pids = push.particle_ids()
    push.p_wait([push.p_launch(pid, "train", epochs) for pid in pids])
    return sum(push.p_wait([push.p_launch(pid, "predict") for pid in pids]).values()) / len(pids)


def swag(push: PusH, epochs: int) -> torch.Tensor:
    pids = push.particle_ids()
    push.p_wait([push.p_launch(pid, "swag_train", epochs, epochs // 2) for pid in pids])
    return sum(push.p_wait([push.p_launch(pid, "swag_predict", 100 * pid, 5) for pid in pids]).values()) / len(pids)


def svgd(push: PusH, epochs: int) -> torch.Tensor:
    pids = push.particle_ids()
    push.p_launch(pids[0], "svgd_lead", epochs, 2.0).wait()
    return sum(push.p_wait([push.p_launch(pid, "predict") for pid in pids]).values()) / len(pids)


METHODS = {"ensemble": ensemble, "swag": swag, "svgd": svgd}


if __name__ == "__main__":
    os.environ.setdefault("STEPVAN_LOG_LEVEL", "warn")
    sys.exit(main())
