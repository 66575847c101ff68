"""A plain PyTorch loop of IQ-Learn with continuous actions, to measure `irleed.algorithms.iq.sac` against."""

import time

import torch
from torch import nn

from irleed.data.transitions import Transitions

HIDDEN, BATCH, DISCOUNT, TEMPERATURE, PENALTY, TARGET_RATE = 256, 256, 0.99, 0.01, 1.0, 0.005


class Critic(nn.Module):
    """One Q(s, a), with layer norm."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before in (inputs, HIDDEN):
            norm = nn.LayerNorm(HIDDEN, elementwise_affine=False)
            layers += [nn.Linear(before, HIDDEN), norm, nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(HIDDEN, 1))

    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """The value of each row."""
        return self.layers(torch.cat([obs, action], -1))[:, 0]


class Actor(nn.Module):
    """A squashed Gaussian."""

    def __init__(self, obs: int, actions: int) -> None:
        super().__init__()
        hidden = [nn.Linear(obs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()]
        self.layers = nn.Sequential(*hidden, nn.Linear(HIDDEN, 2 * actions))

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """An action for each row, and its log density."""
        mean, raw = self.layers(obs).chunk(2, -1)
        spread = torch.exp(-1.5 + 3.5 * torch.tanh(raw))
        noise = torch.randn_like(mean)
        z = mean + spread * noise
        slope = 2 * (0.6931471805599453 - z - nn.functional.softplus(-2 * z))
        return torch.tanh(z), (-0.5 * noise**2 - torch.log(spread) - 0.9189385332046727 - slope).sum(-1)


def measured(data: Transitions, obs: int, actions: int, updates: int) -> float:
    """Updates a second, after some to warm up."""
    torch.manual_seed(0)
    shown = {name: torch.as_tensor(getattr(data, name)[0]) for name in ("obs", "next_obs", "action")}
    played = {name: torch.randn_like(each) for name, each in shown.items()}
    critics = [Critic(obs + actions) for _ in range(2)]
    targets = [Critic(obs + actions) for _ in range(2)]
    actor = Actor(obs, actions)
    critic_steps = torch.optim.Adam([p for critic in critics for p in critic.parameters()], 3e-4)
    actor_steps = torch.optim.Adam(actor.parameters(), 3e-5)
    began = 0.0
    for number in range(updates + 10):
        if number == 10:
            began = time.perf_counter()
        _update(shown, played, critics, targets, actor, critic_steps, actor_steps)
    return updates / (time.perf_counter() - began)


def _update(shown, played, critics, targets, actor, critic_steps, actor_steps) -> None:
    rows = torch.randint(0, len(shown["obs"]), (2, BATCH))
    both = {name: torch.cat([shown[name][rows[0]], played[name][rows[1]]]) for name in shown}
    goal = torch.cat([torch.full((BATCH,), 1 / PENALTY), torch.full((BATCH,), -1 / PENALTY)])
    with torch.no_grad():
        action, density = actor(both["next_obs"])
        ahead = torch.minimum(*(target(both["next_obs"], action) for target in targets)) - TEMPERATURE * density
        most = 1 / (PENALTY * (1 - DISCOUNT))
        goal = goal + DISCOUNT * ahead.clamp(-most, most)
    loss = sum(((critic(both["obs"], both["action"]) - goal) ** 2).mean() for critic in critics)
    critic_steps.zero_grad()
    loss.backward()
    critic_steps.step()
    action, density = actor(both["obs"])
    value = torch.minimum(*(critic(both["obs"], action) for critic in critics))
    actor_steps.zero_grad()
    (TEMPERATURE * density - value).mean().backward()
    actor_steps.step()
    with torch.no_grad():
        for critic, target in zip(critics, targets, strict=True):
            for new, old in zip(critic.parameters(), target.parameters(), strict=True):
                old.lerp_(new, TARGET_RATE)
