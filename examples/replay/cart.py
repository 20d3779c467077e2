"""A cart on a track that shall come to rest in the middle, and how a learner finds out by itself."""

from __future__ import annotations

import torch

FIELDS = {"state": 2, "action": None, "reward": None, "following": 2}
FORCES = torch.tensor([-1.0, 0.0, 1.0])
DISCOUNT = 0.97
ROWS = 20_000
"""How many steps each collector makes."""


def step(state: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The state, place and speed, after a tenth of a second, and the reward."""
    place, speed = state.unbind(-1)
    speed = (speed + 0.1 * FORCES[action]).clamp(-2, 2)
    place = (place + 0.1 * speed).clamp(-2, 2)
    return torch.stack((place, speed), -1), -(place**2 + 0.1 * speed**2)


def explore(seed: int) -> dict[str, torch.Tensor]:
    """The rows of a collector, which pushes the cart at random from anywhere."""
    random = torch.Generator().manual_seed(seed)
    state = torch.rand(ROWS, 2, generator=random) * 4 - 2
    action = torch.randint(0, 3, (ROWS,), generator=random)
    following, reward = step(state, action)
    return {"state": state, "action": action.float(), "reward": reward, "following": following}


class Learner:
    """Learns what each push is worth in each state, by Q-learning."""

    def __init__(self) -> None:
        random = torch.random.get_rng_state()
        torch.manual_seed(1)
        self.values = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3))
        torch.random.set_rng_state(random)
        self.slow = [p.detach().clone() for p in self.values.parameters()]
        self.optimizer = torch.optim.Adam(self.values.parameters(), lr=3e-3)

    def learn(self, batch: dict[str, torch.Tensor]) -> float:
        """One step of training. Returns the loss."""
        with torch.no_grad():
            w1, b1, w2, b2 = self.slow
            later = (torch.tanh(batch["following"] @ w1.T + b1) @ w2.T + b2).amax(1)
            target = batch["reward"] + DISCOUNT * later
        worth = self.values(batch["state"]).gather(1, batch["action"].long()[:, None])[:, 0]
        loss = torch.nn.functional.smooth_l1_loss(worth, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            for slow, now in zip(self.slow, self.values.parameters(), strict=True):
                slow.lerp_(now, 0.02)
        return float(loss)

    def drive(self) -> float:
        """How far from the middle the cart is on average after 10 seconds, from 64 places at rest."""
        state = torch.stack((torch.linspace(-2, 2, 64), torch.zeros(64)), 1)
        with torch.no_grad():
            for _ in range(100):
                state, _ = step(state, self.values(state).argmax(1))
        return float(state[:, 0].abs().mean())

    def weights(self) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in self.values.parameters()])
