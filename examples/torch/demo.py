"""Runs the split MiniLM in processes of its own, and compares it with the unsplit model.

python3 demo.py                     2 workers (attention) and 2 servers (FFN)
python3 demo.py -n 3w1s --van tcp   ... as the flags of `stepvan launch` say

Fails when an embedding is not that of the unsplit model: cosine below 0.9999.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from minilm import Files, Tokenizer, fetch, pack, sentences
from minilm.weights import load_whole

HERE = Path(__file__).parent
LEAST_COSINE = 0.9999


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--nodes", default="2w2s", help="workers and servers (default 2w2s)")
    parser.add_argument("--van", default="auto", help="how tensors travel: auto, shm, tcp (default auto)")
    parser.add_argument("--model", type=Path, help="directory of the model's files (default: the user's cache)")
    parser.add_argument("--sentences", type=int, default=len(sentences()), help="embed the first so many only")
    parser.add_argument("--stepvan", help="the stepvan command (default: that of the Python package)")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    files = fetch(options.model)
    with tempfile.TemporaryDirectory(prefix="stepvan-torch-") as output:
        began = time.monotonic()
        failed = launch(options, files, output)
        took = time.monotonic() - began
        if failed:
            return failed
        split = gather(Path(output), options.nodes)
    print(f"\n{len(split)} sentences embedded in {took:.1f} s, start and stop of all processes included.")
    return compare(split, unsplit(files, sentences()[: options.sentences]))


def launch(options: argparse.Namespace, files: Files, output: str) -> int:
    """Runs node.py as every worker and server; its exit code."""
    stepvan = [options.stepvan] if options.stepvan else [sys.executable, "-m", "stepvan"]
    flags = ["launch", "-n", options.nodes, "--van", options.van, "--timeout", "5m"]
    node = [sys.executable, str(HERE / "node.py"), "--output", output, "--model", str(files.config.parent)]
    node += ["--sentences", str(options.sentences)]
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "STEPVAN_BATCH": "any", "STEPVAN_LOG_LEVEL": "warn"}
    return subprocess.run([*stepvan, *flags, "--", *node], env=environment).returncode


def gather(output: Path, nodes: str) -> torch.Tensor:
    """The embeddings of all workers, in order of rank."""
    workers = int(re.match(r"(\d+)w", nodes)[1])
    return torch.cat([torch.load(output / f"worker-{rank}.pt") for rank in range(workers)])


def unsplit(files: Files, texts: list[str]) -> torch.Tensor:
    """What one process without stepvan computes, sentence by sentence."""
    tokenizer, model = Tokenizer(files.tokenizer), load_whole(files)
    return torch.cat([model(batch) for s in texts for batch in pack([tokenizer.encode(s)], 512)])


def compare(split: torch.Tensor, whole: torch.Tensor) -> int:
    """Prints how far the two are apart; 1 when that is too far."""
    if split.shape != whole.shape:
        print(f"{list(split.shape)} embeddings of {list(whole.shape)}", file=sys.stderr)
        return 1
    cosine = torch.cosine_similarity(split.double(), whole.double())
    difference = (split - whole).abs().max().item()
    print(f"Against the unsplit torch model: least cosine {cosine.min():.9f}, largest difference {difference:.2g}.")
    if cosine.min() >= LEAST_COSINE:
        return 0
    print(f"sentence {cosine.argmin().item()} differs: its cosine is below {LEAST_COSINE}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
