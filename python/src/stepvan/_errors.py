"""What can go wrong: exceptions, by the codes of the C interface."""

import builtins
import contextlib
from collections.abc import Iterator

from stepvan import _core


_LONGEST = 200  # characters of a value that an error quotes


def cut(value: object) -> str:
    """The repr of a value of the caller for an error's message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"


class Error(Exception):
    """The root of all errors of stepvan.

    ``subject`` is the variable of a ConfigError, or the peer concerned ("worker 3"), or "".
    """

    subject: str = ""


class TimeoutError(Error, builtins.TimeoutError):
    """The time limit of the call has passed. Nothing has changed: make the same call again."""


class ExpiredError(TimeoutError):
    """A limit of the settings has passed: STEPVAN_START_TIMEOUT, or the timeout of Node, or STEPVAN_STOP_TIMEOUT."""


class ClosedError(Error):
    """This program stopped or closed the node, or all workers have left: time to stop."""


class PeerLostError(Error, ConnectionError):
    """A peer died or its connection broke; ``subject`` names it."""


class ConfigError(Error, ValueError):
    """A setting is missing or wrong. ``subject`` names the variable; the message lists all mistakes."""


class InvalidError(Error, ValueError):
    """An argument contradicts the contract. Nothing was done."""


class BusyError(Error):
    """The key or memory belongs to an unanswered request, or is in use."""


class WouldBlockError(Error, BlockingIOError):
    """Too much is outstanding: wait for a handle or response and try again."""


class StaleError(Error, LookupError):
    """A handle, handler or registration is gone, or never existed."""


class NotSupportedError(Error, NotImplementedError):
    """Not in this build, on this van, or with this device."""


class RemoteError(Error):
    """The peer refused the request; the message is its reason."""


class RefusedError(Error):
    """This server refused a request of the worker ``subject``, so its batch failed.

    The other workers' requests of that batch end with RemoteError, and the next ``get_batch`` gives the next request of
    every worker.
    """


class ProtocolError(Error):
    """A peer sent an invalid message."""


class ForkedError(Error):
    """This process was forked after the first use of stepvan: fork before it, or use multiprocessing with "spawn"."""


class OutOfMemoryError(Error, MemoryError):
    """The system or container has no memory left: free some, or ask for less."""


class InternalError(Error):
    """A mistake of the library or the system: please report the message.

    After a panic of the library the node has ended. All its calls raise this error, ``stop`` at once, and the
    interpreter continues.
    """


@contextlib.contextmanager
def calling(what: str, node: int) -> Iterator[None]:
    """Lets an error that a stopped or closed node causes say so, and name the call."""
    try:
        yield
    except (ClosedError, StaleError) as error:
        raise ended(what, node, error) from None


def ended(what: str, node: int, error: Error) -> Error:
    """The error to raise for an error of a call on a node, which may have been stopped or closed."""
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
    13: InternalError,  # an array is too small: the extension itself makes it larger
    14: ForkedError,
    15: InternalError,
    16: ExpiredError,
    17: RefusedError,
    18: OutOfMemoryError,
}
_core.set_errors(_errors)
for _error in (Error, *_errors.values()):
    _error.__module__ = "stepvan"  # as programs write it, so that a traceback says stepvan.BusyError
