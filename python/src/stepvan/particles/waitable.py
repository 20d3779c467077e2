"""What a future can belong to."""

from __future__ import annotations

from typing import Any

__all__ = ["Waitable"]


class Waitable:
    """The base of what gives out futures."""

    def _wait(self, fid: int) -> Any:
        """Waits for the result of the future with the ID ``fid``."""
        raise NotImplementedError(f"wait: {type(self).__name__}: it has no futures: let its class define _wait")
