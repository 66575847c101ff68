"""IRLEED and IQ-Learn, offline, as a plain PyTorch loop on the CPU: what `soft_q.py` compares with.

The algorithm is `irleed.algorithms.iq.OfflineIrleed` with its defaults, written the way one does in PyTorch: modules,
autograd, an
optimiser and a Python loop, one run at a time. `loss` is held against that of `OfflineIrleed` before anything is timed.
"""

import math
import os
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def mlp(inputs: int, settings: Any, outputs: int) -> nn.Sequential:
    """A multilayer perceptron with what the settings have between its layers."""
    layers: list[nn.Module] = []
    for before, after in zip((inputs, *settings.hidden), settings.hidden, strict=False):
        normed = [nn.LayerNorm(after, elementwise_affine=False), nn.ReLU()]
        layers += [nn.Linear(before, after), *(normed if settings.activation == "norm_relu" else [nn.ELU()])]
    return nn.Sequential(*layers, nn.Linear(settings.hidden[-1], outputs))


class SoftQ(nn.Module):
    """A shared Q; with demonstrators, their precisions and linear biases."""

    def __init__(self, settings: Any, obs: Tensor, actions: int, demonstrators: int) -> None:
        super().__init__()
        self.settings = settings
        self.register_buffer("centre", obs.mean(0))
        self.register_buffer("spread", obs.std(0, correction=0))
        self.q = mlp(obs.shape[1], settings, actions)
        if settings.learns_bias:
            self.log_precision = nn.Parameter(torch.zeros(demonstrators))
            self.bias = nn.Linear(obs.shape[1], demonstrators * actions)  # everyone's at once
            nn.init.zeros_(self.bias.weight)
            nn.init.zeros_(self.bias.bias)

    def logits(self, obs: Tensor, demonstrator: Tensor) -> tuple[Tensor, Tensor | None]:
        """Those of the demonstrators that took the actions, and their biases."""
        x = (obs - self.centre) / self.spread
        q = self.q(x)
        if not self.settings.learns_bias:
            return q / self.settings.temperature, None
        log_precision = self.log_precision - self.log_precision.mean()
        every = self.bias(x).view(len(x), len(log_precision), -1)
        bias = every[torch.arange(len(x)), demonstrator]
        precision = log_precision.exp()[demonstrator].unsqueeze(1)
        return precision * (q + self.settings.bias_scale * bias) / self.settings.temperature, bias

    def loss(self, obs: Tensor, next_obs: Tensor, action: Tensor, continuation: Tensor, demonstrator: Tensor) -> Tensor:
        """To be minimised: the mean over a batch."""
        own = self.settings
        # One pass through the networks for both observations: faster than two.
        both, biases = self.logits(torch.cat([obs, next_obs]), demonstrator.repeat(2))
        logits, ahead = both.chunk(2)
        reward = logits.gather(1, action.unsqueeze(1)).squeeze(1) - own.discount * continuation * ahead.logsumexp(1)
        loss = functional.cross_entropy(logits, action) + own.penalty * own.temperature * reward.square().mean()
        if biases is None:
            return own.temperature * loss
        return own.temperature * loss + own.bias_penalty * biases.chunk(2)[0].square().mean()


def columns(data: Any) -> list[Tensor]:
    """The arguments of `OfflineIrleed.loss` for a data set, or a batch, of irleed's."""
    named = (data.obs, data.next_obs, data.action, data.continuation, data.demonstrator)
    return [torch.tensor(each.tolist()) for each in named]  # whole numbers become int64, which PyTorch indexes by


def load(model: SoftQ, parameters: Any) -> None:
    """Take over the weights of a `irleed.algorithms.iq.irleed.Parameters`."""
    pairs = [(model.q, parameters.actor.network.weights, parameters.actor.network.offsets)]
    with torch.no_grad():
        if model.settings.learns_bias:
            model.log_precision.copy_(torch.tensor(parameters.log_precision.tolist()))
            bias = parameters.bias
            every = bias.weights.transpose(1, 0, 2).reshape(bias.weights.shape[1], -1)
            pairs.append((nn.Sequential(model.bias), [every], [bias.offsets.reshape(-1)]))
        for modules, weights, offsets in pairs:
            layers = [module for module in modules if isinstance(module, nn.Linear)]
            for layer, weight, offset in zip(layers, weights, offsets, strict=True):
                layer.weight.copy_(torch.tensor(weight.T.tolist()))
                layer.bias.copy_(torch.tensor(offset.tolist()))


def trainer(settings: Any, data: Any, actions: int, demonstrators: int) -> Callable[[int], None]:
    """A model ready to be trained for so many updates: what is not part of an update is done, and it is warmed up."""
    tensors = columns(data)
    model = SoftQ(settings, tensors[0], actions, demonstrators)
    groups = [{"params": model.q.parameters(), "rate": settings.learning_rate}]
    if settings.learns_bias:
        groups.append({"params": [model.log_precision], "rate": settings.precision_learning_rate})
        groups.append({"params": model.bias.parameters(), "rate": settings.bias_learning_rate})
    optimiser = torch.optim.Adam(groups, fused=True)  # one call for all parameters: the fastest of its three ways

    def train(updates: int) -> None:
        for step in range(updates):
            factor = 0.5 * (1 + math.cos(math.pi * step / updates))
            for group in optimiser.param_groups:
                group["lr"] = factor * group["rate"]
            rows = torch.randint(len(tensors[0]), (settings.batch_size,))
            loss = model.loss(*(each[rows] for each in tensors))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    train(20)
    return train


def loss_of(settings: Any, parameters: Any, data: Any, batch: Any, actions: int, demonstrators: int) -> float:
    """The loss of a batch under irleed's parameters."""
    model = SoftQ(settings, columns(data)[0], actions, demonstrators)
    load(model, parameters)
    return model.loss(*columns(batch)).item()


def choose_threads(settings: Any, data: Any, actions: int, demonstrators: int, updates: int = 30) -> dict[int, float]:
    """Use as many threads as are fastest for networks of this size: one, or one for each core; updates a second."""
    rates = {}
    for threads in sorted({1, os.cpu_count() or 1}):
        torch.set_num_threads(threads)
        train, seconds = trainer(settings, data, actions, demonstrators), []
        for _ in range(3):
            began = time.perf_counter()
            train(updates)
            seconds.append(time.perf_counter() - began)
        rates[threads] = updates / min(seconds)
    torch.set_num_threads(max(rates, key=lambda threads: rates[threads]))
    return rates
