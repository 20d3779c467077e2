"""Batches of experience from 8 collectors: by stepvan, and by a queue of torch.multiprocessing.

    python replay_queue.py [--van shm|tcp] [--seconds 3] [--collectors 8]

A row has 400 bytes, and a batch 8,192 rows. With stepvan the collectors keep the rows, and write those of a batch into a
slot of the learner. With a queue they send rows of tensors in shared memory, 1, 64 or 1,024 in a message. The learner
puts as many rows as a batch has into its own buffer, and then samples a batch from it. All numbers are medians of the
batches, and the two are measured in turns.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time

import torch
import torch.multiprocessing as mp

COLUMNS, BATCH, CAPACITY = 100, 8192, 65536
PER_MESSAGE = (1, 64, 1024)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def send(queue, rows, stop):
    """A collector that sends rows until it is told to stop."""
    torch.set_num_threads(1)
    made = torch.randn(CAPACITY, COLUMNS)
    at = 0
    while not stop.is_set():
        queue.put(made[at : at + rows].clone())
        at = (at + rows) % (CAPACITY - rows)


def by_queue(collectors, rows, seconds):
    """The times of batches that come by a queue."""
    queue, stop = mp.Queue(maxsize=max(2 * BATCH // rows, 2)), mp.Event()
    workers = [mp.Process(target=send, args=(queue, rows, stop), daemon=True) for _ in range(collectors)]
    for worker in workers:
        worker.start()
    buffer, at, times = torch.zeros(CAPACITY, COLUMNS), 0, []
    try:
        until = None
        while until is None or time.perf_counter() < until or len(times) < 3:
            began = time.perf_counter()
            got = 0
            while got < BATCH:
                part = queue.get(timeout=60)
                buffer[at : at + rows] = part
                at, got = (at + rows) % (CAPACITY - rows), got + rows
            batch = buffer[torch.randint(0, CAPACITY, (BATCH,))]
            assert batch.shape == (BATCH, COLUMNS)
            if until is None:  # the first batch waits for the processes
                until = time.perf_counter() + seconds
            else:
                times.append(time.perf_counter() - began)
    finally:
        stop.set()
        for worker in workers:
            worker.kill()
            worker.join()
    return times


def collect():
    """A collector of stepvan: the environment says of which cluster."""
    import stepvan
    from stepvan.replay_pipelines.double_buffer import ReplayBuffer, ReplayCollector

    torch.set_num_threads(1)
    with stepvan.Node({"DMLC_ROLE": "peer"}) as node:
        buffer = ReplayBuffer({"row": COLUMNS}, CAPACITY)
        buffer.add(torch.randn(CAPACITY, COLUMNS))
        ReplayCollector(buffer, node=node, learner=0).wait()
        node.stop()


def by_stepvan(collectors, van, seconds):
    """The times of batches that come by stepvan."""
    import stepvan
    from stepvan.replay_pipelines.double_buffer import DoubleBufferReplayPipeline

    settings = {
        "DMLC_NUM_WORKER": "0",
        "DMLC_NUM_SERVER": "0",
        "STEPVAN_NUM_PEER": str(collectors + 1),
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(free_port()),
        "STEPVAN_VAN": van,
        "STEPVAN_LOG_LEVEL": "error",
    }
    env = {**os.environ, **settings}
    program = [sys.executable, os.path.abspath(__file__), "--collect"]
    scheduler = "import stepvan; stepvan.Node({'DMLC_ROLE': 'scheduler'}).stop()"
    children = [subprocess.Popen([sys.executable, "-c", scheduler], env=env)]
    children += [subprocess.Popen(program, env={**env, "STEPVAN_NODE_RANK": str(i + 1)}) for i in range(collectors)]
    try:
        node = stepvan.Node({"DMLC_ROLE": "peer", "STEPVAN_NODE_RANK": "0", **settings})
        pipeline = DoubleBufferReplayPipeline(
            device="cpu", sample_count=BATCH, fields={"row": COLUMNS}, node=node, collectors=range(1, collectors + 1)
        )
        times, tick, until = [], 0, None
        while until is None or time.perf_counter() < until or len(times) < 3:
            began = time.perf_counter()
            batch = pipeline.sample_large_batch(tick, BATCH)
            tick += 1
            pipeline.start_prepare(tick, BATCH)  # ahead, as the queue holds rows for two batches
            assert batch["row"].shape == (BATCH, COLUMNS)
            pipeline.after_tick()
            if until is None:
                until = time.perf_counter() + seconds
            else:
                times.append(time.perf_counter() - began)
        waits = []
        for _ in range(100):  # the wait for a batch that was prepared one tick ahead
            pipeline.start_prepare(tick, BATCH)  # of the first one, that has been done
            while not pipeline.batch_ready(tick, BATCH):
                time.sleep(0.005)  # the learner computes
            began = time.perf_counter()
            pipeline.sample_large_batch(tick, BATCH)
            waits.append(time.perf_counter() - began)
            pipeline.after_tick()
            tick += 1
        pipeline.close()
        node.stop()
        return times, waits
    finally:
        for child in children:
            child.kill()
            child.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--van", default="shm", choices=["shm", "tcp"])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--collectors", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--collect", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.collect:
        collect()
        return
    torch.set_num_threads(1)
    mp.set_sharing_strategy("file_system")  # a descriptor for each message would run out
    each = options.seconds / options.rounds
    own, waits, queues = [], [], {rows: [] for rows in PER_MESSAGE}
    for _ in range(options.rounds):
        times, ahead = by_stepvan(options.collectors, options.van, each)
        own, waits = own + times, waits + ahead
        for rows in PER_MESSAGE:
            queues[rows] += by_queue(options.collectors, rows, each)
    middle = {rows: statistics.median(times) for rows, times in queues.items()}
    ours, best = statistics.median(own), min(middle.values())
    print(f"batch of {BATCH:,} rows of {4 * COLUMNS} bytes, {options.collectors} collectors")
    for rows, took in middle.items():
        print(f"queue, {rows:5,} rows a message  {took * 1e3:8.2f} ms  {BATCH / took / 1e6:6.2f} M rows/s")
    print(f"stepvan, {options.van}               {ours * 1e3:8.2f} ms  {BATCH / ours / 1e6:6.2f} M rows/s  {best / ours:.1f} x the fastest queue")
    print(f"stepvan, prepared one tick ahead: the learner waits {statistics.median(waits) * 1e6:.0f} us")


if __name__ == "__main__":
    main()
