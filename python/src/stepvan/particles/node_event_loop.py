"""The loop of a node: the particles of its devices, and what runs on them."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from stepvan import _core
from stepvan._errors import BusyError, Error, InvalidError, cut
from stepvan._local import Local
from stepvan._node import Node
from stepvan.particles import _wire, messages
from stepvan.particles._answers import Answers
from stepvan.particles._calls import SHARE, Call, Calls, Job
from stepvan.particles._held import _seeding
from stepvan.particles._nodes import Nodes, alone
from stepvan.particles._views import Publication, Template, unpack
from stepvan.particles.context_switch import ParticleCache
from stepvan.particles.particle import Particle, ParticleView
from stepvan.particles.pfuture import PFuture
from stepvan.particles.utils import detach_to_device, to_device
from stepvan.particles.waitable import Waitable

__all__ = ["NodeEventLoop"]

_HASTE = 2.0  # seconds that a loop has to end when its program has failed


class _Resident:
    """A particle of this loop."""

    def __init__(self, pid: int, device: Any, index: int, cache: ParticleCache, state: Any, publication: Publication) -> None:
        self.pid = pid
        self.device = device
        self.index = index
        self.cache = cache
        self.state = state
        self.hooks: dict[str, tuple[Callable[..., Any], Any]] = {}
        self.publication = publication
        self.shared = False  # whether others get views without asking


class NodeEventLoop(Local, Waitable):
    """The loop of one node: it maps particles to devices, and runs their operations. Each returns a PFuture.

    mk_module(*args) makes the module of each particle.
    in_queue, out_queue: anything with put and get. ``run`` takes messages of the driver from in_queue, and puts the
        acknowledgements into out_queue.
    rank: the rank of the driver among the peers that have loops; this process, where it has a cluster of its own.
    devices: how many, or a list of their numbers. Without accelerators each is a thread on the CPU.
    cache_size: how many particles are on a device at a time. view_size: how many views of others are remembered.

    Each device runs one operation at a time. While a function waits, its device runs others. Any thread may call the
    methods. As a context manager the loop closes at the end.
    """

    in_queue: Any
    out_queue: Any
    _own_node: Node | None

    def __init__(
        self, mk_module: Callable[..., Any], args: Sequence[Any], in_queue: Any, out_queue: Any, rank: int, devices: Any,
        cache_size: int, view_size: int,
    ) -> None:  # fmt: skip
        for name, queue in (("in_queue", in_queue), ("out_queue", out_queue)):
            if not (hasattr(queue, "put") and hasattr(queue, "get")):
                raise InvalidError(f"{name} is {cut(queue)}: it must have put and get")
        node = alone()
        try:
            self._open(node, Nodes(node, devices=devices), mk_module, args, cache_size, view_size, 0)
        except BaseException:
            node.close()
            raise
        self.in_queue, self.out_queue, self.rank = in_queue, out_queue, rank
        self._own_node = node

    @classmethod
    def on(
        cls, node: Node, nodes: Nodes, mk_module: Callable[..., Any], args: Sequence[Any], cache_size: int, view_size: int, driver: int = 0,
    ) -> NodeEventLoop:  # fmt: skip
        """A loop on a node, whose cluster may have others. driver: the rank of the peer that makes particles."""
        made = cls.__new__(cls)
        made._open(node, nodes, mk_module, args, cache_size, view_size, driver)
        return made

    def _open(
        self, node: Node, nodes: Nodes, mk_module: Callable[..., Any], args: Sequence[Any], cache_size: int, view_size: int, driver: int,
    ) -> None:  # fmt: skip
        if not isinstance(view_size, int) or isinstance(view_size, bool) or view_size < 1:
            raise InvalidError(f"view_size is {cut(view_size)}: it must be a number of views from 1 on")
        self.mk_module, self.args = mk_module, args
        self.in_queue = self.out_queue = None
        self.rank = self._node_rank = node.peer.rank if node.peer is not None else 0
        self.devices = nodes.devices
        self.cache_size, self.view_size = cache_size, view_size
        self.particle_caches = {d: ParticleCache(mk_module, args, cache_size, d, threading.RLock()) for d in self.devices}
        self._node = node
        self._own_node = None
        self._here = threading.local()  # the particle that this thread has pinned
        self._local: dict[int, _Resident] = {}
        self._remote: set[int] = set()  # particles that are known to exist; none ever ends
        self._missing: set[int] = set()  # IDs whose modules could not be made, which nobody sees
        self._template: Template | None = None
        self._template_lock = threading.Lock()
        self._views: dict[int, tuple[weakref.ref[ParticleView], bytes, int]] = {}  # by particle, the oldest first
        self._calls = Calls(
            node, len(self.devices), self._perform, self._pause, self._resume, self._show,
            driver=driver, allow_pickle=nodes.allow_pickle, key=nodes.key,
        )  # fmt: skip
        self._calls.begin()

    # What programs and functions of particles ask for.

    def particles(self) -> list[int]:
        """The IDs of all particles, of all loops."""
        return [pid for pid, _, _ in self._places() if pid not in self._missing]

    def _places(self) -> list[tuple[int, int, int]]:
        """The ID of each particle that the driver has begun to make, its rank, and the index of its device."""
        return _core.particle_list(self._calls.number)

    def forward(self, pid: int, x: Any, *args: Any) -> PFuture:
        """Calls the module of a particle with x and args. In the process of the particle, the value has its graph."""
        return self._begin(pid, ".forward", (x, *args))

    def step(self, pid: int, loss_fn: Callable[..., Any], data: Any, label: Any, *args: Any) -> PFuture:
        """One step of training. The value is the loss, without its graph.

        The gradients become zero. The module is called with data and args, and loss_fn with its result and label. The
        loss goes backward, and the optimizer makes a step, if there is one.
        """
        return self._begin(pid, ".step", (loss_fn, data, label, *args))

    def zero_grad(self, pid: int) -> PFuture:
        """Sets the gradients of a particle to zero."""
        return self._begin(pid, ".zero_grad", ())

    def scheduler_step(self, pid: int, *args: Any) -> PFuture:
        """A step of the scheduler of the learning rate, if there is one. The arguments are not used."""
        return self._begin(pid, ".scheduler_step", ())

    def parameters(self, pid: int) -> PFuture:
        """A message with copies of the parameters of a particle, in memory of the CPU."""
        return self._tell(pid, ".parameters", messages.ReceiveParametersPDMSG((pid, 0), pid))

    def save(self, pid: int) -> PFuture:
        """Writes the state dict of a particle to a file of its process: see ParticleCache.save_to_disk."""
        return self._tell(pid, ".save", messages.NELSaveModel((pid, 0)))

    def get(self, pid_curr: int, pid: int) -> PFuture:
        """A future of a ParticleView of particle pid, for particle pid_curr (-1 for none)."""
        self._known(pid)
        return PFuture(self, pid_curr, pid, self._calls.get(pid_curr, pid))

    def send(self, send_particle: Particle | None, pid_curr: int, pid: int, msg_name: str, *args: Any) -> PFuture:
        """Has particle pid call its function for a message. pid_curr: the particle that sends, or -1.

        Arguments are copied. InvalidError: there is no such particle, or it has no function for the message; or an argument
        cannot be sent, which the message names. Then nothing was sent.
        """
        check_name(msg_name)
        self._known(pid)
        return PFuture(self, pid_curr, pid, self._calls.send(pid_curr, pid, msg_name, list(args)))

    def register_receive(self, pid: int, msg: str, fn: Callable[..., Any], state: Any) -> None:
        """Has a particle call fn(particle, *args) for a message, with particle.state = state."""
        check_name(msg)
        if not callable(fn):
            raise InvalidError(f"fn is {cut(fn)}: it must be a function")
        self._known(pid)
        message = messages.ReceiveRegisterPDMSG(pid, msg, fn, state)
        if pid in self._local:
            self._register(message)
        else:
            self._tell(pid, ".register", message).wait()

    def wait(self, pfutures: Sequence[PFuture]) -> list[Any]:
        """Waits for futures, and returns their values in the same order. It raises the first error.

        A function that waits for futures of another loop keeps the turn of its device meanwhile.
        """
        listed = list(pfutures)
        for future in listed:
            if not isinstance(future, PFuture):
                raise InvalidError(f"pfutures has {cut(future)}: it must be a list of futures")
        self._calls.wait_all([future._fid for future in listed if future._waitable is self])
        return [future.wait() for future in listed]

    def close(self, timeout: float | None = 30.0) -> None:
        """Ends the loop. Futures that need it fail, here and at the other loops.

        TimeoutError: the message names a function that has not ended.
        """
        try:
            self._calls.close(timeout)
        except BaseException:
            if self._own_node is not None:
                self._own_node.close()
            raise
        if self._own_node is not None:
            self._own_node.stop(timeout)

    def __enter__(self) -> NodeEventLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<NodeEventLoop: rank {self.rank}, {len(self._local)} particles>"

    # Futures.

    def _wait(self, fid: int) -> Any:
        return self._calls._wait(fid)

    def _wait_for(self, fid: int, timeout: float) -> Any:
        return self._calls._wait_for(fid, timeout)

    def _is_done(self, fid: int) -> bool:
        return self._calls.is_done(fid)

    def _completion(self, fid: int) -> Any:
        return self._calls.completion(fid)

    def _forget(self, fid: int) -> None:
        self._calls.forget(fid)

    def _begin(self, pid: int, name: str, args: Sequence[Any]) -> PFuture:
        """Begins an operation of a particle. In this process its arguments are not copied."""
        self._known(pid)
        if pid in self._local:
            return PFuture(self, -1, pid, self._calls.give(-1, pid, Job(name, args)))
        return PFuture(self, -1, pid, self._calls.send(-1, pid, name, list(args)))

    def _tell(self, pid: int, name: str, message: messages.MSG) -> PFuture:
        """Sends a message of the driver."""
        self._known(pid)
        return PFuture(self, -1, pid, self._calls.send(-1, pid, name, [message]))

    def _known(self, pid: Any) -> None:
        if type(pid) is int and (pid in self._local or pid in self._remote):
            return
        self._remote.update(self.particles())
        if type(pid) is not int or pid not in self._remote:
            raise InvalidError(f"particle {cut(pid)}: there is none: give an ID of particles()")

    # Making particles.

    def create(self, message: messages.ReceiveParticleInitPDMSG, rank: int, index: int) -> int:
        """At the driver: makes a particle at the device with an index of the loop of a peer, and returns its ID."""
        for msg, fn in message.receive.items():
            check_name(msg)
            if not callable(fn):
                raise InvalidError(f"receive: {msg} has {cut(fn)}: it must be a function")
        here = rank == self._node_rank
        if not here:  # before anything is sent
            _wire.encode("create", [message], self._calls.allow_pickle)
        pid, future = _core.particle_create(self._calls.number, rank, index)
        PFuture(self, -1, pid, future).wait()
        message.pid = pid
        given = [message, sorted(self._missing)]
        try:
            begin = self._calls.give(-1, pid, Job(".create", given)) if here else self._calls.send(-1, pid, ".create", given)
            PFuture(self, -1, pid, begin).wait()
        except BaseException:
            self._miss(pid)
            raise
        return pid

    def _miss(self, missing: int) -> None:
        """At the driver: nobody sees an ID without a module from here on."""
        self._missing.add(missing)
        first: dict[int, int] = {}  # a particle of each other loop, which learns it
        for pid, rank, _ in self._places():
            if pid not in self._missing and rank != self._node_rank:
                first.setdefault(rank, pid)
        for pid in first.values():
            with contextlib.suppress(Error):  # a loop that has died needs no word
                PFuture(self, -1, pid, self._calls.send(-1, pid, ".miss", [missing])).wait()

    def _missed(self, resident: _Resident, missing: int) -> None:
        self._missing.add(missing)
        self._remote.discard(missing)

    def _create(self, call: Call, message: messages.ReceiveParticleInitPDMSG, missing: Sequence[int]) -> None:
        self._missing.update(missing)
        if call.pid in self._local:
            raise InvalidError(f"particle {call.pid}: it exists: the driver makes each once")
        device = self.devices[call.device]
        cache = self.particle_caches[device]
        module = cache.create(call.pid, message.mk_optim, message.mk_scheduler, message.prior, message.train_key)
        with self._template_lock, contextlib.suppress(InvalidError):  # which the first view raises
            if self._template is None:
                self._template = Template(module)
        self._local[call.pid] = _Resident(call.pid, device, call.device, cache, message.state, Publication(self._node))
        for msg, fn in message.receive.items():
            self._register(messages.ReceiveRegisterPDMSG(call.pid, msg, fn, message.state))

    def _register(self, message: messages.ReceiveRegisterPDMSG) -> None:
        check_name(message.msg)
        self._local[message.pid].hooks[message.msg] = message.fn, message.state
        _core.particle_hook(self._calls.number, message.pid, message.msg)

    # What a thread of a device runs.

    def _perform(self, call: Call, kind: int, name: str, args: Any) -> Any:
        if name == ".create" and kind != SHARE:
            return self._create(call, *args)
        resident = self._local.get(call.pid)
        if resident is None:
            raise InvalidError(f"particle {call.pid}: its module was not made: see the error of its creation")
        if kind == SHARE:
            return self._publish(resident)
        if name.startswith("."):
            operation = _operations.get(name)
            if operation is None:
                raise InvalidError(f"particle {call.pid}: there is no operation {cut(name)}")
            return operation(self, resident, *args)
        fn, state = resident.hooks[name]
        given = detach_to_device(resident.device, list(args))
        with self._on_device(resident) as module:
            return fn(Particle(self, resident.device, call.pid, module, state), *given)

    @contextmanager
    def _on_device(self, resident: _Resident) -> Iterator[Any]:
        """The module of a particle, on its device and pinned. Others do not see what changes from here on."""
        module = self._enter(resident)
        try:
            yield module
        finally:
            self._leave()

    def _enter(self, resident: _Resident) -> Any:
        self._withdraw(resident)
        module = resident.cache.try_read(resident.pid, pin=True)
        if module is None:
            raise BusyError(f"particle {resident.pid}: its position on device {resident.device} has a pinned particle: unpin it")
        self._here.pinned = resident
        return module

    def _leave(self) -> Any:
        pinned, self._here.pinned = getattr(self._here, "pinned", None), None
        if pinned is not None:
            pinned.cache.unpin(pinned.pid)
        return pinned

    def _pause(self) -> Any:
        """A function waits: others may have its place on the device."""
        return self._leave()

    def _resume(self, paused: Any) -> None:
        """The wait is over: the module of the function comes back to its device."""
        if paused is not None:
            self._enter(paused)

    # Views.

    def _withdraw(self, resident: _Resident) -> None:
        """Ends what others see without asking, before something changes. Memory that somebody sees stays as it is."""
        if resident.shared:
            if _core.particle_views(self._calls.number, resident.pid) > 0:
                resident.publication.leave()
            _core.particle_share(self._calls.number, resident.pid, None, [])
            resident.shared = False

    def _publish(self, resident: _Resident) -> None:
        self._withdraw(resident)
        data, tensors = resident.publication.fill(resident.cache._known(resident.pid).module)
        _core.particle_share(self._calls.number, resident.pid, data, tensors)
        resident.shared = True

    def _show(self, pid: int, value: tuple[bytes, list[Any], int]) -> ParticleView:
        data, tensors, _ = value
        address = tensors[0].data_ptr() if tensors else 0
        with self._template_lock:
            known = self._views.pop(pid, None)
            before = known[0]() if known is not None and known[1:] == (data, address) else None
            # Memory that somebody sees does not change, so the same address means the same content.
            view = ParticleView(pid, self._shape, unpack(data, tensors) if before is None else before._parts)
            self._views[pid] = weakref.ref(view), data, address
            while len(self._views) > self.view_size:
                del self._views[next(iter(self._views))]
        return view

    def _shape(self) -> Template:
        """What views are made of. A process without particles makes a module for it, and takes no random numbers."""
        with self._template_lock:
            if self._template is None:
                with _seeding, torch.random.fork_rng(devices=[]):
                    self._template = Template(self.mk_module(*self.args))
            return self._template

    # Operations.

    def _forward(self, resident: _Resident, x: Any, *args: Any) -> Any:
        with self._on_device(resident) as module:
            return module(*to_device(resident.device, [x, *args]))

    def _step(self, resident: _Resident, loss_fn: Callable[..., Any], data: Any, label: Any, *args: Any) -> Any:
        with self._on_device(resident) as module:
            optimizer = resident.cache.optimizer(resident.pid)
            module.zero_grad()
            given = detach_to_device(resident.device, [data, label, *args])
            loss = loss_fn(module(given[0], *given[2:]), given[1])
            loss.backward()
            if optimizer is not None:
                optimizer.step()
            return loss.detach()

    def _zero_grad(self, resident: _Resident) -> None:
        with self._on_device(resident) as module:
            module.zero_grad()

    def _scheduler_step(self, resident: _Resident) -> None:
        with self._on_device(resident):
            scheduler = resident.cache.scheduler(resident.pid)
            if scheduler is not None:
                scheduler.step()

    def _parameters(self, resident: _Resident, message: messages.ReceiveParametersPDMSG) -> messages.MSG:
        module = resident.cache._known(resident.pid).module
        return messages.ReceiveParametersAckPDMSG(message.pid_fid, [p.detach().cpu() for p in module.parameters()])

    def _save(self, resident: _Resident, message: messages.NELSaveModel) -> messages.MSG:
        resident.cache.save_to_disk(resident.pid)
        return messages.NELSaveModelAckPDMSG(message.pid_fid)

    def _registered(self, resident: _Resident, message: messages.ReceiveRegisterPDMSG) -> messages.MSG:
        message.pid = resident.pid
        self._register(message)
        return messages.ReceiveRegisterAckPDMSG()

    # Messages of a driver that has queues.

    def run(self) -> None:
        """Takes messages from in_queue and puts the acknowledgements into out_queue, until a NodeEvtLoopCleanupMSG.

        Then the loop closes. An error of an operation is put there in place of its acknowledgement. It has the
        ``pid_fid`` of the message, or None where the message has none.
        """
        answers = Answers(self.out_queue)
        try:
            self.out_queue.put(messages.NodeEvtLoopInitMSG())
            while not isinstance(message := self.in_queue.get(), messages.NodeEvtLoopCleanupMSG):
                pid_fid = getattr(message, "pid_fid", None)
                try:
                    future, acknowledge = self._dispatch(message)
                except Exception as error:
                    answers.refuse(pid_fid, error)
                    continue
                if future is None:
                    self.out_queue.put(acknowledge(None))
                else:
                    answers.add(pid_fid, future, acknowledge)
        except BaseException:
            with contextlib.suppress(Error):
                self.close(_HASTE)
            raise
        else:
            self.close()
        finally:
            answers.close(_HASTE)

    def _dispatch(self, m: Any) -> tuple[PFuture | None, Callable[[Any], Any]]:
        """Begins what a message asks for. Returns its future, and what makes the acknowledgement of the result."""
        match m:
            case messages.ReceiveParticleInitPDMSG():
                following = len(self._places())
                if m.pid != following:
                    raise InvalidError(f"particle {cut(m.pid)}: IDs are sequential: the next one is {following}")
                if m.device not in self.devices:
                    raise InvalidError(f"device is {cut(m.device)}: this loop has {self.devices}")
                self.create(m, self._node_rank, self.devices.index(m.device))
                return None, lambda _: messages.ReceiveParticleInitAckPDMSG()
            case messages.ReceiveRegisterPDMSG():
                self.register_receive(m.pid, m.msg, m.fn, m.state)
                return None, lambda _: messages.ReceiveRegisterAckPDMSG()
            case messages.NELBroadcastParticlesMSG():
                return None, lambda _: messages.NELBroadcastParticlesAckMSG()
            case messages.ReceiveFuncPDMSG():
                return self.send(None, -1, m.pid_to, m.msg, *m.args), lambda value: messages.ReceiveFuncAckPDMSG(m.pid_fid, value)
            case messages.ReceiveParametersPDMSG():
                return self.parameters(m.pid), lambda value: messages.ReceiveParametersAckPDMSG(m.pid_fid, value.params)
            case messages.NELSaveModel():
                return self.save(m.pid_fid[0]), lambda _: messages.NELSaveModelAckPDMSG(m.pid_fid)
            case messages.ReceiveFuncMSG():
                return self.send(None, m.pid_fid[0], m.pid, m.msg_name, *m.args), lambda _: messages.ReceiveFuncAckMSG()
            case messages.ReceiveGetMSG():
                return self.get(m.pid_caller, m.pid), lambda view: _acknowledgement(m, view)
        raise InvalidError(f"message: {cut(m)}: a driver sends no such message")


_operations: dict[str, Callable[..., Any]] = {
    ".forward": NodeEventLoop._forward,
    ".step": NodeEventLoop._step,
    ".zero_grad": NodeEventLoop._zero_grad,
    ".scheduler_step": NodeEventLoop._scheduler_step,
    ".parameters": NodeEventLoop._parameters,
    ".save": NodeEventLoop._save,
    ".register": NodeEventLoop._registered,
    ".miss": NodeEventLoop._missed,
}


def _acknowledgement(m: messages.ReceiveGetMSG, view: ParticleView) -> messages.ReceiveGetAckMSG:
    parameters, grads, _ = view._parts
    return messages.ReceiveGetAckMSG(m.pid_fid[1], m.pid, [p.clone() for p in parameters], [None if g is None else g.clone() for g in grads])


def check_name(msg: Any) -> None:
    """Refuses what cannot be the name of a message."""
    if not isinstance(msg, str) or not 0 < len(msg.encode(errors="replace")) <= 128 or msg.startswith(".") or "\0" in msg:
        raise InvalidError(f"msg is {cut(msg)}: it must be text of 1 to 128 bytes that does not begin with a dot")
