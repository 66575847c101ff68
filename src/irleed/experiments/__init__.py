"""The paper's experiments and one with people: a package each, with `config`, `data`, `protocol` and `results`.

- `gridworld`: five demonstrators in a gridworld (Figures 2 and 3).
- `control`: CartPole and LunarLander, offline and online (Table 1).
- `hopper`: Hopper from policies of several stages of training (Figure 4).
- `people`: real demonstrators with known scores, whose files the user has.
- `paper`: the published figures, to stand beside ours. `statistics`: intervals and agreement. `demo`: the gridworld's.
"""
