"""Push tensors to servers, and pull their answers: torch, numpy, and all objects with DLPack or the buffer protocol.

A worker and a server, each in a process of its own (and a scheduler: ``python -m stepvan launch`` starts all)::

    import stepvan, torch

    with stepvan.Node() as node:
        if node.role == "worker":
            x, y = torch.rand(128, 4096), torch.empty(128, 4096)
            node.worker.push_pull([x], [1], [y], [2]).wait()
        elif node.role == "server":
            for batch in node.server:
                for request in batch:
                    request.respond([request.tensors[0] * 2])

This module has StepMesh's functions, on one node per process. The module ``fserver_lib`` has them under their original
names. Times are seconds, except in ``wait`` and where a name or text says ns. Settings are environment variables:
``python -m stepvan env --all`` explains each. ``python -m stepvan doctor`` checks them and this machine.
"""

from stepvan import _core
from stepvan._board import Board, Entry
from stepvan._default import (
    barrier,
    empty,
    fetch_trace,
    get_all_handlers,
    get_batch,
    get_nanosecond,
    init,
    push_pull,
    register_recv_buffer,
    respond,
    respond_vec,
    share_,
    stop,
    wait,
    zeros,
)
from stepvan._errors import (
    BusyError,
    ClosedError,
    ConfigError,
    Error,
    ExpiredError,
    ForkedError,
    InternalError,
    InvalidError,
    NotSupportedError,
    OutOfMemoryError,
    PeerLostError,
    ProtocolError,
    RefusedError,
    RemoteError,
    StaleError,
    TimeoutError,
    WouldBlockError,
)
from stepvan._group import Gathering, Group
from stepvan._join import join
from stepvan._mail import Mail, Mailbox, Window
from stepvan._node import Node, Peer
from stepvan._part import Part
from stepvan._peering import Peering
from stepvan._plan import Move, Plan, PlanStats
from stepvan._registration import Registration
from stepvan._server import Pull, Request, Response, Server
from stepvan._worker import Handle, Trace, Worker

__version__: str = _core.wheel_version()
"""The version of the package, as pip shows it: "1.2.3"."""

__all__ = [
    "Board",
    "BusyError",
    "ClosedError",
    "ConfigError",
    "Entry",
    "Error",
    "ExpiredError",
    "ForkedError",
    "Gathering",
    "Group",
    "Handle",
    "InternalError",
    "InvalidError",
    "Mail",
    "Mailbox",
    "Move",
    "Node",
    "NotSupportedError",
    "OutOfMemoryError",
    "Part",
    "Peer",
    "PeerLostError",
    "Peering",
    "Plan",
    "PlanStats",
    "ProtocolError",
    "Pull",
    "Registration",
    "RefusedError",
    "RemoteError",
    "Request",
    "Response",
    "Server",
    "StaleError",
    "TimeoutError",
    "Trace",
    "Window",
    "Worker",
    "WouldBlockError",
    "barrier",
    "empty",
    "fetch_trace",
    "get_all_handlers",
    "get_batch",
    "get_nanosecond",
    "init",
    "join",
    "push_pull",
    "register_recv_buffer",
    "respond",
    "respond_vec",
    "share_",
    "stop",
    "wait",
    "zeros",
]
