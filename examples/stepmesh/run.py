"""Runs a program like a StepMesh program: a scheduler, servers and workers, each a process.

    run.py [--workers 2] [--servers 1] [--group-size 1] PROGRAM [ARGUMENT...]

--workers and --servers are nodes; each has --group-size processes. The processes inherit the
environment: STEPVAN_VAN=tcp run.py ... The exit code comes from the first process that
fails; run.py then stops the others.
"""

import argparse
import os
import socket
import subprocess
import sys
import threading
import time


def reserve_port():
    """A socket that keeps a free port for the scheduler, which sets SO_REUSEADDR as well, and so may listen there."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 0))
    return s


def environments(workers, servers, group_size, port):
    """Name and environment of every process."""
    common = {
        **os.environ,
        "DMLC_NUM_WORKER": str(workers),
        "DMLC_NUM_SERVER": str(servers),
        "DMLC_GROUP_SIZE": str(group_size),
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_NODE_HOST": "127.0.0.1",
        "STEPMESH_BACKEND": "CPU",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
    }
    yield "scheduler", {**common, "DMLC_ROLE": "scheduler"}
    for role, nodes in (("server", servers), ("worker", workers)):
        for node in range(nodes):
            for gpu in range(group_size):
                place = {"DMLC_ROLE": role, "DMLC_NODE_RANK": str(node), "STEPMESH_GPU": str(gpu)}
                yield f"{role} {node}.{gpu}", {**common, **place}


def show(name, pipe):
    for line in pipe:
        print(f"[{name}] {line}", end="", flush=True)


def run(program, workers=2, servers=1, group_size=1, timeout=120.0):
    """The exit code of the first process of [PROGRAM, ARGUMENT...] that failed; 124 after timeout seconds; else 0."""
    command = [sys.executable, *program]
    started, printers = {}, []
    with reserve_port() as reserved:
        for name, env in environments(workers, servers, group_size, reserved.getsockname()[1]):
            p = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            started[p] = name
            printers.append(threading.Thread(target=show, args=(name, p.stdout)))
            printers[-1].start()
        code = watch(started, time.monotonic() + timeout)
    for printer in printers:
        printer.join()
    return code


def watch(started, deadline):
    running = dict(started)
    try:
        while running:
            for p in [p for p in running if p.poll() is not None]:
                name = running.pop(p)
                if p.returncode:
                    print(f"{name} failed with {p.returncode}", flush=True)
                    return p.returncode
            if time.monotonic() > deadline:
                print("still running: " + ", ".join(running.values()), flush=True)
                return 124
            time.sleep(0.02)
        return 0
    finally:
        for p in running:
            p.terminate()
        for p in running:
            try:
                p.wait(5)
            except subprocess.TimeoutExpired:
                p.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--group-size", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.program:
        parser.error("which program?")
    sys.exit(run(options.program, options.workers, options.servers, options.group_size, options.timeout))


if __name__ == "__main__":
    main()
