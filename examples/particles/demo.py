"""Starts the processes, as torchrun would.

python3 demo.py
python3 demo.py --nodes 1 --particles 8
python3 demo.py --van tcp

Fails when a method gives other bits than one process without particles.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
LONGEST = 300  # seconds that all of it may take


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2, help="how many processes; each has two devices")
    parser.add_argument("--van", choices=("auto", "shm", "tcp"), default="auto", help="what carries the messages between processes")
    options, more = parser.parse_known_args()
    if options.nodes < 1:
        parser.error(f"--nodes is {options.nodes}: it must be at least 1")
    print("Particles learn to read digits. Each method runs over all processes, and then in one without particles.", flush=True)
    processes = [start(rank, options, more, port) for port in [free_port()] for rank in range(options.nodes)]
    try:
        failed = watch(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    print("FAILED" if failed else "All three methods give the bits of one process.", flush=True)
    return 1 if failed else 0


def start(rank: int, options: argparse.Namespace, more: list[str], port: int) -> subprocess.Popen[bytes]:
    job = {"RANK": str(rank), "WORLD_SIZE": str(options.nodes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    rest = {"OMP_NUM_THREADS": "1", "STEPVAN_LOG_LEVEL": "error", "STEPVAN_VAN": options.van}
    return subprocess.Popen([sys.executable, str(HERE / "node.py"), *more], env={**os.environ, **job, **rest})


def watch(processes: list[subprocess.Popen[bytes]]) -> bool:
    """Whether a process fails. Nobody waits for the others then."""
    until = time.monotonic() + LONGEST
    while time.monotonic() < until:
        ended = [process.poll() for process in processes]
        if any(ended):
            return True
        if None not in ended:
            return False
        time.sleep(0.02)
    return True


def free_port() -> int:
    """A port that is free together with the next one, where the processes meet first."""
    while True:
        with socket.socket() as first, socket.socket() as following:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                following.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


if __name__ == "__main__":
    sys.exit(main())
