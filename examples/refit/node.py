"""One process of the demonstration, a trainer or an inference process by its rank. ``demo.py`` starts them.

OMP_NUM_THREADS=1 stepvan launch -n 5p -- python3 node.py --output DIRECTORY
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import stepvan
import torch
from inference import Inference, WrongVersion
from parallel import Task, published, small
from refit import INFERENCE, TRAINERS
from trainer import train


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="directory for weights and embeddings")
    add_options(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    try:
        with stepvan.Node() as node:
            if node.peer is None or node.peer.size != len(TRAINERS + INFERENCE):
                raise SystemExit(f"node.py: it is for {len(TRAINERS + INFERENCE)} peers: stepvan launch -n 5p -- ...")
            work(node, task_of(options), options)
    except (stepvan.Error, TimeoutError, WrongVersion) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=8, help="steps of the training (default 8)")
    parser.add_argument("--sentences", type=int, default=64, help="embed the first so many (default 64)")
    parser.add_argument("--model", type=Path, help="directory of the model's files (default: the user's cache)")
    parser.add_argument("--small", action="store_true", help="a small model of random numbers, without files")


def task_of(options: argparse.Namespace) -> Task:
    return small(options.sentences) if options.small else published(options.sentences, options.model)


def work(node: stepvan.Node, task: Task, options: argparse.Namespace) -> None:
    if node.peer.rank in TRAINERS:
        train(node, task, options.steps, options.output)
        return
    with torch.no_grad():
        inference = Inference(node, task)
        inference.serve(options.steps)
        inference.save(options.output)


if __name__ == "__main__":
    sys.exit(main())
