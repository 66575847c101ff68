r"""Discrete actions: how much of what a demonstrator does follows from what the others would do.

Demonstrator $i$ is compared with values $Q_{-i}$ that are learnt from the others alone:

$$\pi_i(a|s) \propto m_i(a) \exp(b_i Q_{-i}(s, a)),$$

$m_i$ being how often $i$ takes each action, wherever they are. $b_i$ maximises the likelihood and may be negative. With
$g_i$ the gain in log likelihood per action over $m_i$ alone, skill is $\pm\sqrt{1 - \exp(-2 g_i)}$ with the sign of
$b_i$: the informational correlation (Linfoot, 1957) of what they do with what the others would do there. It is divided
by the most that it can be with the average demonstrator's frequencies: 1 is what the others would always do, 0 is
actions that do not depend on the situation, below 0 is the opposite of the others. Habits, such as waiting mostly,
count for nothing.

Who of the others is to be learnt from? Every demonstrator, or group of them, has a clone: a policy of their own
transitions alone, stopped by held-out likelihood.

- The correlations of everyone's actions with everyone else's clone are explained by a model of rank one,
  $R_{ij} \approx s_i c_j$. Two who do the same, and the opposite of all others, agree with each other, but as a product
  of two negative numbers.
- In `ROUNDS` rounds, everyone is compared with the mean of the others' clones, weighted by skill. Clones that have
  never met extrapolate differently: where the others have not been, their mean is flat and decides little.
- Values are then learnt from the others with these weights, one for each person and none where it is negative.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_softmax

from irleed._typing import Array, Bool, Float, Int, Key
from irleed.algorithms.baselines.bc import BehaviourCloning
from irleed.algorithms.iq import OfflineIrleed
from irleed.data.transitions import Transitions
from irleed.fit.crossfit import MOST_HELD, MOST_ROWS, cross_fitted, parts, resampled_rows, trained_on_rows
from irleed.fit.posterior import GRID, Measured
from irleed.model.actions import Categorical

MOST_CLONES = 10  # more demonstrators than this share them, in random groups
ROUNDS = 3
CLONE = {"hidden": (64, 64), "steps": 4_000, "batch_size": 128, "anneal_lr": False, "learning_rate": 1e-3}
UNIFORM = 0.1  # of a demonstrator's action frequencies: where all do the same always, that is right
NEWTON, STEEPEST = 25, 20.0  # steps of Newton's method, and the largest b
LEAST_STEEP = 1e-3  # the smallest, where the linearisation of the correlation is regular
ALTERNATIONS = 100  # of least squares


class Tilt(NamedTuple):
    """Correlations of D demonstrators' actions with values of N transitions, and each transition's part in them."""

    correlation: Float[np.ndarray, " D"]
    part: Float[np.ndarray, " N"]  # whose mean over a demonstrator's transitions is the correlation


def agreement(
    key: Key,
    learner: OfflineIrleed,
    seen: Transitions,
    held: Bool[np.ndarray, " N"],
    actions: int,
    count: int,
    progress: Callable[[float], None],
) -> tuple[list[Measured], Float[np.ndarray, "2 N"]]:
    """Of every transition, by the others' policies, what it adds to its demonstrator's skill, and its likelihood.

    For each repetition; and on average, by how much the action is better than their demonstrator's frequencies, and the
    best one would be.
    """
    clone_key, fit_key = jax.random.split(key)
    who, action = np.asarray(seen.demonstrator), np.asarray(seen.action).astype(int)
    often = _frequencies(who, action, actions, count)
    weight = weights(clone_key, seen, held, often) / np.bincount(who, minlength=count)
    progress(0.5)
    columns = cross_fitted(fit_key, learner, seen, weight[who], held, actions, count, _log_probs)
    entropy = -(often * np.log(often)).sum(1).mean()
    most = np.sqrt(1 - np.exp(-2 * entropy))
    measured = []
    for (log_probs,) in columns:
        part = tilt(log_probs, often, who, action).part
        measured.append(Measured(part / most, np.ones(len(who)), _curve(log_probs, action)))
    progress(1.0)
    advantages = [_advantages(log_probs, often[who], action) for (log_probs,) in columns]
    return measured, np.mean(advantages, 0)


def weights(
    key: Key, seen: Transitions, held: Bool[np.ndarray, " N"], often: Float[np.ndarray, "D A"]
) -> Float[np.ndarray, " D"]:
    """Of everyone in the policy that judges others: the correlation with the weighted mean of the others' clones."""
    group_key, clone_key = jax.random.split(key)
    who, action = np.asarray(seen.demonstrator), np.asarray(seen.action).astype(int)
    count = len(often)
    clones = min(count, MOST_CLONES)
    group = np.argsort(np.asarray(jax.random.permutation(group_key, count)), kind="stable") % clones
    log_probs = _clones(clone_key, seen, held, group[who], *often.shape)
    correlations = np.stack([tilt(own, often, who, action).correlation for own in log_probs], 1)
    weight, correlation = rank_one(correlations, group[:, None] == np.arange(clones)), np.zeros(count)
    for _ in range(ROUNDS):
        correlation = tilt(_of_others(log_probs, weight, group[who]), often, who, action).correlation
        weight = np.bincount(group, np.maximum(correlation, 0), clones) / np.bincount(group, minlength=clones)
    return np.maximum(correlation, 0.0) if (correlation > 0).sum() > 1 else np.ones(count)


def tilt(
    values: Float[np.ndarray, "N A"],
    often: Float[np.ndarray, "D A"],
    who: Int[np.ndarray, " N"],
    action: Int[np.ndarray, " N"],
) -> Tilt:
    """The correlation of everyone's actions with the values, beyond how often they take each action anyway."""
    count, rows = len(often), np.arange(len(who))
    number = np.maximum(np.bincount(who, minlength=count), 1)
    scaled = _standardised(values)
    base, steep = np.log(often)[who], np.zeros(count)

    def moments(steep: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        log_prob = log_softmax(base + steep[who, None] * scaled, axis=1)
        chance = np.exp(log_prob)
        mean = (chance * scaled).sum(1)
        return log_prob[rows, action], mean, (chance * scaled**2).sum(1) - mean**2

    for _ in range(NEWTON):
        _, mean, variance = moments(steep)
        slope = np.bincount(who, scaled[rows, action] - mean, count)
        bend = np.bincount(who, variance, count) + 1e-6 * number
        steep = np.clip(steep + np.clip(slope / bend, -1, 1), -STEEPEST, STEEPEST)
    steep = np.where(np.abs(steep) < LEAST_STEEP, np.where(steep < 0, -LEAST_STEEP, LEAST_STEEP), steep)
    gain = moments(steep)[0] - base[rows, action]
    mean_gain = np.maximum(np.bincount(who, gain, count) / number, 1e-12)
    correlation = np.sign(steep) * np.sqrt(1 - np.exp(-2 * mean_gain))
    slope = np.exp(-2 * mean_gain) / correlation  # of the correlation, with the gain
    return Tilt(correlation, correlation[who] + slope[who] * (gain - mean_gain[who]))


def rank_one(correlation: Float[np.ndarray, "D G"], own: Bool[np.ndarray, "D G"]) -> Float[np.ndarray, " G"]:
    """The weight of each clone: c of the least squares fit of s c to the correlations with others' clones."""
    others = ~own
    known = np.where(others, correlation, 0.0)
    skill, weight = np.ones(len(correlation)), np.ones(correlation.shape[1])
    for _ in range(ALTERNATIONS):
        weight = skill @ known / np.maximum(skill**2 @ others, 1e-12)
        skill = known @ weight / np.maximum(others @ weight**2, 1e-12)
        skill /= np.sqrt(np.mean(skill**2)) + 1e-12
    return weight if skill.sum() >= 0 else -weight


def _clones(
    key: Key, seen: Transitions, held: Bool[np.ndarray, " N"], group: Int[np.ndarray, " N"], count: int, actions: int
) -> Float[np.ndarray, "G N A"]:
    """Log probabilities of all actions in every row by each group's own policy, everyone in it counting alike."""
    who = np.asarray(seen.demonstrator)
    alike, algorithm = 1 / np.bincount(who, minlength=count)[who], BehaviourCloning(**CLONE)
    learnt, scored = [], []
    for number in range(int(group.max()) + 1):
        learn_key, held_key = jax.random.split(jax.random.fold_in(key, number))
        own = alike * (group == number)
        learnt.append(resampled_rows(learn_key, own * ~held, MOST_ROWS))
        scored.append(resampled_rows(held_key, own * held, MOST_HELD))
    stopped = trained_on_rows(algorithm, key, seen, learnt, scored, actions, count)
    obs, found = parts(np.asarray(seen.obs)), []
    for number in range(len(learnt)):
        own = jax.tree.map(lambda leaf, number=number: leaf[number], stopped.parameters)
        found.append(np.concatenate([np.asarray(_log_probs(algorithm, own, part)[0]) for part in obs])[: len(who)])
    return np.stack(found).astype(float)


@jax.jit
def _log_probs(
    algorithm: BehaviourCloning | OfflineIrleed, parameters: Any, obs: Array, action: Array | None = None
) -> tuple[Array]:
    """The log probabilities of all actions."""
    policy = algorithm.policy(parameters).batch(jnp.asarray(obs, jnp.float32))
    if not isinstance(policy, Categorical):
        raise TypeError(policy)
    return (jax.nn.log_softmax(policy.logits),)


def _frequencies(
    who: Int[np.ndarray, " N"], action: Int[np.ndarray, " N"], actions: int, count: int
) -> Float[np.ndarray, "D A"]:
    """How often each demonstrator takes each action, drawn a little towards all actions alike."""
    often = np.zeros((count, actions))
    np.add.at(often, (who, action), 1)
    return (1 - UNIFORM) * often / np.maximum(often.sum(1, keepdims=True), 1) + UNIFORM / actions


def _of_others(
    log_probs: Float[np.ndarray, "G N A"], weight: Float[np.ndarray, " G"], group: Int[np.ndarray, " N"]
) -> Float[np.ndarray, "N A"]:
    """The mean of all clones but that of the row's own group, by positive weights."""
    weight = np.maximum(weight, 0)
    weight = weight if (weight > 0).sum() > 1 else np.ones_like(weight)
    total = np.tensordot(weight, log_probs, 1) - weight[group, None] * log_probs[group, np.arange(len(group))]
    return total / np.maximum(weight.sum() - weight[group], 1e-12)[:, None]


def _advantages(
    values: Float[np.ndarray, "N A"], often: Float[np.ndarray, "N A"], action: Int[np.ndarray, " N"]
) -> Float[np.ndarray, "2 N"]:
    """Of the action taken and of the best one, over actions drawn with these frequencies."""
    usual = (often * values).sum(1)
    return np.stack([values[np.arange(len(action)), action] - usual, values.max(1) - usual])


def _standardised(values: Float[np.ndarray, "N A"]) -> Float[np.ndarray, "N A"]:
    """Relative to their mean over actions, with a mean square of 1."""
    off = values - values.mean(1, keepdims=True)
    return off / max(float(np.sqrt(np.mean(off**2))), 1e-12)


def _curve(values: Float[np.ndarray, "N A"], action: Int[np.ndarray, " N"]) -> Float[np.ndarray, "N G"]:
    """The log probability of each action at every log precision of the grid, by the paper's Eq. (6)."""
    rows = np.arange(len(action))
    return np.stack([log_softmax(np.exp(own) * values, axis=1)[rows, action] for own in GRID], 1)
