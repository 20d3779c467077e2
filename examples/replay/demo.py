"""Starts a learner and two collectors, each in a process of its own.

python3 demo.py
python3 demo.py --ticks 1000 --van tcp

Fails when training has another result than in one process.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
from pathlib import Path

import stepvan

LONGEST = 300  # seconds that all may take


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ticks", type=int, default=500, help="batches, at least 5")
    parser.add_argument("--van", default="auto", help="how rows travel: auto, shm, tcp (default auto)")
    options = parser.parse_args()
    if options.ticks < 5:
        parser.error(f"--ticks is {options.ticks}: it must be at least 5")
    settings = {
        "DMLC_NUM_WORKER": "0",
        "DMLC_NUM_SERVER": "0",
        "STEPVAN_NUM_PEER": "3",
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(free_port()),
        "STEPVAN_VAN": options.van,
        "STEPVAN_LOG_LEVEL": "error",
    }
    job = [sys.executable, str(Path(__file__).with_name("job.py"))]
    env = {**os.environ, **settings, "OMP_NUM_THREADS": "1"}
    processes = [subprocess.Popen([*job, str(rank), str(options.ticks)], env=env) for rank in range(3)]
    try:
        with stepvan.Node({"DMLC_ROLE": "scheduler", **settings}) as scheduler:
            failed = max(process.wait(LONGEST) for process in processes)
            if not failed:
                scheduler.stop(LONGEST)
        return failed
    finally:
        for process in processes:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
