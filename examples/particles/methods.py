"""An ensemble, SWAG and SVGD: the functions that particles call, and the arithmetic of both programs.

SWAG (Maddox et al., 2019) keeps mean and variance of the weights along the end of the training, and draws weights from
them. SVGD (Liu and Wang, 2016) moves particles along their gradients, and away from each other.
"""

from __future__ import annotations

import digits
import torch
from torch.nn.functional import cross_entropy

# Arithmetic.


def flat(tensors) -> torch.Tensor:
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def assign(module: torch.nn.Module, vector: torch.Tensor) -> None:
    """Gives the parameters the values of a vector."""
    at = 0
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(vector[at : at + p.numel()].view_as(p))
            at += p.numel()


def probabilities(module: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return module(digits.load()[2]).softmax(1)


def new_moments() -> dict:
    return {"count": 0, "mean": None, "square": None}


def collect_moments(moments: dict, vector: torch.Tensor) -> None:
    n = moments["count"]
    for name, value in (("mean", vector), ("square", vector * vector)):
        moments[name] = value.clone() if n == 0 else (moments[name] * n + value) / (n + 1)
    moments["count"] = n + 1


def draw(moments: dict, seed: int) -> torch.Tensor:
    """Weights from the distribution that the moments describe."""
    deviation = (moments["square"] - moments["mean"] ** 2).clamp_min(0).sqrt()
    noise = torch.randn(deviation.shape, generator=torch.Generator().manual_seed(seed))
    return moments["mean"] + deviation * noise / 2**0.5


def swag_probabilities(module: torch.nn.Module, moments: dict, seed: int, draws: int) -> torch.Tensor:
    """The mean over several draws. The module keeps its weights."""
    kept = flat(module.parameters())
    total = torch.zeros(len(digits.load()[3]), 10)
    for i in range(draws):
        assign(module, draw(moments, seed + i))
        total += probabilities(module)
    assign(module, kept)
    return total / draws


def svgd_directions(weights: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """Where each particle goes. weights, gradients: a row of each particle; the prior is a normal distribution."""
    score = -gradients - 1e-4 * weights
    distance = torch.cdist(weights, weights) ** 2
    width = distance.median() / torch.log(torch.tensor(len(weights) + 1.0)) + 1e-6
    kernel = torch.exp(-distance / width)
    repulsion = (weights * kernel.sum(1, keepdim=True) - kernel @ weights) * 2 / width
    return (kernel @ score + repulsion / len(digits.load()[1])) / len(weights)


# What particles do.


def train(particle, epochs: int) -> float:
    """Trains, and returns the last loss."""
    loss = None
    for epoch in range(epochs):
        for x, y in digits.batches(epoch):
            loss = particle.step(cross_entropy, x, y).wait()
        particle.scheduler_step().wait()
    return loss.item()


def predict(particle) -> torch.Tensor:
    return probabilities(particle.module)


def swag_train(particle, epochs: int, begin: int) -> None:
    """Trains. From the epoch ``begin`` on it collects the moments of the weights."""
    particle.state["moments"] = new_moments()
    for epoch in range(epochs):
        for x, y in digits.batches(epoch):
            particle.step(cross_entropy, x, y).wait()
        if epoch >= begin:
            collect_moments(particle.state["moments"], flat(particle.module.parameters()))


def swag_predict(particle, seed: int, draws: int) -> torch.Tensor:
    return swag_probabilities(particle.module, particle.state["moments"], seed, draws)


def gradient(particle, epoch: int, batch: int) -> None:
    """Computes the gradients of a batch."""
    x, y = digits.batches(epoch)[batch]
    particle.module.zero_grad()
    cross_entropy(particle.module(x), y).backward()


def move(particle, direction: torch.Tensor, rate: float) -> None:
    assign(particle.module, flat(particle.module.parameters()) + rate * direction)


def svgd_lead(particle, epochs: int, rate: float) -> None:
    """The first particle leads: it sees weights and gradients of all, and tells each where to go."""
    everybody = particle.particle_ids()
    for epoch in range(epochs):
        for batch in range(len(digits.batches(epoch))):
            particle.wait([particle.send(pid, "gradient", epoch, batch) for pid in everybody])
            views = [view.view() for view in particle.wait([particle.get(pid) for pid in everybody])]
            weights = torch.stack([flat(v.parameters()) for v in views])
            gradients = torch.stack([flat(p.grad for p in v.parameters()) for v in views])
            del views
            directions = svgd_directions(weights, gradients)
            particle.wait([particle.send(pid, "move", row, rate) for pid, row in zip(everybody, directions, strict=True)])


RECEIVE = {f.__name__: f for f in (train, predict, swag_train, swag_predict, gradient, move, svgd_lead)}
