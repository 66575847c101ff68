"""Fit three demonstrators in a gridworld with known dynamics: python examples/gridworld.py"""

import numpy as np

import irleed

# A 4 x 4 grid with the goal in the last cell, and three simulated demonstrators of known precision. With `endless`,
# planners ignore that the goal ends the episode: see docs/getting-started.md.
grid = irleed.gridworld(4, 4, goals={15: 1.0}, slip=0.1)
data, truth = irleed.simulate(1, grid.mdp, demonstrators=3, demonstrations=20, max_precision=9.0, endless=True)
print("true precisions:", np.round(truth.precision, 1))

result = irleed.fit(data, grid, endless=True)
for row in result.expertise.to_dict():
    print(f"{row['name']}: {row['precision']:.2f} [{row['precision_low']:.2f}, {row['precision_high']:.2f}]")

actions, _ = result.policy.predict(np.arange(16), deterministic=True)
arrows = np.array(list("→←↓↑"))[actions]
arrows[15] = "●"
print("\n".join(" ".join(row) for row in arrows.reshape(4, 4)))

result.save("gridworld-run")  # for irleed report, irleed curate and irleed export
