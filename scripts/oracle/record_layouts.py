"""Records how torch.distributed.tensor lays random tensors out, in one process: pairs of layouts for TestTorch."""

import random

import layouts
import recording
from torch.distributed.tensor import _utils

RANKS = 2  # of each layout are held against the offsets that DTensor computes
MOST = 2000  # elements of a tensor
ATTEMPTS = 3


def offsets(rng, shape, mesh, placements, parts):
    """Holds parts against the shapes and offsets that DTensor computes without a tensor."""
    if layouts.strided(placements):
        return
    for _ in range(RANKS):
        at = [rng.randrange(n) for n in mesh]
        index = 0
        for i, n in zip(at, mesh):
            index = index * n + i
        local, offset = _utils._compute_local_shape_and_global_offset(shape, mesh, at, placements)
        assert list(local) == parts[index]["local"]
        if "spans" in parts[index]:
            assert list(offset) == [spans[0][0] for spans in parts[index]["spans"]]


def random_side(rng, shape, kinds):
    """A layout that splits evenly where it must, or after some attempts one that does not: it has no parts."""
    for _ in range(ATTEMPTS):
        mesh = [rng.randint(1, 3 if rng.random() < 0.9 else 5) for _ in range(rng.randint(1, 4))]
        pairs = [layouts.random_placement(rng, len(shape), kinds) for _ in mesh]
        placements, texts = [p for p, _ in pairs], [text for _, text in pairs]
        parts = layouts.split(layouts.numbered(shape), mesh, placements)
        if parts is not None:
            break
    else:
        return {"mesh": mesh, "placements": texts}
    described = {id(part): layouts.describe(part, shape) for part in parts}
    parts = [described[id(part)] for part in parts]
    offsets(rng, shape, mesh, placements, parts)
    ranks = list(range(len(parts)))
    if rng.random() < 0.5:
        first = rng.choice([0, 1000])
        ranks = [first + r for r in rng.sample(ranks, len(ranks))]
    return layouts.side(mesh, ranks, texts, parts)


def main():
    options = recording.arguments(__doc__, seed=19, cases=250, most=1500)
    rng = random.Random(options.seed)
    cases = []
    while len(cases) < options.cases:
        shape = layouts.random_shape(rng, MOST)
        src = random_side(rng, shape, [*layouts.PLAIN, "P"])
        case = {"shape": shape, "from": src, "to": random_side(rng, shape, layouts.PLAIN)}
        refused = [s for s in [case["from"], case["to"]] if "parts" not in s]
        if refused and rng.random() < 0.3:
            continue  # not many of them: package layout refuses them
        if refused:
            case = {"shape": shape, "refused": refused[0]}
        if len(recording.compact(case)) <= options.bytes:
            cases.append(case)
    recording.write(options, ["torch"], cases)


if __name__ == "__main__":
    main()
