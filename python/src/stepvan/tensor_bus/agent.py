"""Agents of the tensor bus."""

from __future__ import annotations

import os
from typing import Any

from stepvan import _core
from stepvan._errors import InvalidError, cut
from stepvan._local import Local
from stepvan._node import Node
from stepvan.tensor_bus.client import TensorBusClient, socket_path


class Agent(Local):
    """An agent in this process: it follows the commands of clients, together with the agents of their partners.

    node: a node with the role "peer", which has one agent at most.
    path: where the agent listens, for clients of this process and of others of this user. None: where clients look by
        default, by the port of the scheduler and the rank of the node.
    queue: how many commands of a client may not have completed.

    ``python -m stepvan agent`` is an agent in a process of its own. As a context manager it closes at the end.
    """

    def __init__(self, node: Node, *, path: str | os.PathLike[str] | None = None, queue: int = 50_000) -> None:
        if not isinstance(node, Node) or node.peer is None:
            raise InvalidError(f"agent: node is {cut(node)}: it must be a stepvan.Node with the role 'peer'")
        self.rank = node.peer.rank
        self.path = socket_path(self.rank, node._scheduler_port) if path is None else os.path.abspath(os.fspath(path))
        self._node = node
        self._number = _core.agent(node.number, self.path, queue)

    rank: int
    path: str

    def client(self, rank: int | None = None, **options: Any) -> TensorBusClient:
        """A client of this agent. options: those of TensorBusClient."""
        return TensorBusClient(self.rank, path=self.path, rank=rank, **options)

    def close(self, timeout: float | None = 30.0) -> None:
        """Ends the agent, before its node. Its clients get an error, and so do the agents of their partners.

        It waits until nobody uses the memory of the clients. TimeoutError: others still use it; stop the node. A second
        call does nothing.
        """
        number, self._number = self._number, 0
        if number:
            _core.agent_close(number, timeout)

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<stepvan.tensor_bus.Agent: {self.rank} at {self.path}{'' if self._number else ' (closed)'}>"
