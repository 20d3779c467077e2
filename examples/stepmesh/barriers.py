"""Barriers with every combination of flags.

Any number of workers and servers, in nodes of any size. Before a barrier every caller
leaves a mark in a directory; behind it the marks of all callers must be there.

    barriers.py DIRECTORY     an empty directory that all processes share
"""

import os
import pathlib
import sys
import time

import fserver_lib as f

role = os.environ.get("DMLC_ROLE")
gpu = int(os.environ.get("STEPMESH_GPU", "0"))
group_size = int(os.environ.get("DMLC_GROUP_SIZE", "1"))
node = int(os.environ.get("DMLC_NODE_RANK", "0"))
nodes = {r: int(os.environ.get(f"DMLC_NUM_{r.upper()}", "1")) for r in ("server", "worker")}
marks = pathlib.Path(sys.argv[1])
rounds = 5


def meet(name, include_server, include_worker, instance_barrier):
    members = [r for r, included in (("server", include_server), ("worker", include_worker)) if included]
    instances = range(group_size if instance_barrier else 1)  # of a node one calls
    if role not in members or gpu not in instances:
        return False
    (marks / f"{name}-{role}-{node}-{gpu}").touch()
    f.barrier(include_server, include_worker, instance_barrier)
    for r in members:
        for n in range(nodes[r]):
            for g in instances:
                assert (marks / f"{name}-{r}-{n}-{g}").exists(), f"{r} {n}.{g} has not come to barrier {name}"
    return True


f.init()

if role != "scheduler":
    passed = 0
    for i in range(rounds):
        for flags in [(s, w, per) for s, w in ((True, True), (True, False), (False, True)) for per in (True, False)]:
            if (i + node + gpu) % 3 == 0:
                time.sleep(0.002)  # one process comes late
            passed += meet(f"{i}-" + "".join("ny"[flag] for flag in flags), *flags)
    assert passed >= 2 * rounds
    print(f"{role} {node}.{gpu}: {passed} barriers passed")

f.stop()
