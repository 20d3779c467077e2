"""Runs the double-buffer pipeline of UniLab over the transfer backends of stepvan.

    python replay_unilab.py CHECKOUT

CHECKOUT has the files of a commit of UniLab that still has unilab/ipc/replay_pipelines/transfer. The backends of that
package are replaced by those of stepvan, and no other line of the pipeline. Then the pipeline's own tests run. Last,
the same ticks run over both packages of backends, in processes of their own, and must give the same batches.

It needs CPython 3.12 with torch, pytest and the wheel of stepvan. UniLab's simulator is not installed. So the root
package, which looks for its assets, is an empty one here. Of the collector's module only the functions are taken that
pack rows.
"""

import ast
import hashlib
import importlib
import queue
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
import torch

BACKENDS = "unilab.ipc.replay_pipelines.transfer"
MODULES = ("base", "cuda_like", "factory", "torch_copy", "xpu")
COLLECTOR = "unilab.algos.torch.offpolicy.worker"
TICKS, ROWS, CAPACITY = 200, 64, 512


def put_in_place(checkout: Path, backends: str) -> None:
    """Makes package unilab importable, with the backends of unilab or of stepvan."""
    root = ModuleType("unilab")
    root.__path__ = [str(checkout / "src" / "unilab")]
    sys.modules["unilab"] = root
    if backends == "stepvan":
        ours = "stepvan.replay_pipelines.transfer"
        sys.modules[BACKENDS] = importlib.import_module(ours)
        for name in MODULES:
            sys.modules[f"{BACKENDS}.{name}"] = importlib.import_module(f"{ours}.{name}")
    sys.modules[COLLECTOR] = collector(checkout / "src" / (COLLECTOR.replace(".", "/") + ".py"))


def collector(path: Path) -> ModuleType:
    """The functions of the collector's module that pack rows, as they are."""
    tree = ast.parse(path.read_text(), str(path))
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith(("_collector_pack", "_service"))]
    found = ModuleType(COLLECTOR)
    found.__dict__.update(torch=torch, time=time, queue=queue)
    exec(compile(tree, str(path), "exec"), found.__dict__)
    return found


def batches() -> str:
    """Runs the pipeline for some ticks, while rows are added, and returns the hash of all batches."""
    from unilab.algos.torch.offpolicy.worker import _service_collector_pack_requests
    from unilab.ipc.replay_buffer import ReplayBuffer
    from unilab.ipc.replay_pipelines import CPUPinnedDoubleBufferReplayPipeline

    torch.manual_seed(1)
    replay = ReplayBuffer(capacity=CAPACITY, obs_dim=5, action_dim=3, device="cpu", critic_dim=2, packed_cpu_storage=True)
    slots = [torch.empty((ROWS, replay._storage.shape[1])).share_memory_() for _ in range(2)]
    asked, packed = queue.Queue(), queue.Queue()
    pipeline = CPUPinnedDoubleBufferReplayPipeline(
        replay,
        device="cpu",
        sample_count=ROWS,
        base_seed=7,
        collector_pack_request_queue=asked,
        collector_pack_ready_queue=packed,
        collector_pack_shared_slots=slots,
    )
    found = hashlib.sha256()
    for tick in range(TICKS):
        n = 1 + tick % 31
        replay.add(
            obs=torch.randn(n, 5),
            actions=torch.randn(n, 3),
            rewards=torch.randn(n),
            next_obs=torch.randn(n, 5),
            dones=torch.zeros(n),
            truncated=torch.zeros(n),
            critic=torch.randn(n, 2),
            next_critic=torch.randn(n, 2),
        )
        assert pipeline.start_prepare(tick, ROWS)
        assert not pipeline.start_prepare(tick, ROWS)
        _service_collector_pack_requests(replay, asked, packed, slots)
        assert pipeline.wait_until_ready(tick, ROWS)
        batch = pipeline.sample_large_batch(tick, ROWS)
        for name in sorted(batch):
            found.update(batch[name].contiguous().numpy().tobytes())
        pipeline.after_tick()
    pipeline.close()
    return f"{type(pipeline._transfer_backend).__module__} {found.hexdigest()}"


class Count:
    """Counts the outcomes of tests."""

    def __init__(self) -> None:
        self.passed = self.skipped = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed += report.when == "call" and report.passed
        self.skipped += report.skipped


def main() -> None:
    checkout = Path(sys.argv[1]).resolve()
    if len(sys.argv) > 2:  # in a process of its own
        put_in_place(checkout, sys.argv[2])
        print(batches())
        return
    found = []
    for backends in ("unilab", "stepvan"):
        run = [sys.executable, __file__, str(checkout), backends]
        module, digest = subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout.split()
        assert module.split(".")[0] == backends, module
        found.append(digest)
    assert found[0] == found[1], found
    put_in_place(checkout, "stepvan")
    count = Count()
    tests = checkout / "tests" / "ipc" / "test_replay_pipeline_double_buffer.py"
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(checkout)]
    status = pytest.main([*options, str(tests)], [count])
    assert status == 0, status
    assert count.passed >= (6 if not torch.cuda.is_available() else 20), count.passed
    print(f"replay: {TICKS} ticks of UniLab's pipeline, same batches; {count.passed} of its tests pass, {count.skipped} skipped")


if __name__ == "__main__":
    main()
