"""A device whose memory is other memory of this machine: what stays behind there is spoiled, and copies are counted."""

import torch

from stepvan.particles import context_switch
from stepvan.particles._held import Mover


class SimulatedMover(Mover):
    """What torch makes while a particle is on the device is there, too: gradients, and what optimizers keep."""

    def __init__(self, device):
        super().__init__(device)
        self.inside, self.outside = {}, {}  # the memory that it has made, by the address of the storage
        self.full = False  # whether the device has no room left

    def misplaced(self, tensor, inside):
        return self._address(tensor) not in (self.inside if inside else self.outside)

    def copy(self, memory, inside):
        if inside and self.full:
            raise RuntimeError("the device is out of memory")
        here, there = (self.inside, self.outside) if inside else (self.outside, self.inside)
        made = memory.clone()
        there.pop(self._address(memory), None)
        here[self._address(made)] = made
        if not inside:
            memory.fill_(255)  # NaN in every type of float
        return made

    def _address(self, tensor):
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor._storage()
        return storage._cdata

    def resident_bytes(self):
        return sum(memory.numel() for memory in self.inside.values())


def install(monkeypatch):
    """Lets caches have simulated devices from here on."""
    monkeypatch.setattr(context_switch, "Mover", SimulatedMover)
