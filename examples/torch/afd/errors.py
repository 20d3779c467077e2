"""What a connector finds wrong with the other side."""

from __future__ import annotations

from typing import Any


class RefusedError(RuntimeError):
    """Raised at an attention worker: an FFN server does not take its exchange. The message is the server's reason."""


class BadRequestError(ValueError):
    """Raised at an FFN server: a request that is not of this connector, and could not be refused.

    ``request`` is unanswered and the program's: it may answer it (``stepvan.Request``).
    """

    def __init__(self, message: str, request: Any) -> None:
        super().__init__(message)
        self.request = request
