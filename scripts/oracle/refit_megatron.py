"""Runs Megatron-core's own refit over stepvan's service and over its own gloo service, and compares the bytes.

Three processes take part:

    python -m stepvan launch -n 3p -- python refit_megatron.py PORT

It needs CPython 3.12 with torch, megatron-core and the wheel of stepvan, and no accelerator: some functions of
torch.cuda do nothing here, and for gloo torch.empty ignores pin_memory. No other line of Megatron-core is replaced.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[2] / "python" / "tests"))


class Nothing:
    """A stream or an event of an accelerator that is not there."""

    def __init__(self, *_, **__):
        pass

    def record(self, *_):
        pass

    wait_event = wait_stream = synchronize = record


torch.cuda.Stream = torch.cuda.Event = Nothing
torch.cuda.stream = lambda _: contextlib.nullcontext()
torch.cuda.current_stream = lambda *_: Nothing()
torch.cuda.synchronize = torch.cuda.empty_cache = lambda *_: None

import resharding_world as rw  # noqa: E402
from megatron.core.resharding import copy_services, refit  # noqa: E402

import stepvan  # noqa: E402
from stepvan.resharding.copy_services.stepvan import StepvanCopyService  # noqa: E402

SRC, DST = rw.Layout(tp=2), rw.Layout(ep=2, first=1)


def groups_of_torch(layouts: list[rw.Layout]) -> dict[tuple[int, ...], dist.ProcessGroup]:
    """The groups of all ranks, which all ranks make in the same order."""
    found: dict[tuple[int, ...], dist.ProcessGroup] = {}
    for layout in layouts:
        for rank in range(layout.first, layout.first + layout.size):
            for ranks in vars(layout.groups(rank)).values():
                if tuple(ranks) not in found:
                    found[tuple(ranks)] = dist.new_group(ranks)
    return found


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor. Numbers may be equal whose bytes differ."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


@contextlib.contextmanager
def unpinned() -> Iterator[None]:
    """Has torch.empty ignore pin_memory, which the gloo service asks for, and which torch refuses without a driver."""
    empty = torch.empty
    torch.empty = lambda *args, pin_memory=False, **kwargs: empty(*args, **kwargs)
    try:
        yield
    finally:
        torch.empty = empty


def main() -> None:
    with stepvan.Node() as node:
        rank = node.peer.rank
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[1]}", rank=rank, world_size=3)
        groups = groups_of_torch([SRC, DST])

        def model(layout: rw.Layout, whole: dict[str, torch.Tensor] | None) -> rw.Tree | None:
            if not layout.first <= rank < layout.first + layout.size:
                return None
            found = rw.model(layout, rank, whole)
            found.pg_collection = SimpleNamespace(**{name: groups[tuple(ranks)] for name, ranks in vars(found.pg_collection).items()})
            return found

        service = StepvanCopyService(node)
        assert isinstance(service, copy_services.CopyService)
        mine, theirs, by_gloo = model(SRC, rw.weights(0)), model(DST, None), model(DST, None)
        barriers = []
        barrier = dist.barrier
        for run in range(3):
            if mine is not None:
                mine.load_state_dict(rw.model(SRC, rank, rw.weights(run)).state_dict())
            dist.barrier = lambda *_, **__: barriers.append(1)
            refit.swap_model_weights(mine, theirs, refit_method=service)
            dist.barrier = barrier
            with unpinned():
                refit.swap_model_weights(mine, by_gloo, refit_method="gloo")
            if theirs is not None:
                wanted = rw.model(DST, rank, rw.weights(run)).state_dict()
                state = theirs.state_dict()
                assert state.keys() == wanted.keys()
                gloo = by_gloo.state_dict()
                assert gloo.keys() == wanted.keys()
                for name, tensor in wanted.items():
                    assert torch.equal(bits(gloo[name]), bits(tensor)), f"{name}: gloo"
                    assert torch.equal(bits(state[name]), bits(gloo[name])), name
        assert not barriers
        service.close()
        print(f"rank {rank}: Megatron-core's refit over stepvan and over its own gloo service gives the same bytes", flush=True)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
