"""A connector for attention and FFN disaggregation, in the shape of those of vLLM's closed pull request 25162.

It plugs into nothing: no release of vLLM has a place for such connectors.

An attention worker calls ``send_attn_output`` and ``recv_ffn_output``, an FFN server
``recv_attn_output`` and ``send_ffn_output``; every exchange is described by an
``AFDConnectorMetadata``. Sequence lengths may differ from exchange to exchange,
and each stage (micro-batch) has an exchange of its own in flight.
"""

from .config import ConnectorConfig
from .connector import StepvanAFDConnector
from .errors import BadRequestError, RefusedError
from .metadata import AFDConnectorMetadata

__all__ = ["AFDConnectorMetadata", "BadRequestError", "ConnectorConfig", "RefusedError", "StepvanAFDConnector"]
