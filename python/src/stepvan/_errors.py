"""What can go wrong: exceptions, by the codes of the C interface."""

import builtins
import contextlib
from collections.abc import Iterator

from stepvan import _core


_LONGEST = 200  # characters of a value that an error quotes


def cut(value: object) -> str:
    """What an error says of a value of the caller: its repr, or the beginning of that."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"


class Error(Exception):
    """The root of all errors of stepvan.

    ``subject`` names what the error is about: the variable of a ConfigError, the peer ("worker 3") where one is
    concerned, else "".
    """

    subject: str = ""


class TimeoutError(Error, builtins.TimeoutError):
    """The time given has passed. Nothing has changed: the same call can be made again."""


class ExpiredError(TimeoutError):
    """A limit of the settings has passed: STEPVAN_START_TIMEOUT, also as the timeout of Node, or STEPVAN_STOP_TIMEOUT."""


class ClosedError(Error):
    """Stopped or closed by this program, or all workers have left: time to stop."""


class PeerLostError(Error, ConnectionError):
    """A peer died or its connection broke; ``subject`` names it."""


class ConfigError(Error, ValueError):
    """A setting is missing or wrong; ``subject`` names the variable, the message names all mistakes."""


class InvalidError(Error, ValueError):
    """An argument contradicts the contract. Nothing was done."""


class BusyError(Error):
    """Belongs to an unanswered request, or is in use."""


class WouldBlockError(Error, BlockingIOError):
    """Full: wait for something outstanding and try again."""


class StaleError(Error, LookupError):
    """A handle, handler or registration is gone, or never was."""


class NotSupportedError(Error, NotImplementedError):
    """Not in this build, on this van, or with this device."""


class RemoteError(Error):
    """The peer has refused; the message is its reason."""


class RefusedError(Error):
    """This server refused a request of the worker ``subject``, so its batch failed.

    The other workers' requests of that batch end with RemoteError, and the next ``get_batch`` gives the next request of
    every worker.
    """


class ProtocolError(Error):
    """A peer sent what cannot be."""


class ForkedError(Error):
    """This process was forked from one that had used stepvan: fork before the first use, or use multiprocessing with "spawn"."""


class OutOfMemoryError(Error, MemoryError):
    """The system or container has no memory left for it: free some, or ask for less."""


class InternalError(Error):
    """A mistake of the library, or of the system; the message is for its authors.

    A panic of the library has ended the node: all its calls raise this error, ``stop`` does at once, and the interpreter goes on.
    """


@contextlib.contextmanager
def calling(what: str, node: int) -> Iterator[None]:
    """Has an error because the node was stopped or closed say so, and what was called."""
    try:
        yield
    except (ClosedError, StaleError) as error:
        raise ended(what, node, error) from None


def ended(what: str, node: int, error: Error) -> Error:
    """The error in place of one of a call on a node, which may be because the node was stopped or closed."""
    try:
        _core.info(node)
    except Error:
        return ClosedError(f"{what}: this node was closed")
    if isinstance(error, StaleError) or str(error).startswith(what):
        return error
    return ClosedError(f"{what}: this node was stopped")


_errors: dict[int, type[Exception]] = {
    1: TimeoutError,
    2: ClosedError,
    3: PeerLostError,
    4: ConfigError,
    5: InvalidError,
    6: BusyError,
    7: WouldBlockError,
    8: StaleError,
    10: NotSupportedError,
    11: RemoteError,
    12: ProtocolError,
    13: InternalError,  # arrays that are too small: the extension makes them larger itself
    14: ForkedError,
    15: InternalError,
    16: ExpiredError,
    17: RefusedError,
    18: OutOfMemoryError,
}
_core.set_errors(_errors)
for _error in (Error, *_errors.values()):
    _error.__module__ = "stepvan"  # as programs write it, so that a traceback says stepvan.BusyError
