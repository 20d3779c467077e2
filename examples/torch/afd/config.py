"""The sizes that both sides of a connector must agree on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .keys import MAX_STAGES

ROLES = {"attention": "worker", "ffn": "server"}


@dataclass(frozen=True)
class ConnectorConfig:
    """``settings`` override the environment of the stepvan node (docs/settings.md), role included.

    Attention workers and FFN servers need equal ``hidden_size`` and ``dtype``. They also
    need equal ``max_num_tokens`` (rows of one exchange), ``max_num_seqs`` (sequences of
    one exchange) and ``num_stages`` (exchanges of one worker in flight).
    """

    role: str
    hidden_size: int
    max_num_tokens: int
    dtype: torch.dtype = torch.float32
    num_stages: int = 3
    max_num_seqs: int = 256
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"role {self.role!r}: an AFD connector is attention or ffn")
        if not 1 <= self.num_stages <= MAX_STAGES:
            raise ValueError(f"{self.num_stages} stages: 1 to {MAX_STAGES} are possible")
        for name in ("hidden_size", "max_num_tokens", "max_num_seqs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: at least 1")

    def node_settings(self) -> dict[str, str]:
        """The settings of the node that the connector starts."""
        return {"DMLC_ROLE": ROLES[self.role], **self.settings}

    @classmethod
    def from_vllm(cls, rank: int, local_rank: int, config: Any) -> ConnectorConfig:
        """From a ``VllmConfig`` with an ``afd_config``, as the proposal to vLLM hands it to a connector's constructor.

        ``afd_host`` and ``afd_port`` name the scheduler, which runs for itself
        (``stepvan scheduler``). A stage gets an equal part of the batched tokens.
        """
        afd, parallel = config.afd_config, config.parallel_config
        group = parallel.tensor_parallel_size * parallel.pipeline_parallel_size * parallel.data_parallel_size
        tokens, stages = config.scheduler_config.max_num_batched_tokens, afd.num_afd_stages
        return cls(
            role=afd.afd_role,
            hidden_size=config.model_config.hf_config.hidden_size,
            dtype=config.model_config.dtype,
            max_num_tokens=-(-tokens // stages),
            num_stages=stages,
            max_num_seqs=config.scheduler_config.max_num_seqs,
            settings={
                "DMLC_NUM_WORKER": str(afd.num_attention_servers),
                "DMLC_NUM_SERVER": str(afd.num_ffn_servers),
                "DMLC_NODE_RANK": str(afd.afd_server_rank),
                "DMLC_GROUP_SIZE": str(group),
                "DMLC_PS_ROOT_URI": str(afd.afd_host),
                "DMLC_PS_ROOT_PORT": str(afd.afd_port),
                "STEPMESH_GPU": str(local_rank),
            },
        )
