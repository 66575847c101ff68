"""The front door: demonstrations in; policy, expertise and reward out."""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

from irleed._compute import in_double_precision
from irleed._typing import Array
from irleed.algorithms.tabular.irleed import Irleed
from irleed.algorithms.tabular.paper_protocol import Published
from irleed.algorithms.tabular.planning import Soft, optimal_q_values
from irleed.algorithms.tabular.posterior import Judgement
from irleed.algorithms.tabular.visitation import Statistics, expected_return, tabulate
from irleed.algorithms.training import Progress, run
from irleed.data.demonstrations import Demonstrations
from irleed.data.summary import few
from irleed.envs.mdp import FiniteMDP
from irleed.fit.defaults import tabular_algorithm
from irleed.fit.result import Fit, Origin
from irleed.fit.validation import at_chance
from irleed.model.expertise import INTERVAL, Expertise
from irleed.policies.tabular import TabularPolicy, boltzmann_probabilities
from irleed.rollout.evaluation import ReturnEstimate

# How sharp the policy is that users get, in standard deviations of the advantages.
SHARPNESS = 0.5
POSTERIOR = "their intervals, which are as wide, rest mostly on the prior"


@in_double_precision
def fit(
    demonstrations: Demonstrations,
    mdp: FiniteMDP,
    *,
    algorithm: Irleed | Published | None = None,
    endless: bool = False,
    sharpness: float = SHARPNESS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Fit:
    """Learn from demonstrations in a finite MDP.

    **Arguments:**

    - `algorithm`: IRLEED with the planner `Soft` by default; `Irleed.maxent()` is plain maximum-entropy IRL,
      `Published()` the paper's protocol, and `Published(inference=SoftQLearning())` needs only samples of the dynamics.
    - `endless`: plan as if terminal states did not end the episode, as the released gridworld program does.
    - `sharpness`: of the policy returned, see `irleed.policies.tabular.boltzmann_probabilities`.
    - `progress`: called as the fit proceeds.
    """
    began = time.perf_counter()
    algorithm = tabular_algorithm(mdp, Soft()) if algorithm is None else algorithm
    statistics = tabulate(demonstrations, mdp)
    plan = mdp.without_terminals() if endless else mdp
    key = jax.random.key(seed)
    # The published protocol plays episodes, which do end, whatever its own planner believes.
    world = mdp if isinstance(algorithm, Published) else plan
    state, history = run(algorithm, key, world, statistics, progress=progress)
    judgement = _judge(algorithm, key, state, world, statistics)
    policy = TabularPolicy(probabilities=np.asarray(_policy(plan, state.weights, sharpness)))
    expertise = _expertise(demonstrations.names, statistics, state.weights, judgement)
    return Fit(
        policy=policy,
        expertise=expertise,
        weights=np.asarray(state.weights),
        bias=np.asarray(judgement.bias),
        origin=Origin.of(demonstrations, algorithm, endless=endless, seed=seed),
        returns=_earned(mdp, policy, demonstrations),
        history=tuple(history),
        steps=int(history[-1]["step"]) if history else 0,
        converged=bool(algorithm.converged(state)),
        warnings=(*few(demonstrations, POSTERIOR), *at_chance(demonstrations, expertise, mdp.actions)),
        seconds=time.perf_counter() - began,
    )


@jax.jit
def _judge(algorithm, key, state, mdp, statistics):
    return algorithm.judge(key, state, mdp, statistics)


@jax.jit
def _policy(mdp, weights, sharpness):
    return boltzmann_probabilities(optimal_q_values(mdp, mdp.rewards(weights)), sharpness)


def _earned(mdp: FiniteMDP, policy: TabularPolicy, data: Demonstrations) -> tuple[ReturnEstimate, ...]:
    """By the MDP's true reward, if it has one: what the policy earns, exactly, and beside it what everyone did.

    Over as many steps as the longest demonstration has: nobody was given more. All are measured by the same reward,
    whatever the data say of theirs, which may be paid at other moments.
    """
    if mdp.reward is None:
        return ()
    table, reward, state = np.asarray(policy.probabilities), np.asarray(mdp.reward), np.asarray(data.obs).astype(int)
    likeliest = np.eye(mdp.actions)[table.argmax(-1)]
    exact = np.asarray(_expected_returns(mdp, np.stack([likeliest, table]), int(data.length.max()))).tolist()
    names = ("policy, greedy actions", "policy, sampled actions")
    rows = [ReturnEstimate(name, 0, value, value, value) for name, value in zip(names, exact, strict=True)]
    row, action = np.asarray(data.row), np.asarray(data.action).astype(int)
    paid = reward[state[row + 1]] if reward.ndim == 1 else reward[state[row], action]
    total = np.bincount(np.asarray(data.episode), paid, data.episodes)
    return (*rows, *(ReturnEstimate.of(name, total[data.owner == number]) for number, name in enumerate(data.names)))


@functools.partial(jax.jit, static_argnames="horizon")
def _expected_returns(mdp, policies, horizon):
    return jax.vmap(lambda policy: expected_return(mdp, policy, horizon))(policies)


def _expertise(names: tuple[str, ...], statistics: Statistics, weights: Array, judgement: Judgement) -> Expertise:
    tail = (1 - INTERVAL) / 2
    draws = np.asarray(judgement.log_precision_draws)
    low, middle, high = np.exp(np.quantile(draws, [tail, 0.5, 1 - tail], axis=0))
    if len(draws) == 1:  # an estimate without intervals
        low, high = np.full_like(low, np.nan), np.full_like(high, np.nan)
    transitions = np.asarray(statistics.action_counts).sum((1, 2))
    scale = float(jnp.linalg.norm(weights)) or 1.0
    bias = np.asarray(judgement.bias_norm) / scale
    margin = 1.645 * np.asarray(judgement.bias_norm_deviation) / scale
    return Expertise(
        names=names,
        transitions=transitions,
        precision=middle,
        precision_low=low,
        precision_high=high,
        bias=bias,
        bias_low=np.maximum(bias - margin, 0.0),
        bias_high=bias + margin,
        log_likelihood=np.asarray(judgement.log_likelihood) / transitions,
        weight=np.asarray(judgement.information),
    )
