"""Weights of a model from one parallel layout to another: from trainers to engines, in one job or between two.

Each rank makes a plan of what it sends and receives, once. Then it runs the plan after each step::

    from stepvan.resharding import build_local_reshard_plan, execute_reshard_plan
    from stepvan.resharding.copy_services.stepvan import StepvanCopyService

    service = StepvanCopyService(node)
    plan = build_local_reshard_plan(trainer, engine, group=group)  # None for a module that this rank does not have
    execute_reshard_plan(plan, trainer, engine, service)

Modules, names and signatures are as in Megatron-core's ``core.resharding``. docs/resharding.md explains them.
"""

from stepvan.resharding.execution import execute_reshard_plan, version_of
from stepvan.resharding.planner import (
    build_centralized_reshard_plan,
    build_local_reshard_plan,
    build_plan_from_rosters,
    index_metadata_rosters,
    make_roster,
    plan_rosters,
)
from stepvan.resharding.refit import prepare_swap_model_weights, reshard_model_weights, reshard_state_dicts, swap_model_weights
from stepvan.resharding.transforms import MXFP8ReshardTransform, MXFP8Tensor, ReshardTransform
from stepvan.resharding.utils import ParameterMetadata, ReshardPlan, ShardingDescriptor, TransferOp

__all__ = [
    "MXFP8ReshardTransform",
    "MXFP8Tensor",
    "ParameterMetadata",
    "ReshardPlan",
    "ReshardTransform",
    "ShardingDescriptor",
    "TransferOp",
    "build_centralized_reshard_plan",
    "build_local_reshard_plan",
    "build_plan_from_rosters",
    "execute_reshard_plan",
    "index_metadata_rosters",
    "make_roster",
    "plan_rosters",
    "prepare_swap_model_weights",
    "reshard_model_weights",
    "reshard_state_dicts",
    "swap_model_weights",
    "version_of",
]
