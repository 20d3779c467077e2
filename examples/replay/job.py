"""A process of the demonstration: the learner (rank 0), or a collector.

python3 job.py RANK TICKS    with the settings of the cluster in the environment
"""

from __future__ import annotations

import sys

import torch

import stepvan
from cart import FIELDS, ROWS, Learner, explore
from stepvan.replay_pipelines.double_buffer import DoubleBufferReplayPipeline, ReplayBuffer, ReplayCollector

COLLECTORS = [1, 2]
BATCH = 512
SEED = 1000


def main(rank: int, ticks: int) -> None:
    torch.set_num_threads(1)
    with stepvan.Node({"DMLC_ROLE": "peer", "DMLC_NODE_RANK": str(rank)}) as node:
        if rank in COLLECTORS:
            collect(node, rank)
        else:
            learn(node, ticks)
        node.stop()


def collect(node: stepvan.Node, rank: int) -> None:
    """Makes rows, and packs those that the learner asks for."""
    buffer = ReplayBuffer(FIELDS, ROWS)
    collector = ReplayCollector(buffer, node=node, learner=0)
    buffer.add(explore(rank))
    print(f"collector {rank}: {buffer.written:,} steps", flush=True)
    collector.wait()


def learn(node: stepvan.Node, ticks: int) -> None:
    """Trains on batches of the collectors, each of which is packed while the one before is used."""
    learner = Learner()
    with DoubleBufferReplayPipeline(
        device="cpu", sample_count=BATCH, fields=FIELDS, node=node, collectors=COLLECTORS, base_seed=SEED
    ) as pipeline:
        pipeline.start_prepare(0, BATCH, min_snapshot_ptr=ROWS)
        for tick in range(ticks):
            batch = pipeline.sample_large_batch(tick, BATCH)
            if tick + 1 < ticks:
                pipeline.start_prepare(tick + 1, BATCH, min_snapshot_ptr=ROWS)
            loss = learner.learn(batch)
            pipeline.after_tick()
            if tick % (ticks // 5) == 0 or tick + 1 == ticks:
                print(f"tick {tick:4}: loss {loss:.4f}, the cart stops {learner.drive():.2f} from the middle", flush=True)
    same = torch.equal(learner.weights(), alone(ticks).weights())
    print("the weights are bit for bit those of one process" if same else "the weights differ from those of one process", flush=True)
    if not same:
        raise SystemExit(1)


def alone(ticks: int) -> Learner:
    """The same training in one process: each collector gives its share of the rows that torch picks."""
    learner = Learner()
    buffers = [torch.cat([column.reshape(ROWS, -1) for column in explore(rank).values()], 1) for rank in COLLECTORS]
    share = BATCH // len(COLLECTORS)
    for tick in range(ticks):
        places = torch.randint(0, ROWS, (BATCH,), generator=torch.Generator().manual_seed(SEED + tick))
        rows = torch.cat([buffer[places[i * share :][:share]] for i, buffer in enumerate(buffers)])
        learner.learn({"state": rows[:, 0:2], "action": rows[:, 2], "reward": rows[:, 3], "following": rows[:, 4:6]})
    return learner


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
