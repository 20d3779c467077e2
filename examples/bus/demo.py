"""Starts both jobs, as torchrun would. They know only an address of each other.

python3 demo.py
python3 demo.py --steps 20

Fails when a process serves other bytes than the trainers have.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import model

HERE = Path(__file__).parent
LONGEST = 300  # seconds that both jobs may take


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--spoil", type=int, default=0, help="a step after which the weights differ, to see that it is found")
    options = parser.parse_args()
    if options.steps < 1:
        parser.error(f"--steps is {options.steps}: it must be at least 1")
    more = ["--steps", str(options.steps), "--spoil", str(options.spoil)]
    cluster = f"127.0.0.1:{free_port()}"
    jobs = [*start("train", model.FSDP * model.TP, cluster, more), *start("serve", model.SERVERS, cluster, more)]
    try:
        failed = watch(jobs)
    finally:
        for job in jobs:
            job.kill()
            job.wait()
    if failed:
        print("FAILED", flush=True)
        return 1
    print(f"{options.steps} versions went from {model.FSDP} x {model.TP} trainers to {model.SERVERS} that serve.")
    return 0


def watch(jobs: list[subprocess.Popen[bytes]]) -> bool:
    """Whether a process fails. Nobody waits for the others then."""
    until = time.monotonic() + LONGEST
    while time.monotonic() < until:
        ended = [job.poll() for job in jobs]
        if any(ended):
            return True
        if None not in ended:
            return False
        time.sleep(0.02)
    return True


def start(job: str, size: int, cluster: str, more: list[str]) -> list[subprocess.Popen[bytes]]:
    """The processes of a job, with the environment that torchrun gives them."""
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1", "STEPVAN_LOG_LEVEL": "warn"}
    command = [sys.executable, str(HERE / "job.py"), job, cluster, *more]
    return [subprocess.Popen(command, env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(size)]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
