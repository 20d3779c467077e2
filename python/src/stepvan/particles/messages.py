"""What the driver and the event loops tell each other.

``pid`` is the ID of a particle. ``pid_fid`` is the ID of a particle and the ID of a call. In the two messages about
saving, it is the ID of a particle and the ID of a file. All messages have an acknowledgement, except the first and the
last one of a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = [
    "MSG",
    "NELBroadcastParticlesAckMSG",
    "NELBroadcastParticlesMSG",
    "NELSaveModel",
    "NELSaveModelAckPDMSG",
    "NodeEvtLoopCleanupMSG",
    "NodeEvtLoopInitMSG",
    "ReceiveFuncAckMSG",
    "ReceiveFuncAckPDMSG",
    "ReceiveFuncMSG",
    "ReceiveFuncPDMSG",
    "ReceiveGetAckMSG",
    "ReceiveGetMSG",
    "ReceiveParametersAckPDMSG",
    "ReceiveParametersPDMSG",
    "ReceiveParticleInitAckPDMSG",
    "ReceiveParticleInitPDMSG",
    "ReceiveRegisterAckPDMSG",
    "ReceiveRegisterPDMSG",
]


class MSG:
    """The base of all messages."""


@dataclass(eq=False)
class NodeEvtLoopInitMSG(MSG):
    """A loop tells the driver that it has started."""


@dataclass(eq=False)
class NodeEvtLoopCleanupMSG(MSG):
    """The driver ends a loop."""


@dataclass(eq=False)
class NELBroadcastParticlesMSG(MSG):
    """The driver tells a loop which particles there are, and on which devices."""

    in_queues: Any
    out_queues: Any
    particle_to_device: Mapping[int, Any]


@dataclass(eq=False)
class NELBroadcastParticlesAckMSG(MSG):
    """A loop knows the particles."""


@dataclass(eq=False)
class NELSaveModel(MSG):
    """The driver asks a loop to save its particles."""

    pid_fid: tuple[int, int]


@dataclass(eq=False)
class NELSaveModelAckPDMSG(MSG):
    """A loop has saved its particles."""

    pid_fid: tuple[int, int]


@dataclass(eq=False)
class ReceiveParticleInitPDMSG(MSG):
    """The driver asks a loop to make a particle.

    mk_optim, mk_scheduler: make the optimizer of parameters, and the scheduler of an optimizer; None for none.
    prior: whether the module initializes its weights. train_key: seeds torch before; None for no seed.
    receive: functions by the names of messages. state: what they find as ``particle.state``.
    """

    device: int
    pid: int
    mk_optim: Callable[[Any], Any] | None
    mk_scheduler: Callable[[Any], Any] | None
    prior: bool
    train_key: int | None
    receive: Mapping[str, Callable[..., Any]]
    state: Any


@dataclass(eq=False)
class ReceiveParticleInitAckPDMSG(MSG):
    """A loop has made the particle."""


@dataclass(eq=False)
class ReceiveRegisterPDMSG(MSG):
    """The driver gives a particle a function for a message, and the state for it."""

    pid: int
    msg: str
    fn: Callable[..., Any]
    state: Any


@dataclass(eq=False)
class ReceiveRegisterAckPDMSG(MSG):
    """A loop has registered the function."""


@dataclass(eq=False)
class ReceiveFuncPDMSG(MSG):
    """The driver calls a function of a particle."""

    pid_fid: tuple[int, int]
    pid_to: int
    msg: str
    args: Sequence[Any]


@dataclass(eq=False)
class ReceiveFuncAckPDMSG(MSG):
    """The function has returned."""

    pid_fid: tuple[int, int]
    result: Any


@dataclass(eq=False)
class ReceiveParametersPDMSG(MSG):
    """The driver asks for the parameters of a particle."""

    pid_fid: tuple[int, int]
    pid: int


@dataclass(eq=False)
class ReceiveParametersAckPDMSG(MSG):
    """The parameters, in memory of the CPU."""

    pid_fid: tuple[int, int]
    params: Sequence[torch.Tensor]


@dataclass(eq=False)
class ReceiveFuncMSG(MSG):
    """A particle calls a function of another one."""

    pid_fid: tuple[int, int]
    pid: int
    msg_name: str
    args: Sequence[Any]


@dataclass(eq=False)
class ReceiveFuncAckMSG(MSG):
    """The function of the other particle has returned."""


@dataclass(eq=False)
class ReceiveGetMSG(MSG):
    """A particle asks for the parameters and gradients of another one."""

    pid_fid: tuple[int, int]
    pid_caller: int
    pid: int


@dataclass(eq=False)
class ReceiveGetAckMSG(MSG):
    """The parameters and gradients. A parameter without a gradient has None."""

    fid: int
    pid: int
    params: Sequence[torch.Tensor]
    params_grad: Sequence[torch.Tensor | None]
