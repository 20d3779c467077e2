"""all-MiniLM-L6-v2 divided over the ranks of a layout, as tensor parallelism divides it.

``Layout`` says which elements of each parameter a rank has. ``Part`` is the model of one
rank. Its parameters have the names of the whole ``minilm.MiniLM``. A forward pass needs the
sums of what the parts of all ranks compute: ``Sums`` makes them between peers, and
``run_together`` in one process.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "torch"))  # where package minilm is

from .layout import LEADER, Layout, Range, inference_layout, shapes, training_layout, whole_state
from .part import Part, run, run_together
from .sums import Sums, in_order
from .task import Task, kept, published, small

__all__ = [
    "LEADER",
    "Layout",
    "Part",
    "Range",
    "Sums",
    "Task",
    "in_order",
    "inference_layout",
    "kept",
    "published",
    "run",
    "run_together",
    "shapes",
    "small",
    "training_layout",
    "whole_state",
]
