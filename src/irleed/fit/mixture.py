r"""Which episodes are one person's, where nobody knows who acted: a mixture of K people, by expectation maximisation.

People are those of the paper's model, around a policy that is learnt from everyone. With its values $Q(s, a)$ and
features $\phi$, person $k$ acts by $\pi_k \propto \exp((1 + c_k) Q + \phi^\top w_k)$; an episode is all of one
person's, $p(e) = \sum_k \rho_k \prod_t \pi_k(a_t|s_t)$. Priors are $c_k \sim N(0, 1)$ and $w_k \sim N(0, \tau^2)$.

- Networks, discrete actions: $\phi$ are principal components of the observations and of random functions of them, and
  $Q$ is that of networks which have not learnt from the episode.
- Networks, vectors: Gaussian noise of precision $\exp(c_k)$ around the shared policy's action plus $\phi^\top w_k$;
  that policy has learnt from all episodes, shortly.
- In an MDP, $\phi(s, a)$ is the derivative of $Q$ in the reward, so that $w_k$ is a bias of the reward to first order.

Nobody's model judges an episode that it has learnt from, or all would stay where they began. Episodes are divided into
folds. Each person has a model for each fold, learnt from the other folds by the same responsibilities; the E step takes
that of the episode's own fold. The sum over episodes of $\log p(e)$ is a held-out likelihood for that reason: by it
the best start (k-means of what each episode alone says of $c$ and $w$) is chosen, and K compared with fewer people.
$\tau$ is the one by which K people gain most over one person.
"""

import functools
from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table
from scipy.cluster.vq import kmeans2

from irleed._compute import in_double_precision
from irleed._typing import Array, Float, Int, Key
from irleed.algorithms.base import train
from irleed.algorithms.baselines import BehaviourCloning
from irleed.algorithms.tabular.irleed import Irleed
from irleed.algorithms.tabular.planning import AbstractPlanner
from irleed.algorithms.tabular.visitation import tabulate
from irleed.algorithms.training import run
from irleed.data import lazy
from irleed.data.demonstrations import Demonstrations
from irleed.data.transitions import Transitions, are_choices, stack
from irleed.envs.mdp import FiniteMDP
from irleed.envs.step import Actions, Bounds
from irleed.errors import ConfigError
from irleed.fit.crossfit import ROWS, take_rows, to_equal_lengths, train_until_held_out
from irleed.fit.episodes import AbstractEpisodes, Choices, Numbers, Tables
from irleed.fit.validation import check, prepared
from irleed.model.actions import Categorical
from irleed.model.mixed import Vectors
from irleed.model.networks import standardised

WIDTHS, STARTS, ROUNDS = (0.03, 0.1, 0.3, 0.6), 2, 25
FOLDS = 5  # twice as many where people have few episodes
SETTLED = 4  # rounds in which models learn before the first E step
MOST_ROWS = 20_000  # transitions that are looked at, evenly spaced within episodes
MOST_NUMBERS = 256  # of an observation; more are projected at random
FEATURES, UNITS = 16, 64  # principal components of observations, and of random units of them
FEW_FEATURES = 8  # for vectors, beside the shared policy's action
MOST_FEATURES = 64  # in an MDP, of the reward
SHARED = {"steps": 6_000, "batch_size": 128, "anneal_lr": False}
SHARED_VECTORS = {"hidden": (64, 64), "steps": 1_000, "batch_size": 128, "learning_rate": 3e-3}
SURE, MARGIN = 0.9, 1.645


class People(eqx.Module):
    """Episodes grouped into K people, in the order of their first episodes."""

    names: tuple[str, ...] = eqx.field(static=True)
    probability: Float[np.ndarray, "E K"]  # that an episode is a person's
    log_likelihood: dict[str, float] = eqx.field(static=True)  # held out, by the number of people
    warnings: tuple[str, ...] = eqx.field(static=True)

    @property
    def owner(self) -> Int[np.ndarray, " E"]:
        """The most probable person of each episode."""
        return self.probability.argmax(1)

    def table(self) -> Table:
        """How certain it is whose the episodes are."""
        table = Table("person", box=SIMPLE_HEAD, pad_edge=False, title="Episodes by person")
        for heading in ("episodes", "mean probability"):
            table.add_column(heading, justify="right")
        for number, name in enumerate(self.names):
            own = self.probability[self.owner == number].max(1)
            table.add_row(name, str(len(own)), f"{own.mean():.2f}")
        return table

    def summary(self) -> dict[str, object]:
        """As plain values, for JSON."""
        return {
            "names": list(self.names),
            "probability": self.probability.tolist(),
            "log_likelihood": self.log_likelihood,
        }


class _Tried(NamedTuple):
    """People by one width: responsibilities, and each episode's held-out log likelihood; the latter also of one."""

    width: float
    share: Float[np.ndarray, "E K"]
    level: Float[np.ndarray, " E"]
    alone: Float[np.ndarray, " E"]

    @property
    def gain(self) -> float:
        """Over one person of the same width: how far episodes tell people apart."""
        return float((self.level - self.alone).sum())


def group(episodes: AbstractEpisodes, count: int, seed: int) -> People:
    """Group episodes into so many people, by models of these episodes."""
    rng, number = np.random.default_rng(seed), len(episodes.log_likelihood(episodes.nobody()))
    folds = min(number, FOLDS if number >= FOLDS * count else 2 * FOLDS)
    fold = np.resize(np.arange(folds), number)[rng.permutation(number)]
    found = max((_tried(episodes, count, fold, width, rng) for width in WIDTHS), key=lambda each: each.gain)
    levels = {1: found.alone, count: found.level}
    if count > 2:
        levels[count - 1] = _tried(episodes, count - 1, fold, found.width, rng).level
    order = list(dict.fromkeys(found.share.argmax(1).tolist()))  # people who have episodes, by their first ones
    probability = found.share[:, order] / found.share[:, order].sum(1, keepdims=True)
    names = tuple(f"person {place + 1}" for place in range(len(order)))
    likelihood = {str(each): float(levels[each].sum()) for each in sorted(levels)}
    return People(names, probability, likelihood, tuple(_doubts(levels, probability, count)))


def _tried(
    episodes: AbstractEpisodes, count: int, fold: Int[np.ndarray, " E"], width: float, rng: np.random.Generator
) -> _Tried:
    """The best of some starts by the held-out likelihood."""
    number, tried = len(fold), []
    described = np.asarray(episodes.alone(width), float)
    alone = _maximised(episodes, np.ones((number, 1)), fold, width, int(fold.max()) + 1)
    for _ in range(STARTS if 1 < count < number else 1):
        label = kmeans2(described, count, iter=30, minit="++", rng=rng)[1] if count < number else np.arange(number)
        start = 0.9 * np.eye(count)[label] + 0.1 / count
        tried.append(_maximised(episodes, start, fold, width, int(fold.max()) + 1))
    share, level = max(tried, key=lambda each: each[1].sum())
    return _Tried(width, share, level, alone[1])


def _maximised(
    episodes: AbstractEpisodes, start: Float[np.ndarray, "E K"], fold: Int[np.ndarray, " E"], width: float, folds: int
) -> tuple[Float[np.ndarray, "E K"], Float[np.ndarray, " E"]]:
    """Responsibilities after the last round, and the held-out log likelihood of each episode."""
    share, level = _rounds(episodes, start, fold, width, folds)
    return np.asarray(share, float), np.asarray(level, float)


@functools.partial(jax.jit, static_argnames="folds")
def _rounds(episodes, start, fold, width, folds):
    number, count = start.shape
    dtype = episodes.nobody().precision.dtype
    learns = (fold[None, :] != jnp.arange(folds)[:, None]).astype(dtype)
    own = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (folds, count, *leaf.shape)), episodes.nobody())

    def one_round(carry, done):
        own, share = carry

        def of_fold(given):
            own, learns = given
            new = jax.vmap(lambda own, weight: episodes.learnt(own, weight * learns, width))(own, share.T)
            return new, jax.vmap(episodes.log_likelihood)(new)

        own, likelihood = jax.lax.map(of_fold, (own, learns))
        likelihood = likelihood[fold, :, jnp.arange(number)]
        often = jnp.log((jnp.sum(share, 0) + 1) / (number + count))
        level = jax.nn.logsumexp(often[None] + likelihood, 1)
        new = jnp.exp(often[None] + likelihood - level[:, None])
        return (own, jnp.where(done < SETTLED, share, new)), level

    (_, share), level = jax.lax.scan(one_round, (own, jnp.asarray(start, dtype)), jnp.arange(ROUNDS))
    return share, level[-1]


def _doubts(levels: dict[int, Float[np.ndarray, " E"]], probability: Float[np.ndarray, "E K"], count: int) -> list[str]:
    """What is to be said of so many people."""
    said, people = [], probability.shape[1]
    unsure = int((probability.max(1) < SURE).sum())
    fewer = {each: level for each, level in levels.items() if each < count}
    if fewer:
        best = max(fewer, key=lambda each: fewer[each].sum())
        gain = levels[count] - fewer[best]
        error = float(gain.std() * np.sqrt(len(gain)))
        if gain.sum() <= MARGIN * error or unsure > len(probability) / 2:
            of = "1 person" if best == 1 else f"{best} people"
            said.append(
                f"the data do not support {count} people: the held-out log likelihood is {gain.sum():.1f} above that "
                f"of {of}, with a standard error of {error:.1f}"
            )
    if people < count:
        said.append(f"{count} people were asked for and {people} found: no episode is most probably another's")
    if unsure:
        said.append(f"{unsure} of {len(probability)} episodes have no person with a probability of {SURE:g} or more")
    return said


def of_networks(data: Demonstrations, count: int, seed: int = 0) -> People:
    """Group the episodes of data with no model of the dynamics."""
    _check(data, count)
    return group(seen_by_network(data, seed), count, seed)


@in_double_precision
def of_tables(data: Demonstrations, mdp: FiniteMDP, planner: AbstractPlanner, count: int, seed: int = 0) -> People:
    """Group the episodes of demonstrators who plan in an MDP."""
    _check(data, count)
    return group(seen_by_planner(data, mdp, planner), count, seed)


def _check(data: Demonstrations, count: int) -> None:
    if not 1 <= count <= data.episodes:
        expected = f"1 to {data.episodes}, the number of episodes"
        raise ConfigError("--demonstrators", got=count, expected=expected, remedy="choose another number")


def seen_by_network(data: Demonstrations, seed: int) -> AbstractEpisodes:
    """Episodes beside networks that have learnt from other episodes, and features that have learnt nothing.

    What a network has memorised of an episode would hide who acted in it.
    """
    everyone = data.by_owner(np.zeros(data.episodes, int), ("everyone",))
    discrete = are_choices(data)
    algorithm = BehaviourCloning(**SHARED) if discrete else BehaviourCloning.continuous(**SHARED_VECTORS)
    actions = check(everyone, algorithm, None, 1)
    known = prepared(everyone, algorithm, actions, None)
    rows = _rows(known.data)
    seen = Transitions.at(known.data, rows)
    episode = known.part_of[np.asarray(known.data.episode)[rows]]
    values = _unseen(jax.random.key(seed), algorithm, seen, episode, actions)
    obs = np.clip(np.asarray(jax.vmap(standardised, (None, 0))(seen.inputs, seen.obs), float), -5, 5)
    rng = np.random.default_rng(seed)
    turned = rng.normal(size=(obs.shape[1], UNITS)) / np.sqrt(obs.shape[1])
    features = components(obs, FEATURES), components(np.maximum(obs @ turned + rng.normal(size=UNITS), 0), FEATURES)
    if isinstance(actions, Bounds):
        features = (components(features[1], FEW_FEATURES),)
        unit = 2 * (np.asarray(seen.action) - actions.low) / (actions.high - actions.low) - 1
        return _numbers(unit, values, features, episode, data.episodes)
    inputs = np.concatenate([np.ones((len(rows), 1)), *features], 1)
    steps = np.maximum(np.bincount(episode, minlength=data.episodes), 1)
    gram = _summed(inputs[:, :, None] * inputs[:, None, :], episode, data.episodes)
    values, inputs, gram, steps = _single(values - values.mean(1, keepdims=True), inputs, gram, steps)
    return Choices(values, inputs, jnp.asarray(seen.action), jnp.asarray(episode), gram, steps)


def _unseen(
    key: Key, algorithm: BehaviourCloning, seen: Transitions, episode: Int[np.ndarray, " N"], actions: Actions
) -> Float[np.ndarray, "N A"]:
    """Logits, or scaled means of vectors, by networks that have learnt from other episodes."""
    fold_key, train_key = jax.random.split(key)
    count = int(episode.max()) + 1
    # Vectors are about what everyone does on average, which a short training on all episodes hardly memorises.
    folds = 1 if isinstance(actions, Bounds) else max(1, min(FOLDS, len(np.unique(episode))))
    fold = np.resize(np.arange(folds), count)[np.asarray(jax.random.permutation(fold_key, count))][episode]
    fold = np.unique(fold, return_inverse=True)[1]  # an episode may have no rows
    folds = int(fold.max()) + 1
    learnt = [np.flatnonzero((fold != number) | (folds == 1)) for number in range(folds)]
    own = [np.flatnonzero(fold == number) for number in range(folds)]
    given = [stack([take_rows(seen, rows) for rows in to_equal_lengths(each)]) for each in (learnt, own)]
    keys = jax.random.split(train_key, folds)
    if isinstance(actions, Bounds):  # the best step for the likelihood is too early where people disagree
        parameters = _trained(algorithm, keys, given[0], actions)
    else:
        parameters = train_until_held_out(algorithm, keys, given[0], given[1], actions, 1).parameters
    found = np.zeros((len(fold), actions.size if isinstance(actions, Bounds) else actions))
    for number, rows in enumerate(own):
        actor = algorithm.policy(jax.tree.map(lambda leaf, number=number: leaf[number], parameters))
        for part in np.split(rows, range(ROWS, len(rows), ROWS)):
            policy = actor.batch(jnp.asarray(np.asarray(seen.obs)[part], jnp.float32))
            found[part] = policy.logits if isinstance(policy, Categorical) else cast(Vectors, policy).unit_mean()
    return found


@jax.jit(static_argnames="actions")
def _trained(algorithm, keys, data, actions):
    return jax.vmap(lambda key, own: train(algorithm, key, own, actions, 1)[0].parameters)(keys, data)


def _rows(data: Demonstrations) -> Int[np.ndarray, " K"]:
    """Transitions to look at, at least the first of each episode."""
    size = 8 * int(np.prod(data.obs.shape[1:]))
    most = max(1, min(MOST_ROWS, lazy.LARGE // size))
    within = np.arange(data.transitions) - data.start[np.asarray(data.episode)]
    return np.flatnonzero(within % -(-data.transitions // most) == 0)


def components(values: Float[np.ndarray, "N F"], most: int) -> Float[np.ndarray, "N C"]:
    """Principal components with variance 1; those with a thousandth of the largest variance are left out."""
    if values.shape[1] > MOST_NUMBERS:
        turned = np.random.default_rng(0).normal(size=(values.shape[1], MOST_NUMBERS))
        values = values @ turned / np.sqrt(MOST_NUMBERS)
    values = values - values.mean(0)
    variance, directions = np.linalg.eigh(values.T @ values / len(values))
    kept = np.flatnonzero(variance > max(1e-3 * variance.max(), 1e-9))[::-1][:most]
    return values @ directions[:, kept] / np.sqrt(variance[kept])


def _numbers(unit, mean, features, episode, count) -> Numbers:
    """Vectors: what they differ by from the shared policy's, in standard deviations, and what that may depend on."""
    residual = unit - mean
    residual = residual / np.maximum(residual.std(0), 1e-6)
    inputs = np.concatenate(
        [np.ones((len(mean), 1)), (mean - mean.mean(0)) / np.maximum(mean.std(0), 1e-6), *features], 1
    )
    sums = (inputs[:, :, None] * inputs[:, None, :], inputs[:, :, None] * residual[:, None, :], (residual**2).sum(1))
    parts = (_summed(each, episode, count) for each in sums)
    return Numbers(*_single(*parts, np.bincount(episode, minlength=count)))


def _summed(rows: Float[np.ndarray, "N ..."], episode: Int[np.ndarray, " N"], count: int) -> Float[np.ndarray, "E ..."]:
    found = np.zeros((count, *rows.shape[1:]))
    np.add.at(found, episode, rows)
    return found


def _single(*values: np.ndarray) -> tuple[Array, ...]:
    return tuple(jnp.asarray(each, jnp.float32) for each in values)


def seen_by_planner(data: Demonstrations, mdp: FiniteMDP, planner: AbstractPlanner) -> Tables:
    """Episodes beside a planner of the reward that explains all of them, and its derivatives in the reward."""
    everyone = data.by_owner(np.zeros(data.episodes, int), ("everyone",))
    state, _ = run(Irleed.maxent(planner=planner), jax.random.key(0), mdp, tabulate(everyone, mdp))
    here, done = np.asarray(data.obs[np.asarray(data.row)]).astype(int), np.asarray(data.action).astype(int)
    counts = np.zeros((data.episodes, mdp.states, mdp.actions))
    np.add.at(counts, (np.asarray(data.episode), here, done), 1)
    basis = np.eye(mdp.feature_count)
    if mdp.feature_count > MOST_NUMBERS:
        shape = MOST_NUMBERS, mdp.feature_count
        basis = np.random.default_rng(0).normal(size=shape) / np.sqrt(MOST_NUMBERS)
    values, slopes = _derivatives(planner, mdp, state.weights, basis)
    slopes = np.asarray(slopes)
    if slopes.shape[2] > MOST_FEATURES:  # those along which episodes differ
        chance = np.asarray(jax.nn.softmax(values))
        scores = np.tensordot(counts - counts.sum(2, keepdims=True) * chance, slopes, 2)
        slopes = slopes @ np.linalg.svd(scores, full_matrices=False)[2][:MOST_FEATURES].T
    return Tables(jnp.asarray(counts), values, jnp.concatenate([values[..., None], slopes], 2))


@jax.jit
def _derivatives(planner, mdp, weights, basis):
    q = planner.q_values(mdp, mdp.rewards(weights))
    slopes = jax.vmap(lambda direction: planner.q_derivative(mdp, q, mdp.rewards(direction)), out_axes=2)(basis)
    return q - jnp.mean(q, 1, keepdims=True), slopes - jnp.mean(slopes, 1, keepdims=True)
