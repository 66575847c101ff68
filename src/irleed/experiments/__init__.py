"""The paper's experiments: a package each, with settings (`config`), data, `protocol` (the sweep) and `results`.

- `gridworld`: five demonstrators in a gridworld (Figures 2 and 3).
- `control`: CartPole and LunarLander, offline and online (Table 1).
- `hopper`: Hopper from policies of several stages of training (Figure 4).
- `paper`: the published figures, to stand beside ours. `statistics`: intervals and agreement. `demo`: the gridworld's.
"""
