"""Where the loops of particles run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from stepvan._errors import InvalidError, cut
from stepvan._join import _Joined, _Scheduler, _settings, join
from stepvan._node import Node
from stepvan.particles._devices import accelerators

_START = 60.0  # seconds


class Nodes:
    """The processes and devices of a PusH: give it as ``multi``.

    node: a node with the role "peer", which stays open; or None: ``stepvan.join()`` in the job of this process.
    devices: how many devices this process has, or a list of their numbers; None: all accelerators, or the CPU. Without
        accelerators, several devices are threads on the CPU.
    allow_pickle: whether values that nothing else can send are pickled. A process that reads them runs what is in them:
        they are taken from processes of this user on this machine, and from others only with the same key.
    key: a secret of at least 16 bytes, the same in all processes.
    """

    def __init__(self, node: Node | None = None, *, devices: Any = None, allow_pickle: bool = False, key: bytes | None = None) -> None:
        if node is not None and (not isinstance(node, Node) or node.peer is None):
            raise InvalidError(f"node is {cut(node)}: it must be a stepvan.Node with the role 'peer', or None")
        self.node = node
        self.devices = devices_of(accelerators()[1] or 1 if devices is None else devices)
        self.allow_pickle = bool(allow_pickle)
        self.key = key
        self.alone = False

    @contextlib.contextmanager
    def opened(self) -> Iterator[Node]:
        """The node. One that was made for this purpose stops at the end, or closes after an error."""
        if self.node is not None:
            yield self.node
            return
        with alone() if self.alone else join() as node:
            yield node


def nodes_of(multi: Any) -> Nodes:
    """What ``multi`` of PusH means."""
    if isinstance(multi, Nodes):
        return multi
    if isinstance(multi, Node):
        return Nodes(multi)
    if not isinstance(multi, bool):
        raise InvalidError(f"multi is {cut(multi)}: it must be True, False, a stepvan.Node, or Nodes")
    made = Nodes()
    made.alone = not multi
    return made


def devices_of(devices: Any) -> list[int]:
    """The numbers of devices, of a number of them or a list."""
    listed = list(range(devices)) if isinstance(devices, int) and not isinstance(devices, bool) else devices
    if not isinstance(listed, list | tuple) or not listed or len(set(listed)) != len(listed) or any(type(d) is not int or d < 0 for d in listed):
        raise InvalidError(f"devices is {cut(devices)}: it must be a number of devices from 1 on, or a list of different numbers")
    return list(listed)


def alone() -> Node:
    """A node that is the only one of its cluster. The environment has no say in it."""
    until = time.monotonic() + _START
    hosted = _Scheduler("127.0.0.1", 0, 1, until)
    try:
        node = _Joined(_settings("peer", "127.0.0.1", hosted.port, 1, 0), _START)
    except BaseException as error:
        hosted.give_up(error)
        raise
    node.hosted = hosted
    return node
