"""Weight demonstrations for other training code: python examples/curate.py"""

import numpy as np

import irleed

# Any data would do; here, three simulated demonstrators of uneven skill in a gridworld.
grid = irleed.gridworld(4, 4, goals={15: 1.0}, slip=0.1)
data, _ = irleed.simulate(1, grid.mdp, demonstrators=3, demonstrations=20, max_precision=9.0, endless=True)

fit = irleed.fit(data, grid, endless=True)
found = irleed.curate(data, fit, share=0.5)  # the better half of the transitions, and a weight for every episode

# The input of a training loop: observations, actions, and a weight for each transition, 1 on average.
observations, actions = np.asarray(data.observation), np.asarray(data.action)
weights = found.weight[np.asarray(data.episode)]
print(f"{len(actions)} transitions, weights {weights.min():.2f} to {weights.max():.2f}")

# For example, behaviour cloning with a table: the weighted frequency of each action in each state.
counts = np.zeros((16, 4))
np.add.at(counts, (observations, actions), weights)
print("greedy action in the first state:", "right left down up".split()[counts[0].argmax()])
print(f"or drop the rest: {found.keep.sum()} of {len(found.keep)} episodes are worth keeping")
