"""Trains MiniLM in two processes, and embeds sentences in three others with the weights of every step.

python3 demo.py
python3 demo.py --steps 20 --van tcp
python3 demo.py --small             a small model of random numbers, without a download

Fails when inference does not have the trainers' weights, bit for bit, or does not embed as
one process does with the same version.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C prints no stack trace while torch is imported

# One thread each, since five processes share the machine. BLAS reads the variable when torch is imported, and
# the check must compute as the processes do.
os.environ["OMP_NUM_THREADS"] = "1"

from check import Different, check
from node import add_options, task_of
from parallel.task import LEAST_SENTENCES

HERE = Path(__file__).parent
INTERRUPTED = 130


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--van", default="auto", help="how tensors travel: auto, shm, tcp (default auto)")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if options.steps < 1:
        parser.error(f"--steps is {options.steps}: it must be at least 1")
    if options.sentences < LEAST_SENTENCES:
        parser.error(f"--sentences is {options.sentences}: it must be at least {LEAST_SENTENCES}")
    try:
        return demonstrate(options)
    except KeyboardInterrupt:
        return INTERRUPTED


def demonstrate(options: argparse.Namespace) -> int:
    task = task_of(options)  # fetches the files before the processes start
    with tempfile.TemporaryDirectory(prefix="stepvan-refit-") as output:
        began = time.monotonic()
        if failed := launch(options, output):
            return failed
        took = time.monotonic() - began
        print(f"\n{options.steps} steps in {took:.1f} s, start and stop of all processes included.", flush=True)
        try:
            for line in check(Path(output), task, options.steps):
                print(line, flush=True)
        except Different as error:
            print(f"demo.py: {error}", file=sys.stderr)
            return 1
    return 0


def launch(options: argparse.Namespace, output: str) -> int:
    """Runs node.py as every trainer and inference process; its exit code."""
    command = [sys.executable, "-m", "stepvan", "launch", "-n", "5p", "--van", options.van, "--no-prefix", "--"]
    command += [sys.executable, str(HERE / "node.py"), "--output", output]
    command += ["--steps", str(options.steps), "--sentences", str(options.sentences)]
    command += ["--small"] if options.small else []
    command += ["--model", str(options.model)] if options.model else []
    running = subprocess.Popen(command, env={"STEPVAN_LOG_LEVEL": "warn", **os.environ})
    try:
        return running.wait()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stop(running)
        raise


def stop(launcher: subprocess.Popen) -> None:
    """Waits until the launcher has stopped all processes. A terminal interrupts it too, and `kill -INT` does not."""
    try:
        launcher.wait(0.5)
    except subprocess.TimeoutExpired:
        launcher.send_signal(signal.SIGINT)
        launcher.wait()


if __name__ == "__main__":
    sys.exit(main())
