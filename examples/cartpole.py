"""Networks that learn from demonstrations alone, and a page about it: python examples/cartpole.py [STEPS]"""

import dataclasses
import sys

import gymnasium
import numpy as np

import irleed
from irleed.algorithms.iq.soft_q import SoftQ


def episode(env: gymnasium.Env, seed: int, name: str, mistakes: float) -> irleed.Episode:
    """Someone who pushes where the pole falls, but for mistakes."""
    chance = np.random.default_rng(seed)
    seen, actions, over, end = [env.reset(seed=seed)[0]], [], False, False
    while not (over or end):
        right = seen[-1][2] + 0.3 * seen[-1][3] > 0
        actions.append(int(right != (chance.random() < mistakes)))
        obs, _, over, end, _ = env.step(actions[-1])
        seen.append(obs)
    return irleed.Episode(np.array(seen), np.array(actions), over, name, np.ones(len(actions)))


env = gymnasium.make("CartPole-v1")
people = {"careful": 0.02, "hasty": 0.2, "careless": 0.4}
shown = [episode(env, n, name, rate) for name, rate in people.items() for n in range(5)]
irleed.save(irleed.Demonstrations.from_episodes(shown), "cartpole.npz")

# That the pole falls is a failure, which networks have to be told. 20,000 steps take a few minutes.
learner = SoftQ.survival()
if len(sys.argv) > 1:
    learner = dataclasses.replace(learner, steps=int(sys.argv[1]))
result = irleed.fit("cartpole.npz", algorithm=learner)
print("the most precise first:", ", ".join(result.expertise.ranking))
print("wrote", result.report("cartpole.html"))
