"""Measures exchanges between tensors of a device of CUDA, and copies of batches, beside their limits.

    python scripts/cuda/measure.py [--rounds 300]

Worker, server and scheduler are processes of their own. The limit of an exchange is the time that torch takes for its
four copies. The push and the answer go from the device to pinned memory, and on to the device.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import torch

import stepvan
from stepvan.replay_pipelines.transfer import build_replay_transfer_backend

PUSH, PULL = 896 << 10, 1792 << 10
GPU = torch.device("cuda", 0)


def microseconds(work, rounds):
    """The median time of work in us, and its lowest and highest decile."""
    for _ in range(20):
        work()
    times = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        work()
        times.append((time.perf_counter_ns() - began) / 1e3)
    deciles = statistics.quantiles(times, n=10)
    return {"p50": round(statistics.median(times), 1), "p10": round(deciles[0], 1), "p90": round(deciles[-1], 1)}


def serve(node, where):
    """Answers exchanges until the worker leaves. where: which tensors lie on the device (push, buffer, answer)."""
    answer = torch.ones(PULL, dtype=torch.uint8, device=GPU if "answer" in where else "cpu")
    if "buffer" in where:
        buffer = torch.zeros(PUSH, dtype=torch.uint8, device=GPU)
        node.server.register_recv_buffer(buffer, [0], [1], timeout=60)
    for batch in node.server:
        for request in batch:
            request.respond([answer])


def work(node, where, rounds):
    """Makes exchanges one after the other. Returns their times."""
    push = torch.ones(PUSH, dtype=torch.uint8, device=GPU if "push" in where else "cpu")
    pull = torch.zeros(PULL, dtype=torch.uint8, device=GPU if "pull" in where else "cpu")
    torch.cuda.synchronize()
    return microseconds(lambda: node.worker.push_pull([push], [1], [pull], [2]).wait(60), rounds)


def role(name, where, rounds):
    with stepvan.Node() as node:
        if name == "worker":
            print(json.dumps(work(node, where, rounds)), flush=True)
        elif name == "server":
            serve(node, where)


def settings(van, progress, port):
    return {
        "DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1", "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(port), "DMLC_LOCAL": str(int(van == "shm")),
        "STEPVAN_VAN": van, "STEPVAN_PROGRESS": progress, "STEPVAN_LOG_LEVEL": "error",
    }  # fmt: skip


def own(name):
    return {"DMLC_ROLE": name} if name == "scheduler" else {"DMLC_ROLE": name, "DMLC_NODE_RANK": "0"}


def processes(van, progress, where, rounds, port):
    started = []
    for name in ("scheduler", "server", "worker"):
        environment = {**os.environ, **settings(van, progress, port), **own(name)}
        command = [sys.executable, __file__, "--role", name, "--rounds", str(rounds), "--where", where]
        started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    out = started[-1].communicate(timeout=120)[0]
    for process in started:
        process.wait(60)
    return json.loads(out)


def limit(rounds):
    device = [torch.ones(n, dtype=torch.uint8, device=GPU) for n in (PUSH, PUSH, PULL, PULL)]
    host = [torch.ones(n, dtype=torch.uint8).pin_memory() for n in (PUSH, PULL)]

    def copies():
        for i, (source, target) in enumerate(((0, 1), (2, 3))):
            host[i].copy_(device[source], non_blocking=True)
            device[target].copy_(host[i], non_blocking=True)
            torch.cuda.synchronize()

    return microseconds(copies, rounds)


def wake_up(rounds):
    """There and back between two processes by pipes, each of which sleeps until the other one has written."""
    (a, b), (c, d) = os.pipe(), os.pipe()
    if (child := os.fork()) == 0:
        while os.read(a, 1) == b"x":
            os.write(d, b"x")
        os._exit(0)

    def both():
        os.write(b, b"x")
        os.read(c, 1)

    took = microseconds(both, rounds)
    os.write(b, b".")
    os.waitpid(child, 0)
    return took


def batches(rounds):
    rows = 16 << 20
    backend = build_replay_transfer_backend(device=GPU, ring_depth=2)
    host = [torch.ones(rows, 1, dtype=torch.uint8).share_memory_() for _ in range(2)]
    backend.register_host_slots(host)
    slots = backend.allocate_device_slots(count=2, shape=(rows, 1), dtype=torch.uint8)
    rest = {"metadata": None, "trace_recorder": None, "trace_cuda_events": False, "h2d_bytes": rows}

    def submit(slot):
        return backend.submit_h2d(slot=slot, dst=slots[slot], src=host[slot], pack_layout="", pack_executor="", **rest)

    def whole():
        submit(0)
        backend.synchronize_ready(0)

    def bare():
        slots[1].copy_(host[1], non_blocking=True)
        torch.cuda.synchronize()

    results = {"submit and wait": microseconds(whole, rounds), "copy_ and synchronize": microseconds(bare, rounds)}
    results["submit"] = microseconds(lambda: submit(0), rounds)
    backend.synchronize_ready(0)

    def wait():
        backend.wait_current_stream_for_ready(0)

    results["learner's wait for a batch that is there"] = microseconds(wait, rounds)
    torch.cuda.synchronize()
    backend.close()
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--role")
    parser.add_argument("--where", default="")
    o = parser.parse_args()
    if o.role:
        return role(o.role, o.where, o.rounds)
    woken = wake_up(o.rounds)  # before this process has a context of the device
    print(f"{torch.cuda.get_device_name(GPU)}, torch {torch.__version__}, {os.cpu_count()} cores; us")
    print("two processes wake each other by pipes:", woken)
    print("copies of an exchange on the device, by torch alone:", limit(o.rounds), flush=True)
    port = 34100
    for van in ("shm", "tcp"):
        for progress in ("auto", "spin"):
            for where in ("", "push", "buffer", "answer", "pull", "push buffer answer pull"):
                port += 1
                took = processes(van, progress, where, o.rounds, port)
                print(f"exchange, {van}, {progress}, on the device: {where or 'nothing'}:", took, flush=True)
    for name, took in batches(o.rounds).items():
        print(f"batch of 16 MiB, {name}:", took, flush=True)


if __name__ == "__main__":
    main()
