"""The package of StepMesh that newer programs import: ``import fserver.fserver_lib as f``. See ``fserver_lib``.

It has the names that forks of StepMesh add for CUDA graphs; using them raises NotSupportedError.
"""

from typing import Any

import fserver_lib as f
import stepvan
from fserver import fslib
from fserver_lib import capture_begin, capture_end


class SMCudaGraph:
    """CUDA only: raises NotSupportedError."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise stepvan.NotSupportedError(
            "SMCudaGraph records work of a GPU, and this build of stepvan is for the CPU: call push_pull and wait as they are"
        )


def __getattr__(name: str) -> Any:
    """A class for each name that begins with AfdTensorCommunicator; making an object of it raises an error."""
    if not name.startswith("AfdTensorCommunicator"):
        raise AttributeError(f"module 'fserver' has no attribute {name!r}")

    def refuse(self: Any, *_: Any, **__: Any) -> None:
        raise stepvan.NotSupportedError(
            f"{name} moves tensors of a GPU, and this build of stepvan is for the CPU: use push_pull, get_batch and respond of fserver_lib"
        )

    made = type(name, (), {"__doc__": "CUDA only: raises NotSupportedError.", "__module__": "fserver", "__init__": refuse})
    globals()[name] = made
    return made


__all__ = ["SMCudaGraph", "capture_begin", "capture_end", "f", "fslib"]
