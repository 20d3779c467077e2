"""The connector: four calls, of which each side uses two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from .attention import AttentionSide, Sent
from .config import ConnectorConfig
from .ffn import FFNSide
from .metadata import AFDConnectorMetadata


class StepvanAFDConnector:
    """Moves activations between attention workers and FFN servers over stepvan.

    Every server of a worker gets all rows; the worker gets the sum of their answers
    (tensor parallelism), which with one server is its answer. Use it from one thread.
    A tensor that does not fit raises ``ValueError``, and a call out of turn
    ``RuntimeError``. Mistakes of the other side raise errors of ``afd.errors``, and
    stepvan raises its own.

    As a context manager it starts and closes itself.
    """

    def __init__(self, config: ConnectorConfig, node: Any = None) -> None:
        """``node``: a started ``stepvan.Node`` that stays the caller's; else the connector starts its own."""
        self.config = config
        self._node, self._owns_node = node, node is None
        self._attention: AttentionSide | None = None
        self._ffn: FFNSide | None = None

    @classmethod
    def from_vllm(cls, rank: int, local_rank: int, config: Any) -> StepvanAFDConnector:
        """With the arguments that the proposal to vLLM gives to a connector; see ``ConnectorConfig.from_vllm``."""
        return cls(ConnectorConfig.from_vllm(rank, local_rank, config))

    def init_afd_connector(self) -> None:
        """Starts the node, which waits for all others, and makes the buffers. Again: does nothing."""
        if self.is_initialized:
            return
        if self._node is None:
            import stepvan

            self._node = stepvan.Node(self.config.node_settings())
        if self.config.role == "attention":
            self._attention = AttentionSide(self._node, self.config)
        else:
            self._ffn = FFNSide(self._node, self.config)

    def close(self) -> None:
        """Ends in an orderly way: what is in flight should have been received and answered. Again: does nothing.

        A node of the connector's own is stopped, which waits until all others stop;
        ``stepvan.PeerLostError``: it has left, but one had died.
        """
        side = self._attention or self._ffn
        if side and not self._owns_node:
            side.close()
        self._attention = self._ffn = None
        if self._owns_node and self._node:
            self._node.stop()  # ends registrations too, also where a request will never be answered
            self._node = None

    @property
    def is_initialized(self) -> bool:
        return bool(self._attention or self._ffn)

    @property
    def node(self) -> Any:
        """The stepvan node; None before ``init_afd_connector``."""
        return self._node

    def send_attn_output(self, hidden_states: Tensor, metadata: AFDConnectorMetadata) -> Sent:
        """Sends ``hidden_states``, ``[metadata.total_tokens, hidden_size]``, to the servers; returns at once.

        The tensor is copied into the stage's buffer unless it is that buffer
        (``attn_output_buffer``). The stage is in flight until ``recv_ffn_output``.
        """
        return self._side(self._attention, "attention").send(hidden_states, metadata)

    def recv_ffn_output(self, handle: Sent | None = None, timeout_ms: float | None = None) -> Tensor:
        """Waits for the answer to ``handle``, or to the exchange that was sent first.

        The result, ``[total_tokens, hidden_size]``, is the stage's buffer: valid until
        the stage is sent again. After ``stepvan.TimeoutError`` call it again; any other
        error, as ``stepvan.PeerLostError`` or ``RefusedError``, ends the exchange.
        """
        return self._side(self._attention, "attention").receive(handle, seconds(timeout_ms))

    def recv_attn_output(self, timeout_ms: float | None = None) -> tuple[Tensor, AFDConnectorMetadata]:
        """Waits for activations: all rows that came for one layer and stage.

        With the lock-step policy (``STEPVAN_BATCH``) those are of every worker, else of
        the workers that were ready. The tensor of one worker is its registered buffer,
        valid until ``send_ffn_output``; that of several is a copy.
        ``stepvan.ClosedError``: all workers have left. What does not fit the connector is
        refused: its worker gets ``RefusedError``, the others are served. Where no
        answer can say so, the call raises ``BadRequestError``, and the next call continues.
        """
        return self._side(self._ffn, "ffn").receive(seconds(timeout_ms))

    def received(self) -> Iterator[tuple[Tensor, AFDConnectorMetadata]]:
        """``recv_attn_output`` again and again, until all workers have left."""
        return self._side(self._ffn, "ffn").received()

    def send_ffn_output(self, ffn_output: Tensor, metadata: AFDConnectorMetadata) -> None:
        """Answers what ``recv_attn_output`` gave with that metadata; each is answered once, in any order.

        The call copies the rows into the workers' memory, unless they were computed there
        (``ffn_output_buffer``). The caller may use ``ffn_output`` again when the call
        returns. After an error such as ``stepvan.WouldBlockError`` some workers have their
        answer; the same call again answers the others.
        """
        self._side(self._ffn, "ffn").send(ffn_output, metadata)

    def attn_output_buffer(self, stage_idx: int, total_tokens: int) -> Tensor:
        """The memory that a stage is sent from, to compute into; not while the stage is in flight."""
        return self._side(self._attention, "attention").buffer(stage_idx, total_tokens)

    def ffn_output_buffer(self, metadata: AFDConnectorMetadata) -> Tensor:
        """Memory to compute the answer into; that of the worker itself where the rows are of one worker."""
        return self._side(self._ffn, "ffn").output(metadata)

    def _side(self, side: Any, role: str) -> Any:
        if self.config.role != role:
            raise RuntimeError(f"an {self.config.role} connector does not do this; an {role} connector does")
        if side is None:
            raise RuntimeError("call init_afd_connector first")
        return side

    def __enter__(self) -> StepvanAFDConnector:
        self.init_afd_connector()
        return self

    def __exit__(self, kind: Any, error: Any, where: Any) -> None:
        if kind is None:
            self.close()
        elif self._owns_node and self._node:
            self._node.close()  # at once: the others may wait for what does not come


def seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000
