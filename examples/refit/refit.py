"""What trainers and inference processes agree on."""

from __future__ import annotations

import stepvan
from parallel import Part, shapes

TRAINERS = (0, 1)
INFERENCE = (2, 3, 4)
"""The ranks among the peers."""
TIMEOUT = 120  # seconds until all have loaded the model


def plan_of(node: stepvan.Node, part: Part) -> stepvan.Plan:
    """The plan by which the weights of the trainers go to inference. All processes call it together.

    Each says what it has of every parameter. The moves follow from that, and nobody lists them.
    """
    state = {}
    whole = shapes(part.layout.config)
    for name, parameter in part.named_parameters():
        spans = part.layout.range_of(name, whole[name], part.rank).spans(whole[name])
        state[name] = (parameter, stepvan.Part.spans(whole[name], *spans))
    if node.peer.rank in TRAINERS:
        return node.peer.match("weights", send=state, timeout=TIMEOUT)
    return node.peer.match("weights", recv=state, timeout=TIMEOUT)


def tell(name: str, what: str) -> None:
    """Prints a line whole, since several processes print."""
    print(f"{name:<11} | {what}\n", end="", flush=True)
