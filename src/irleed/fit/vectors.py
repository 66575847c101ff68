r"""Demonstrators whose actions are vectors: skill by the others' policies, bias and gain by an ensemble's.

With actions scaled to bounds from -1 to 1, $m(s)$ what a policy does that has learnt from others alone, $\gamma_i$ the
demonstrator's tempo and $\sigma$ the spread of each entry, they are $d_t = |(a_t - \gamma_i m(s_t))/\sigma|^2$ off.
Actions $a'$ of everyone, drawn regardless of the situation and scaled by a $c_i$ to the size of this demonstrator's,
would be $r_t = E|(c_i a' - \gamma_i m(s_t))/\sigma|^2$ off. Skill is $\sum (r_t - d_t) / \sum r_t$: 1 for what the
others would do, 0 as good as random, -1 for the opposite. Speed is no lack of it: the tempo is the multiple of $m$ in
what they do, estimated as in `irleed.model.residuals`, but it is never negative. Offsets and turns are off.

An entry that is a choice is off by the square of the difference between what was chosen and its probabilities (Brier),
in multiples of how far the median demonstrator is. No entry counts as predictable to less than a tenth of its spread.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from irleed._typing import Array, Bool, Float, Int, Key
from irleed.algorithms.iq import OfflineIrleed
from irleed.data.demonstrations import Demonstrations
from irleed.data.transitions import Row, Transitions
from irleed.envs.step import Bounds
from irleed.fit.crossfit import cross_fitted
from irleed.fit.defaults import Algorithm
from irleed.fit.posterior import GRID, Measured, Posterior, evidence, posterior
from irleed.model.expertise import INTERVAL, Expertise
from irleed.model.mixed import Mixed
from irleed.model.residuals import Choices, Residuals, residuals, tempo

ROWS = 4096  # transitions in a batch
ROUNDS = 3  # of votes
RESTARTS = 2  # of each cross-fitted policy, of which the better is taken: training fails now and then
MOST_VOTES = 4.0  # of a transition, in those of the average one
EQUAL = 30.0  # transitions of everyone's that each one's frequencies of situations are drawn to
LEAST_SHARED = 1e-3  # weight of a transition where no other has been
FLOOR = 0.1  # of the spread of an entry: to this it can be predicted, at best


def agreement(
    key: Key,
    learner: OfflineIrleed,
    seen: Transitions,
    held: Bool[np.ndarray, " N"],
    groups: tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]],
    actions: Bounds,
    count: int,
    progress: Callable[[float], None],
) -> tuple[list[Measured], Float[np.ndarray, " N"]]:
    """What everyone realises by policies learnt from the others, for each repetition; weights of the transitions.

    `groups` are recordings and situations. Votes of the first round are equal, then by skill.
    """
    who = np.asarray(seen.demonstrator)
    votes, shared = presence(groups[1], who, count)
    measure = Measure(shared, who, groups[0], count)
    share, measured = np.ones(count), []
    for number, round_key in enumerate(jax.random.split(key, ROUNDS)):
        columns = cross_fitted(
            round_key, learner, seen, votes * share[who], held, actions, count, _columns, accuracy, RESTARTS
        )
        measured = [measure(*each) for each in columns]
        share = vote_weight(posterior([evidence(each, shared, who, groups, count) for each in measured]))
        progress((number + 1) / ROUNDS)
    return measured, shared


class Measure(eqx.Module):
    """What D demonstrators realise of what is possible, by predictions for N transitions that have not seen them."""

    weight: Float[np.ndarray, " N"]
    who: Int[np.ndarray, " N"]
    episode: Int[np.ndarray, " N"]
    count: int

    def __call__(self, mean: Array, action: Array, counted: Array, *choices: Array) -> Measured:
        """From the columns of `_columns`."""
        parts = [self._choice(*pair) for pair in zip(choices[::2], choices[1::2], strict=True)]
        parts += [self._numbers(mean, action, counted)] if mean.shape[1] else []
        return Measured(*(np.sum(each, 0) for each in zip(*parts, strict=True)))

    def _numbers(self, mean: Array, action: Array, counted: Array) -> tuple[Array, Array, Array]:
        """Realised, possible and the likelihood of precisions, by all entries that are numbers."""
        at = tempo(mean, action, counted * self._effective()[:, None], self.who, self.episode, self.count)
        gain, growth = at.gain[self.who, None], at.growth[self.who, None]
        first = self._by_person(action, counted).mean(0)  # of the pool: everyone has one vote
        own = self._by_person(action**2, counted)
        second = own.mean(0)
        level = np.maximum(at.level**2, FLOOR**2 * np.maximum(second - first**2, 1e-12))
        size = np.sqrt((own / level).sum(1) / np.maximum((second / level).sum(), 1e-12))[self.who, None]
        random = size**2 * second - 2 * size * gain * first * mean + (gain * mean) ** 2
        off = (action - gain * mean) ** 2
        realised, possible = ((counted * each / level).sum(1) for each in (random - off, random))
        square = (counted * off / level / growth**2).sum(1, keepdims=True)
        return realised, possible, 0.5 * (counted.sum(1, keepdims=True) * GRID - np.exp(GRID) * square)

    def _choice(self, log_probs: Array, option: Array) -> tuple[Array, Array, Array]:
        """The same by an entry that chooses."""
        chance, chosen = np.exp(log_probs), np.eye(log_probs.shape[1])[np.rint(option).astype(int)]
        often = self._by_person(chosen).mean(0)
        off = ((chosen - chance) ** 2).sum(1)
        random = 1 - 2 * chance @ often + (chance**2).sum(1)
        level = float(np.median(self._by_person(off[:, None])))
        level = max(level, FLOOR**2 * float(1 - (often**2).sum()), 1e-12)
        curve = np.stack([_sharpened(log_probs, chosen, log_precision) for log_precision in GRID], 1)
        return (random - off) / level, random / level, curve

    def _effective(self) -> Float[np.ndarray, " N"]:
        """Weights that sum to each demonstrator's effective number of transitions."""
        total, square = (np.bincount(self.who, each, self.count) for each in (self.weight, self.weight**2))
        return self.weight * (total / square)[self.who]

    def _by_person(self, values: Array, counted: Array | float = 1.0) -> Float[np.ndarray, "D K"]:
        """Each one's mean; that of everyone where nothing of theirs counts."""
        weight = np.broadcast_to(self.weight[:, None] * counted, values.shape)
        columns = zip((weight * values).T, weight.T, strict=True)
        sums = [[np.bincount(self.who, each, self.count) for each in pair] for pair in columns]
        return np.stack([np.where(n > 0, x / np.maximum(n, 1e-12), x.sum() / max(n.sum(), 1e-12)) for x, n in sums], 1)


def presence(
    situation: Int[np.ndarray, " N"], who: Int[np.ndarray, " N"], count: int
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    r"""Votes of each transition, and its weight in the judgement of its demonstrator, by where people have been.

    In every situation, whoever has been there has one vote: a transition counts by $1 / p(i|s)$ over the number of
    transitions of its demonstrator, within limits. They are judged where several others have been.
    """
    often = np.zeros((situation.max() + 1, count))
    np.add.at(often, (situation, who), 1)
    number = often.sum(0)
    share = (often + EQUAL * often.sum(1, keepdims=True) / len(who)) / (number + EQUAL)
    share /= share.sum(1, keepdims=True)
    own = share[situation, who]
    average = count / len(who)
    votes = np.minimum(1 / (count * own * number[who]), MOST_VOTES * average)
    rest = share.sum(1) - share.T  # of all others
    effective = rest**2 / np.maximum((share**2).sum(1) - share.T**2, 1e-12)
    shared = np.clip((effective[who, situation] - 1) / max(count - 2, 1), 0, 1) ** 2 if count > 2 else 1.0
    return votes, LEAST_SHARED + (1 - own) * shared


def accuracy(algorithm: OfflineIrleed, parameters: Any, rows: Row) -> Float[Array, ""]:
    """Minus the mean share of the variance of each entry that the greedy action misses; of choices, of the Brier score.

    The likelihood also asks how large the errors are, which differs between demonstrators; it is best long before the
    prediction is.
    """
    (mean, own, counted), chances = _seen(algorithm, parameters, jnp.asarray(rows.obs, jnp.float32), rows.action)
    middle = jnp.sum(counted * own, 0) / jnp.maximum(jnp.sum(counted, 0), 1)
    missed, spread = (jnp.sum(counted * (each - own) ** 2, 0) for each in (mean, middle[None]))
    shares = [missed / jnp.maximum(spread, 1e-9)]
    for log_probs, option in chances:
        chosen = jax.nn.one_hot(jnp.rint(option).astype(jnp.int32), log_probs.shape[1])
        missed, spread = (jnp.sum((each - chosen) ** 2) for each in (jnp.exp(log_probs), jnp.mean(chosen, 0)[None]))
        shares.append((missed / jnp.maximum(spread, 1e-9))[None])
    return -jnp.mean(jnp.concatenate(shares))


def vote_weight(found: Posterior) -> Float[np.ndarray, " D"]:
    """Of each in the next round: less for the opposite than for the random, even where nobody agrees with others yet.

    Whoever does the opposite can mislead the policies of a first round so far that nobody has skill above 0.
    """
    return ((1 + np.clip(found.skill, -1, 1)) / 2) ** 4


def _sharpened(log_probs: Array, chosen: Array, log_precision: float) -> Float[np.ndarray, " N"]:
    """The log probability of what was chosen, at a log precision."""
    scaled = np.exp(log_precision) * log_probs
    return (scaled * chosen).sum(1) - logsumexp(scaled, axis=1)


def final_learner(judged: Posterior, algorithm: OfflineIrleed) -> OfflineIrleed:
    """The algorithm with precisions held as judged: by a learning rate of 0, as transitions are weighed by them."""
    log_precision = np.log(judged.precision(0.5)).astype(np.float32)
    return dataclasses.replace(algorithm, held_log_precision=log_precision, precision_learning_rate=0.0)


def _columns(algorithm: OfflineIrleed, parameters: Any, obs: Array, action: Array) -> tuple[Array, ...]:
    """What `_seen` gives, as one tuple: of numbers, then log probabilities and option of each choice."""
    numbers, chances = _seen(algorithm, parameters, obs, action)
    return (*numbers, *(column for pair in chances for column in pair))


def judged(
    found: Expertise,
    algorithm: Algorithm,
    parameters: Any,
    data: Transitions,
    episode: Int[Array, " N"],
    actions: Bounds,
    held_out: Bool[np.ndarray, "K N"],
) -> Expertise:
    """The same with precision and bias by how actions differ from what the shared policies of K members do on average.

    Each transition is judged by the members that have not learnt from it.
    """
    if not (isinstance(algorithm, OfflineIrleed) and algorithm.learns_precision):
        return found
    rows = np.flatnonzero(held_out.any(0))
    (shared, action, counted), chances = _predicted(algorithm, parameters, data, held_out, rows)
    choices = [Choices(chance, np.rint(option).astype(int)) for chance, option in chances]
    who = np.asarray(data.demonstrator)[rows]
    best, draws = residuals(shared, action, counted, who, np.asarray(episode)[rows], len(found.names), choices)
    tail = (1 - INTERVAL) / 2
    low, high = (Residuals(*(np.quantile(each, end, axis=0) for each in draws)) for end in (tail, 1 - tail))
    precision, share = np.exp(best.log_precision), np.exp(best.log_precision) * found.transitions
    offset = np.full((len(found.names), actions.size), np.nan)
    offset[:, list(actions.free)] = best.offset * (0.5 * (actions.high - actions.low))[list(actions.free)]
    judged = dataclasses.replace(
        found,
        precision=precision,
        precision_low=np.minimum(np.exp(low.log_precision), precision),
        precision_high=np.maximum(np.exp(high.log_precision), precision),
        weight=share / share.sum(),
        gain=best.gain,
    )
    if not algorithm.learns_bias:
        return judged
    ends = {"bias_low": np.minimum(low.bias, best.bias), "bias_high": np.maximum(high.bias, best.bias)}
    return dataclasses.replace(judged, bias=best.bias, **ends, offset=offset)


def held_out(data: Demonstrations, chosen: list[Int[np.ndarray, " E"]]) -> Bool[np.ndarray, "K N"]:
    """Of each member, the transitions of episodes that are not among those it learnt from.

    Where these are none of somebody's, as of those with a single episode, everybody is judged by all transitions.
    """
    left = np.array([~np.isin(np.arange(data.episodes), own) for own in chosen])
    if len(np.unique(data.owner[left.any(0)])) < data.demonstrators:
        return np.ones((len(chosen), data.transitions), bool)
    return left[:, data.episode]


def _predicted(
    algorithm: OfflineIrleed, parameters: Any, data: Transitions, held_out: Bool[np.ndarray, "K N"], rows: Array
) -> Any:
    """What `_seen` gives for these transitions, averaged over the members that each is held out from."""
    total, weight = None, held_out[:, rows].sum(0)
    for member, own in enumerate(held_out):
        one = jax.tree.map(lambda leaf, member=member: leaf[member], parameters)
        parts = []
        for first in range(0, len(rows), ROWS):
            part = np.resize(rows[first : first + ROWS], min(ROWS, len(rows)))  # one shape: compiled once
            seen = _seen(algorithm, one, data.obs[part], data.action[part])
            parts.append(jax.tree.map(lambda leaf, first=first: np.asarray(leaf, float)[: len(rows) - first], seen))
        found = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        found = jax.tree.map(functools.partial(_scaled, own[rows] / weight), found)
        total = found if total is None else jax.tree.map(np.add, total, found)
    return total


def _scaled(share: np.ndarray, leaf: np.ndarray) -> np.ndarray:
    return leaf * share.reshape(-1, *(1,) * (leaf.ndim - 1))


@jax.jit
def _seen(algorithm, parameters, obs, action):
    """Greedy numbers, those of the actions, and which count; of each choice log probabilities and what was chosen."""
    found = algorithm.policy(parameters).batch(obs)
    if isinstance(found, Mixed):
        options = zip(found.choices, found.options(action), strict=True)
        chances = [(jax.nn.log_softmax(choice.logits), option) for choice, option in options]
        own = found.free_part(action)
        return (found.inside.unit_mean(), found.inside.squashing.unit(own), found.is_inside(action)), chances
    unit = found.squashing.unit(action)
    return (found.unit_mean(), unit, jnp.ones_like(unit)), []
