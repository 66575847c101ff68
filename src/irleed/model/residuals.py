r"""Each demonstrator's bias, gain and precision from the residuals of their actions from a shared policy.

With actions scaled to bounds from -1 to 1, the shared policy's action $m(s)$ and Gaussian noise $\xi$, demonstrator
$i$'s action is $m + W_i m + b_i + \sigma\xi/\sqrt{\beta_i}$: linear in $m$, so that it is determined in all states. The
multiple of $m$ in it is their *gain* $g_i$, a speed relative to the common one, between 1/4 and 4. The rest of $W_i m +
b_i$ is their *bias*: an offset, a rotation, or a reversal. Each kind of coefficient has a Gaussian prior around zero,
whose width is estimated by the evidence, so that biases without support vanish. What demonstrators have in common is
not bias; those with large residuals have a small weight in it.

Noise may grow with speed. Among demonstrators, the dependence of noise on gain, at most a proportional one, is
subtracted from their precision; without such a dependence nothing is.

Transitions of an episode are not independent: the more residuals agree within episodes, the less certain coefficients
are. Intervals are bootstrap intervals over episodes.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from irleed._typing import Array, Float, Int, Scalar

OUTER, INNER = 6, 8  # rounds for the common part, and within each for everything else
DRAWS, DRAW_ROUNDS = 50, 4
MOST_BLOCKS, MOST_NUMBERS = 30, 1 << 25  # parts of a demonstrator's episodes; numbers in all their moments
LEAST, LEAST_GAIN = 1e-6, 0.25  # a smaller or negative gain counts as bias
STEP = 0.05
TURNS = np.arange(-6.0, 6.0 + STEP / 2, STEP)  # log precisions at which choices are compared
PRIOR_SLOPE, PRIOR_WIDTH = 1.0, 0.5  # of log noise over log gain


class Choices(NamedTuple):
    """An entry that chooses: the shared policy's log probabilities, and the options chosen."""

    log_probs: Float[Array, "N K"]
    option: Int[Array, " N"]


class Residuals(NamedTuple):
    """Estimates for D demonstrators relative to a shared policy, with M entries that are not choices."""

    log_precision: Float[np.ndarray, " D"]  # of all residuals except the gain, in the gauge
    bias: Float[np.ndarray, " D"]  # root mean square, in noise at precision 1
    gain: Float[np.ndarray, " D"]
    offset: Float[np.ndarray, "D M"]  # the mean bias, scaled to bounds from -1 to 1


@dataclasses.dataclass
class Moments:
    """Sums over transitions; the leading axis is that of demonstrators, or of blocks of their episodes."""

    gram: Float[np.ndarray, "D M F F"]  # of products of inputs: the shared policy's action, and 1
    cross: Float[np.ndarray, "D M F"]  # of inputs with residuals
    square: Float[np.ndarray, "D M"]  # of residuals
    number: Float[np.ndarray, "D M"]
    tables: Float[np.ndarray, "E D T"]  # log likelihoods of choices at each log precision

    def summed(self, weights: Float[np.ndarray, "D B"]) -> "Moments":
        """Weighted sums of these."""
        gram, cross = np.tensordot(weights, self.gram, 1), np.tensordot(weights, self.cross, 1)
        tables = np.einsum("db,ebt->edt", weights, self.tables)
        return Moments(gram, cross, weights @ self.square, weights @ self.number, tables)

    def without(self, common: Float[np.ndarray, "M F"]) -> "Moments":
        """The moments after subtracting the common part from the residuals."""
        moved = np.einsum("iefg,eg->ief", self.gram, common)
        square = self.square - 2 * np.einsum("ief,ef->ie", self.cross, common) + np.einsum("ief,ef->ie", moved, common)
        return dataclasses.replace(self, cross=self.cross - moved, square=np.maximum(square, 0))


@dataclasses.dataclass
class State:
    """The parameters; `width` are variances of coefficients relative to the variance of noise at precision 1."""

    coefficient: Float[np.ndarray, "D M F"]
    noise: Float[np.ndarray, " D"]  # its variance, relative to that at precision 1
    level: Float[np.ndarray, " M"]  # its standard deviation at precision 1
    width: Float[np.ndarray, " 3"]
    common: Float[np.ndarray, "M F"]
    repeated: Scalar  # transitions that carry as much information as one independent transition


def residuals(
    shared: Float[Array, "N M"],
    action: Float[Array, "N M"],
    counted: Float[Array, "N M"],
    demonstrator: Int[Array, " N"],
    episode: Int[Array, " N"],
    count: int,
    choices: Sequence[Choices] = (),
) -> tuple[Residuals, Residuals]:
    """Estimates for `count` demonstrators, and bootstrap replicates over episodes along a leading axis.

    Entries that are not `counted`, such as those at a bound that is a choice, are left out.
    """
    size, blocks, owner = _summed(shared, action, counted, demonstrator, episode, count, choices)
    belongs = (owner == np.arange(count)[:, None]).astype(float)
    whole = blocks.summed(belongs)
    state = _estimated(whole, blocks, owner)
    found, generator, draws = _answer(state, whole, size), np.random.default_rng(0), []
    for _ in range(DRAWS):
        drawn = [
            np.bincount(generator.choice(own, len(own)), minlength=len(owner)) for own in map(np.flatnonzero, belongs)
        ]
        sums = blocks.summed(np.stack(drawn).astype(float))
        draws.append(_answer(_refined(state, sums.without(state.common), DRAW_ROUNDS), sums, size))
    return found, Residuals(*(np.stack(column) for column in zip(*draws, strict=True)))


class Tempo(NamedTuple):
    """Speed of D demonstrators relative to predictions learnt without their data."""

    gain: Float[np.ndarray, " D"]  # the multiple of the prediction in their actions; positive
    growth: Float[np.ndarray, " D"]  # factor by which their noise is larger because of it
    level: Float[np.ndarray, " M"]  # standard deviation at precision 1


def tempo(
    shared: Float[Array, "N M"],
    action: Float[Array, "N M"],
    counted: Float[Array, "N M"],
    demonstrator: Int[Array, " N"],
    episode: Int[Array, " N"],
    count: int,
) -> Tempo:
    """Tempo of `count` demonstrators relative to predictions `shared`, shrunk to the common one where data are few.

    A demonstrator who does the opposite has the tempo of the opposite.
    """
    size, blocks, owner = _summed(shared, action, counted, demonstrator, episode, count)
    whole = blocks.summed((owner == np.arange(count)[:, None]).astype(float))
    state = _estimated(whole, blocks, owner)
    own, common = _gains(state, whole, size)
    gain = np.clip(np.abs(1 + common + own), LEAST_GAIN, 1 / LEAST_GAIN)
    growth, fast = np.ones(count), 1 + common + own > LEAST_GAIN
    if fast.sum() > 1:
        log_gain = np.log(gain[fast])
        growth[fast] = np.exp(_growth(0.5 * np.log(state.noise[fast]), log_gain) * log_gain)
    return Tempo(gain, growth, state.level)


def _summed(
    shared: Array,
    action: Array,
    counted: Array,
    demonstrator: Array,
    episode: Array,
    count: int,
    choices: Sequence[Choices] = (),
) -> tuple[Float[np.ndarray, " M"], Moments, Int[np.ndarray, " B"]]:
    """The scale of the shared policy, moments of blocks of episodes, and the demonstrator of each block."""
    shared, action, counted = (np.asarray(each, float) for each in (shared, action, counted))
    entries = shared.shape[1]
    size = np.sqrt(np.mean(shared**2, 0) + LEAST)
    inputs = np.concatenate([shared / size, np.ones((len(shared), 1))], 1)
    most = np.clip(MOST_NUMBERS // max(count * entries * (entries + 1) ** 2, 1), 2, MOST_BLOCKS)
    owner, block = _blocks(np.asarray(demonstrator), np.asarray(episode), int(most))
    tables = (
        np.stack([_table(each, block, len(owner)) for each in choices]) if choices else np.zeros((0, len(owner), 1))
    )
    return size, _moments(inputs, action - shared, counted, block, len(owner), tables), owner


def _blocks(who: np.ndarray, episode: np.ndarray, most: int) -> tuple[Int[np.ndarray, " B"], Int[np.ndarray, " N"]]:
    """The demonstrator of each block, and the block of each transition: one episode or several of a demonstrator."""
    episodes, first, number = np.unique(episode, return_index=True, return_inverse=True)
    owner = who[first]
    order = np.argsort(owner, kind="stable")
    rank = np.empty(len(episodes), int)
    start = np.searchsorted(owner[order], owner[order])
    rank[order] = np.arange(len(order)) - start
    pairs, block = np.unique(owner * most + rank % most, return_inverse=True)
    return pairs // most, block[number]


def _moments(
    inputs: np.ndarray, residual: np.ndarray, counted: np.ndarray, block: np.ndarray, count: int, tables: np.ndarray
) -> Moments:
    order = np.argsort(block, kind="stable")
    parts = np.split(order, np.searchsorted(block[order], np.arange(1, count)))
    gram = np.stack([np.einsum("nf,ne,ng->efg", inputs[p], counted[p], inputs[p], optimize=True) for p in parts])
    cross = np.stack([np.einsum("nf,ne->ef", inputs[p], counted[p] * residual[p]) for p in parts])
    square, number = (np.stack([each[p].sum(0) for p in parts]) for each in (counted * residual**2, counted))
    return Moments(gram, cross, square, number, tables)


def _table(choices: Choices, block: np.ndarray, count: int) -> Float[np.ndarray, "B T"]:
    """The log likelihood of each block's choices at each log precision."""
    logits, option = np.asarray(choices.log_probs, float), np.asarray(choices.option)
    rows, table = np.arange(len(logits)), []
    logits = logits - logits.max(1, keepdims=True)
    for turn in TURNS:
        scaled = np.exp(turn) * logits
        log_prob = scaled[rows, option] - np.log(np.exp(scaled).sum(1))
        table.append(np.bincount(block, log_prob, count))
    return np.stack(table, 1)


def _estimated(whole: Moments, blocks: Moments, owner: np.ndarray) -> State:
    """Alternate between the common part, the dependence of transitions, and all other parameters."""
    people, entries, inputs = whole.cross.shape
    level = np.sqrt(np.maximum(whole.square.sum(0) / np.maximum(whole.number.sum(0), 1), LEAST**2))
    none = np.zeros((people, entries, inputs))
    state = State(none, np.ones(people), level, np.ones(3), none[0], 1.0)
    for _ in range(OUTER):
        state = _refined(state, whole.without(state.common), INNER)
        bias = np.einsum("ief,iefg,ieg->ie", state.coefficient, whole.gram, state.coefficient)
        bias = (bias / np.maximum(whole.number, 1) / state.level**2).mean(1) if entries else np.zeros(people)
        weight = whole.number.sum(1) > 0
        weight = weight / (state.noise + bias)
        moved = np.tensordot(weight, state.coefficient, 1) / weight.sum()
        state.common, state.coefficient = state.common + moved, state.coefficient - moved
        state.repeated = _repeated(state, blocks.without(state.common), owner)
    return _refined(state, whole.without(state.common), INNER)


def _repeated(state: State, blocks: Moments, owner: np.ndarray) -> float:
    """The variance of sums over blocks, relative to what it is if transitions are independent; at least 1."""
    score = blocks.cross - np.einsum("iefg,ief->ieg", blocks.gram, state.coefficient[owner])
    variance = state.noise[owner, None, None] * state.level[:, None] ** 2 * np.einsum("ieff->ief", blocks.gram)
    return max(1.0, float(np.sum(score**2 / np.maximum(variance, LEAST)) / max(np.sum(variance > LEAST), 1)))


def _refined(state: State, moments: Moments, rounds: int) -> State:
    """Expectation maximisation: coefficients with their uncertainty, then the variances of noise and of the priors."""
    entries, inputs = moments.cross.shape[1:]
    kind = np.full((entries, inputs), 1)  # turns
    kind[np.arange(entries), np.arange(entries)], kind[:, -1] = 0, 2  # gains, offsets
    coefficient, noise, level, width = state.coefficient, state.noise, state.level, state.width
    for _ in range(rounds):
        variance = state.repeated * noise[:, None] * level**2
        prior = 1 / (np.maximum(width[kind], LEAST) * level[:, None] ** 2)
        covariance = np.linalg.inv(moments.gram / variance[..., None, None] + prior[:, :, None] * np.eye(inputs))
        coefficient = np.einsum("iefg,ieg->ief", covariance, moments.cross / variance[..., None])
        moved = np.einsum("iefg,ieg->ief", moments.gram, coefficient)
        left = moments.square - (coefficient * (2 * moments.cross - moved)).sum(-1)
        left = np.maximum(left, 0) + np.einsum("iefg,iegf->ie", moments.gram, covariance)
        noise = (1 + (left / level**2).sum(1)) / (1 + moments.number.sum(1))
        if len(moments.tables):
            noise = _with_choices(noise, moments)
        noise = np.maximum(noise / np.exp(np.mean(np.log(noise))), LEAST)
        level = np.sqrt((left / noise[:, None]).sum(0) / np.maximum(moments.number.sum(0), 1) + LEAST**2)
        found = (coefficient**2 + np.einsum("ieff->ief", covariance)) / level[:, None] ** 2
        width = np.array([found[:, kind == each].mean() if (kind == each).any() else 1.0 for each in range(3)])
    return State(coefficient, noise, level, width, state.common, state.repeated)


def _with_choices(noise: Float[np.ndarray, " D"], moments: Moments) -> Float[np.ndarray, " D"]:
    """Variances from numbers and choices; the inverse temperature of choices at precision 1 is estimated too."""
    level, shifted = -np.log(noise), []
    for table in moments.tables:
        likely = [sum(np.interp(x + turn, TURNS, own) for x, own in zip(level, table, strict=True)) for turn in TURNS]
        certainty = TURNS[int(np.argmax(likely))]
        shifted.append(np.stack([np.interp(TURNS + certainty, TURNS, own) for own in table]))
    number = moments.number.sum(1, keepdims=True)
    likely = 0.5 * number * (TURNS - np.exp(TURNS) * noise[:, None]) - 0.5 * TURNS**2 + np.sum(shifted, 0)
    return np.exp(-TURNS[likely.argmax(1)])


def _answer(state: State, moments: Moments, size: Float[np.ndarray, " M"]) -> Residuals:
    """Gains, biases in noise at precision 1, mean biases, and precision by all residuals except the gain."""
    people, entries, _ = state.coefficient.shape
    moment, eye = _means(moments), np.arange(entries)
    own, common = _gains(state, moments, size)
    middle = np.maximum(1 + common, LEAST)
    gain = np.clip((1 + common + own) / middle, LEAST_GAIN, 1 / LEAST_GAIN)
    own = middle * gain - 1 - common  # beyond the limits it counts as bias
    rest = state.coefficient.copy()
    rest[:, eye, eye] -= own[:, None] * size
    square = np.einsum("ief,iefg,ieg->ie", rest, moment, rest) / state.level**2
    square = np.maximum(square, 0).mean(1) if entries else np.zeros(people)
    grown = _growth(0.5 * np.log(state.noise), np.log(gain)) * np.log(gain)
    log_precision = 2 * grown - np.log(state.noise + square)
    offset = np.einsum("ief,ief->ie", rest, moment[..., -1])
    return Residuals(log_precision - log_precision.mean(), np.sqrt(square) * np.exp(-grown), gain, offset)


def _means(moments: Moments) -> Float[np.ndarray, "D M F F"]:
    """Mean products of inputs."""
    return moments.gram / np.maximum(moments.number, 1)[..., None, None]


def _gains(
    state: State, moments: Moments, size: Float[np.ndarray, " M"]
) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, " D"]]:
    """The multiple of the shared policy's action, minus 1: in each demonstrator's coefficients and the common ones."""
    moment, eye = _means(moments), np.arange(len(size))
    power = (moment[:, eye, eye, eye] * size**2).sum(1)
    first = moment[:, eye, eye, :-1] * size[:, None] / np.maximum(power, LEAST)[:, None, None]
    own, common = (np.einsum("ief,ief->i", each[..., :-1], first) for each in (state.coefficient, state.common[None]))
    return own, common


def _growth(log_noise: Float[np.ndarray, " D"], log_gain: Float[np.ndarray, " D"]) -> float:
    """The slope of log noise over log gain among demonstrators, shrunk to 1 and clipped to [0, 1]."""
    x, y = log_gain - log_gain.mean(), log_noise - log_noise.mean()
    slope = PRIOR_SLOPE
    for _ in range(OUTER):
        variance = np.sum((y - slope * x) ** 2) / max(len(x) - 2, 1) + LEAST
        weight = 1 / PRIOR_WIDTH**2
        slope = (np.sum(x * y) / variance + weight * PRIOR_SLOPE) / (np.sum(x**2) / variance + weight)
    return float(np.clip(slope, 0, 1))
