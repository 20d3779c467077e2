"""What tests of particles share: modules and functions that all processes find by name, and loops of several nodes."""

import threading
import time

import torch

from stepvan.particles.push import Nodes, PusH, serve


def linear(n=3):
    return torch.nn.Linear(n, 1)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def halving(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)


def train(particle, x, y, steps):
    return [particle.step(torch.nn.functional.mse_loss, x, y).wait().item() for _ in range(steps)]


def where(particle):
    return particle.pid, particle.device, threading.get_ident()


def echo(particle, *args):
    return args


def pass_on(particle, path):
    """Calls the particles of a path, each of which calls the next one and waits."""
    if not path:
        return [particle.pid]
    return [particle.pid, *particle.send(path[0], "pass_on", path[1:]).wait()]


def see(particle, other):
    module = particle.get(other).wait().view()
    return [p.detach().clone() for p in module.parameters()], [None if p.grad is None else p.grad.clone() for p in module.parameters()]


def fail(particle, text):
    raise ValueError(text)


def relay(particle, other, msg, *args):
    return particle.send(other, msg, *args).wait()


def hold(particle):
    """Stays as long as its process."""
    time.sleep(600)


RECEIVE = {f.__name__: f for f in (train, where, echo, pass_on, see, fail, relay, hold)}


class Town:
    """A PusH over the peers of a cluster in this process."""

    def __init__(self, nodes, mk_module=linear, *args, devices=1, **options):
        self.failures = []
        self.threads = [
            threading.Thread(target=self._serve, args=(node, mk_module, args, devices, options), daemon=True) for node in nodes[1:]
        ]
        for thread in self.threads:
            thread.start()
        multi = Nodes(nodes[0], devices=devices, **_of_nodes(options))
        self.push = PusH(mk_module, *args, multi=multi, **_of_push(options))

    def _serve(self, node, mk_module, args, devices, options):
        try:
            serve(mk_module, *args, multi=Nodes(node, devices=devices, **_of_nodes(options)), **_of_push(options))
        except BaseException as error:
            self.failures.append(error)

    def create(self, count, seed=0, **options):
        """Particles over all devices in turn, each with a seed of its own."""
        devices = self.push._node.peer.size * len(self.push.nel.devices)
        options = {"mk_optim": sgd, "receive": RECEIVE, **options}
        return [self.push.p_create(train_key=seed + i, device=i % devices, **options) for i in range(count)]

    def close(self):
        self.push.close()
        for thread in self.threads:
            thread.join(30)
            assert not thread.is_alive()


def _of_push(options):
    return {k: v for k, v in options.items() if k in ("cache_size", "view_size")}


def _of_nodes(options):
    return {k: v for k, v in options.items() if k not in ("cache_size", "view_size")}
