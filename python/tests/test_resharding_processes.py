"""Resharding between processes: over gloo with another service, over peers, and when one of them is killed."""

import re
import time
from pathlib import Path

import pytest
import resharding_world as rw
import torch
from conftest import free_port

BEGIN = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import hashlib, time, stepvan, torch, torch.distributed as dist, resharding_world as rw
from stepvan.resharding import *
from stepvan.resharding.copy_services import StepvanCopyService
torch.set_num_threads(1)

def digest(module):
    found = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        found.update(name.encode() + tensor.numpy().tobytes())
    return found.hexdigest()
"""

SRC, DST = rw.Layout(tp=2, pp=1), rw.Layout(ep=2, first=1)
MODELS = """
src, dst = rw.Layout(tp=2, pp=1), rw.Layout(ep=2, first=1)
mine = rw.model(src, rank, rw.weights(0)) if rank < 2 else None
theirs = rw.model(dst, rank, None) if rank in (1, 2) else None
"""


@pytest.fixture
def run(run_with_torch):
    return run_with_torch


def digests(version):
    """What the destinations are to have."""
    names = {"model": lambda rank: rw.model(DST, rank, rw.weights(version))}
    code: dict = {}
    exec(BEGIN[BEGIN.index("def digest") :], {"hashlib": __import__("hashlib")}, code)
    return [code["digest"](names["model"](rank)) for rank in (1, 2)]


GLOO = (
    BEGIN
    + """
class Gloo:
    def __init__(self):
        self.sends, self.recvs = [], []

    def submit_send(self, tensor, dest_rank, task_id=None):
        self.sends.append((task_id, tensor, dest_rank))

    def submit_recv(self, tensor, src_rank, task_id=None):
        self.recvs.append((task_id, tensor, src_rank))

    def run(self):
        me, place = dist.get_rank(), {task: tensor for task, tensor, rank in self.sends if rank == dist.get_rank()}
        order = lambda one: one[0]
        works = [dist.isend(tensor, rank) for _, tensor, rank in sorted(self.sends, key=order) if rank != me]
        works += [dist.irecv(tensor, rank) for _, tensor, rank in sorted(self.recvs, key=order) if rank != me]
        for task, tensor, rank in self.recvs:
            if rank == me:
                tensor.copy_(place[task])
        for work in works:
            work.wait()
        self.sends, self.recvs = [], []

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=sys.argv[2], rank=rank, world_size=4)
"""
    + MODELS
    + """
for build in (build_local_reshard_plan, build_centralized_reshard_plan):
    for batch_bytes in (0, 2000):
        plan = build(mine, theirs, rw.EXPERTS, batch_bytes=batch_bytes)
        if theirs is not None:
            theirs.load_state_dict(rw.model(dst, rank, None).state_dict())
        execute_reshard_plan(plan, mine, theirs, Gloo())
        print(plan.num_batches > 1, digest(theirs) if theirs else "-", version_of(theirs) if theirs else "-")
prepare_swap_model_weights(mine, theirs)
swap_model_weights(mine, theirs, Gloo(), version=9)
print(digest(theirs) if theirs else "-", version_of(theirs) if theirs else "-")
dist.destroy_process_group()
"""
)


def test_over_gloo(run):
    address = f"tcp://127.0.0.1:{free_port()}"
    programs = [run(GLOO, {"GLOO_SOCKET_IFNAME": "lo"}, str(rank), address) for rank in range(4)]
    results = [program.result(timeout=60).split("\n") for program in programs]
    one, two = digests(0)
    for rank, wanted in ((0, ""), (1, one), (2, two), (3, "")):
        lines = results[rank]
        runs = range(1, 5) if wanted else ["-"] * 4
        assert lines[:4] == [f"{n % 2 == 1} {wanted or '-'} {version}" for n, version in enumerate(runs)]
        assert lines[4] == (f"{wanted} 9" if wanted else "- -")


PEERS = (
    BEGIN
    + """
with stepvan.Node() as node:
    rank = node.peer.rank
"""
    + MODELS.replace("\n", "\n    ")
    + """
    if "share" in sys.argv:
        for module in (mine, theirs):
            if module is not None:
                stepvan.share_(module)
    service = StepvanCopyService(node, timeout=30)
    with node.peer.group(range(3)) as group:
        plan = build_local_reshard_plan(mine, theirs, rw.EXPERTS, group)
    for version in range(1, 4):
        if mine is not None:
            mine.load_state_dict(rw.model(src, rank, rw.weights(version)).state_dict())
        execute_reshard_plan(plan, mine, theirs, service, version=version if mine else None)
        print(digest(theirs) if theirs else "-", version_of(theirs) if theirs else "-", flush=True)
    if "kill" in sys.argv and rank == 0:
        time.sleep(60)  # until the test ends this process
    elif "kill" in sys.argv:
        try:
            execute_reshard_plan(plan, mine, theirs, service)
        except stepvan.Error as error:
            print(type(error).__name__, version_of(theirs), error, flush=True)
        with node.peer.group([1, 2], "survivors") as group:
            found = torch.zeros(3)
            src, dst = ({"x": torch.ones(3)}, None) if rank == 1 else (None, {"x": found})
            reshard_state_dicts(node, src, dst, name="again", group=group).close()
        print(found.tolist() if rank == 2 else "-")
    else:
        service.close()
"""
)


@pytest.mark.parametrize(("share", "van"), [("share", ""), ("private", ""), ("private", "tcp")])
def test_over_peers(run, scheduler, share, van):
    settings = {**scheduler(0, 0, peers=3), "DMLC_ROLE": "peer", **({"STEPVAN_VAN": van} if van else {})}
    programs = [run(PEERS, {**settings, "DMLC_NODE_RANK": str(rank)}, share) for rank in range(3)]
    results = [program.result(timeout=60).split("\n")[:3] for program in programs]
    assert results[0] == ["- -"] * 3
    wanted = [digests(version) for version in range(1, 4)]
    for rank in (1, 2):
        assert results[rank] == [f"{wanted[version - 1][rank - 1]} {version}" for version in range(1, 4)]


def test_a_source_that_is_killed(run, scheduler):
    settings = {**scheduler(0, 0, peers=3), "DMLC_ROLE": "peer"}
    programs = [run(PEERS, {**settings, "DMLC_NODE_RANK": str(rank)}, "share", "kill") for rank in range(3)]
    for program in programs:
        for _ in range(3):
            program.process.stdout.readline()
    programs[0].process.kill()
    began = time.monotonic()
    said = [programs[rank].line() for rank in (1, 2)]
    assert time.monotonic() - began < 2
    assert any(line.startswith("PeerLostError 0 ") and "peer 0" in line for line in said), said
    assert all(re.match(r"\w+Error 0 ", line) for line in said), said
    assert [programs[rank].line() for rank in (1, 2)] == ["-", "[1.0, 1.0, 1.0]"]
    for program in programs[1:]:
        program.result(expect=None)
