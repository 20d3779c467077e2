"""The same three methods in one process, without particles: what the others must equal, bit for bit."""

from __future__ import annotations

import digits
import methods
import torch
from torch.nn.functional import cross_entropy


def members(count: int, width: int) -> list[tuple]:
    """Modules with their optimizers and schedulers."""
    made = []
    for seed in range(count):
        torch.manual_seed(seed)
        module = digits.make_model(width)
        optimizer = digits.make_optimizer(module.parameters())
        made.append((module, optimizer, digits.make_scheduler(optimizer)))
    return made


def train_epoch(module, optimizer, epoch: int) -> None:
    for x, y in digits.batches(epoch):
        module.zero_grad()
        cross_entropy(module(x), y).backward()
        optimizer.step()


def ensemble(count: int, width: int, epochs: int) -> tuple[list, torch.Tensor]:
    modules = []
    for module, optimizer, scheduler in members(count, width):
        for epoch in range(epochs):
            train_epoch(module, optimizer, epoch)
            scheduler.step()
        modules.append(module)
    return modules, sum(methods.probabilities(m) for m in modules) / count


def swag(count: int, width: int, epochs: int) -> tuple[list, torch.Tensor]:
    modules, total = [], 0
    for seed, (module, optimizer, _) in enumerate(members(count, width)):
        moments = methods.new_moments()
        for epoch in range(epochs):
            train_epoch(module, optimizer, epoch)
            if epoch >= epochs // 2:
                methods.collect_moments(moments, methods.flat(module.parameters()))
        modules.append(module)
        total = total + methods.swag_probabilities(module, moments, 100 * seed, 5)
    return modules, total / count


def svgd(count: int, width: int, epochs: int) -> tuple[list, torch.Tensor]:
    modules = [module for module, _, _ in members(count, width)]
    for epoch in range(epochs):
        for x, y in digits.batches(epoch):
            for module in modules:
                module.zero_grad()
                cross_entropy(module(x), y).backward()
            weights = torch.stack([methods.flat(m.parameters()) for m in modules])
            gradients = torch.stack([methods.flat(p.grad for p in m.parameters()) for m in modules])
            for module, direction in zip(modules, methods.svgd_directions(weights, gradients), strict=True):
                methods.assign(module, methods.flat(module.parameters()) + 2.0 * direction)
    return modules, sum(methods.probabilities(m) for m in modules) / count
