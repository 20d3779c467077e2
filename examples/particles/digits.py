"""Handwritten digits that scikit-learn ships, and a small model of them."""

from __future__ import annotations

import functools

import torch


@functools.cache
def load() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """1,200 images with their digits for training, and 597 others."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the example needs scikit-learn, for its data: pip install scikit-learn") from error
    images, digits = load_digits(return_X_y=True)
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(images / 16, dtype=torch.float32)[order], torch.tensor(digits)[order]
    return x[:1200], y[:1200], x[1200:], y[1200:]


def batches(epoch: int, size: int = 100) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The training data of an epoch, in an order of its own."""
    x, y, _, _ = load()
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1 + epoch))
    return [(x[some], y[some]) for some in order.split(size)]


def make_model(width: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.Tanh(), torch.nn.Linear(width, 10))


def make_optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.9)


def make_scheduler(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)


def accuracy(probabilities: torch.Tensor) -> float:
    """How many of the other images get their digit."""
    return (probabilities.argmax(1) == load()[3]).float().mean().item()
