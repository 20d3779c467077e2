"""An inference process: with the others it embeds sentences, and takes every version that the trainers offer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import stepvan
import torch
from parallel import LEADER, Part, Sums, Task, inference_layout, run
from parallel.task import MAX_TOKENS
from refit import INFERENCE, plan_of, tell

ORDERS = 2  # tag
TIMEOUT = 120  # seconds, for a step of the trainers
PAUSE = 0.0005  # seconds between two looks for the first version


class WrongVersion(Exception):
    """This process does not have the version that it is to use."""


class Order(NamedTuple):
    """What all inference processes do next with a version: embed a batch, take the version, or end.

    batch: the index of a batch, TAKE or END.
    """

    version: int
    batch: int


TAKE, END = -1, -2


class Inference:
    """One of the processes. The leader gives the orders, so that all use one version for a batch."""

    def __init__(self, node: stepvan.Node, task: Task) -> None:
        self.peer = node.peer
        self.index = INFERENCE.index(self.peer.rank)
        self.name = f"inference {self.index}"
        layout = inference_layout(task.config)
        self.part = stepvan.share_(Part(layout, self.index).requires_grad_(False), node)
        self.sums = Sums(node, INFERENCE, MAX_TOKENS, task.config.hidden)
        self.batches = task.batches
        self.served: list[tuple[int, int, torch.Tensor]] = []
        tell(self.name, f"has {layout.tell(self.index)}, and no version")
        self.plan = plan_of(node, self.part)

    def serve(self, steps: int) -> None:
        """Embeds batches until all of them were embedded with version ``steps``."""
        for order in self.orders(steps) if self.index == LEADER else self.received():
            if order.batch == TAKE:
                self.take(order.version)
            else:
                self.embed(order)
        tell(self.name, f"ends; version {steps} embedded {self.count(steps)} sentences")
        self.plan.close(TIMEOUT)

    def orders(self, steps: int) -> Iterator[Order]:
        """Decides what comes next, and tells the others."""
        left = len(self.batches)  # that the last version has not embedded
        count = 0
        while left:
            if offered := self.offered():
                order = Order(offered, TAKE)
            else:
                order = Order(self.plan.version, count % len(self.batches))
                count += 1
                left -= order.version == steps
            yield self.send(order)
        self.send(Order(steps, END))

    def offered(self) -> int:
        """The version that the trainers offer, or 0. Without a version it waits for the first one."""
        deadline = time.monotonic() + TIMEOUT
        while (offered := self.plan.offered) == 0 and self.plan.version == 0:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the trainers have offered no version for {TIMEOUT} s: look at their output")
            time.sleep(PAUSE)
        return offered

    def send(self, order: Order) -> Order:
        told = torch.tensor(order)
        for handle in [self.peer.send(told, rank, ORDERS) for rank in INFERENCE if rank != self.peer.rank]:
            handle.wait(TIMEOUT)
        return order

    def received(self) -> Iterator[Order]:
        """The orders of the leader."""
        while True:
            told = torch.empty(2, dtype=torch.int64)
            self.peer.recv(told, INFERENCE[LEADER], ORDERS).wait(TIMEOUT)
            order = Order(*told.tolist())
            if order.batch == END:
                return
            yield order

    def take(self, version: int) -> None:
        """Refits the weights. Nothing is served meanwhile."""
        before = self.plan.version
        began = time.monotonic()
        self.plan.run(version).wait(TIMEOUT)
        took = time.monotonic() - began
        size = self.plan.stats.received
        rate = f"{size / 1e6:.1f} MB in {1e3 * took:.1f} ms, {size / took / 1e9:.1f} GB/s"
        after = f"; version {before} embedded {self.count(before)} sentences" if before else ""
        tell(self.name, f"serves version {self.plan.version}: {rate}{after}")

    def embed(self, order: Order) -> None:
        """Embeds a batch. Version 0 would be weights of which a part is missing."""
        if self.plan.version != order.version or order.version == 0:
            have = self.plan.version
            raise WrongVersion(f"batch {order.batch} is for version {order.version}, and this process has {have}")
        result = run(self.part, self.batches[order.batch], self.sums.add)
        self.served.append((order.version, order.batch, result))

    def count(self, version: int) -> int:
        """How many sentences a version has embedded."""
        return sum(len(result) for served, _, result in self.served if served == version)

    def save(self, output: Path) -> None:
        """Writes the weights and all that was served to a file, for the check."""
        saved = {"weights": dict(self.part.named_parameters()), "served": self.served}
        torch.save(saved, output / f"inference-{self.index}.pt")
