"""One process of the split model: attention or FFN, as DMLC_ROLE says. ``demo.py`` starts several.

OMP_NUM_THREADS=1 STEPVAN_BATCH=any stepvan launch -n 2w2s -- python3 node.py --output DIRECTORY

One thread each, because several processes share the machine: OpenBLAS reads the
variable only, and is four times slower otherwise. No lock-step, because workers have
different numbers of micro-batches.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
from afd import ConnectorConfig, StepvanAFDConnector
from minilm import Config, Files, Tokenizer, fetch, pack, sentences, share
from minilm.weights import load_attention, load_ffn
from pipeline import run_attention, run_ffn

MAX_TOKENS = 256  # of a micro-batch; both sides must agree


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="directory of the model's files (default: the user's cache)")
    parser.add_argument("--output", type=Path, required=True, help="directory for the workers' embeddings")
    parser.add_argument("--sentences", type=int, help="embed the first so many only")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    files = fetch(options.model)
    if os.environ.get("DMLC_ROLE") == "server":
        ffn(files)
    else:
        attention(files, options.output, sentences()[: options.sentences])


def connect(role: str, files: Files) -> StepvanAFDConnector:
    return StepvanAFDConnector(ConnectorConfig(role, Config.open(files.config).hidden, MAX_TOKENS))


def attention(files: Files, output: Path, texts: list[str]) -> None:
    with connect("attention", files) as connector:
        rank, workers = connector.node.worker_rank, int(os.environ["DMLC_NUM_WORKER"])
        tokenizer = Tokenizer(files.tokenizer)
        batches = pack(map(tokenizer.encode, share(texts, rank, workers)), MAX_TOKENS)
        model = load_attention(files)
        connector.node.barrier(servers=False)  # measure without the start of others
        began = time.monotonic()
        embeddings = run_attention(connector, model, batches)
        took = time.monotonic() - began
        torch.save(embeddings, output / f"worker-{rank}.pt")
        print(f"{len(embeddings)} sentences in {len(batches)} micro-batches, {took:.2f} s")


def ffn(files: Files) -> None:
    with connect("ffn", files) as connector:
        part, parts = connector.node.server_rank, int(os.environ["DMLC_NUM_SERVER"])
        answered = run_ffn(connector, load_ffn(files, part, parts))
        print(f"answered {answered} times, with part {part} of {parts} of every FFN")


if __name__ == "__main__":
    main()
