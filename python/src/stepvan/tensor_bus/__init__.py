"""The tensor bus: tensors move between two jobs that were started apart, and that lay them out in different ways.

A process gives commands to an agent, which is a peer of a cluster: ``client.TensorBusClient``. The agent is in the same
process (``agent.Agent``), or in one of its own (``python -m stepvan agent``). The commands are in ``commands``, and
``bootstrap`` finds the agent by the environment. The package needs msgspec: ``pip install 'stepvan[bus]'``.
"""

try:
    import msgspec as _msgspec
except ImportError as error:
    raise ImportError("stepvan.tensor_bus needs msgspec: pip install 'stepvan[bus]', or pip install msgspec") from error

from stepvan.tensor_bus.agent import Agent
from stepvan.tensor_bus.bootstrap import bootstrap_client
from stepvan.tensor_bus.client import BatchHandler, Result, Status, TensorBusClient

__all__ = ["Agent", "BatchHandler", "Result", "Status", "TensorBusClient", "bootstrap_client"]
del _msgspec
