"""Keys as StepMesh programs make them: 8 bits tensor, 8 bits micro-batch, 8 bits worker; bit 24 is a pull."""

import os


def gen_push_key(private_key, microbatch=0, worker_rank=-1):
    assert 0 <= private_key < 256, f"illegal private key: {private_key}"
    if worker_rank == -1:
        worker_rank = int(os.environ.get("DMLC_NODE_RANK", "0"))
    return private_key + (microbatch << 8) + (worker_rank << 16)


def gen_pull_key(private_key, microbatch=0, worker_rank=-1):
    return gen_push_key(private_key, microbatch, worker_rank) + (1 << 24)


def get_worker_rank(key):
    return key >> 16 & 0xFF


def get_microbatch(key):
    return key >> 8 & 0xFF
