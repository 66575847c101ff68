"""Fit networks to CartPole demonstrations and write a report: python examples/cartpole.py [STEPS]"""

import dataclasses
import sys

import gymnasium
import numpy as np

import irleed
from irleed.algorithms.iq import OfflineIrleed


def episode(env: gymnasium.Env, seed: int, name: str, mistakes: float) -> irleed.Episode:
    """A demonstrator who pushes towards the side the pole falls to, except for random mistakes."""
    random = np.random.default_rng(seed)
    observations, actions, terminated, truncated = [env.reset(seed=seed)[0]], [], False, False
    while not (terminated or truncated):
        right = observations[-1][2] + 0.3 * observations[-1][3] > 0
        actions.append(int(right != (random.random() < mistakes)))
        observation, _, terminated, truncated, _ = env.step(actions[-1])
        observations.append(observation)
    return irleed.Episode(np.array(observations), np.array(actions), terminated, name, np.ones(len(actions)))


env = gymnasium.make("CartPole-v1")
mistakes = {"careful": 0.02, "hasty": 0.2, "careless": 0.4}
episodes = [episode(env, n, name, rate) for name, rate in mistakes.items() for n in range(5)]
irleed.save(irleed.Demonstrations.from_episodes(episodes), "cartpole.npz")

# Early termination counts as failure here, which must be set by the user. 20,000 steps take a few minutes.
learner = OfflineIrleed.failure()
if len(sys.argv) > 1:
    learner = dataclasses.replace(learner, steps=int(sys.argv[1]))
result = irleed.fit("cartpole.npz", algorithm=learner)
print("the most precise first:", ", ".join(result.expertise.ranking))
print("wrote", result.report("cartpole.html"))
