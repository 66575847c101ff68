"""Real demonstrators with known scores: what a fit of a first part of their data says of the score of the rest.

Each file of demonstrations has a table of scores beside it. Every method is fitted to a first part (every second
episode, or the first half of each game) without rewards or scores; its estimates are compared with the scores of the
rest, beside trivial statistics of the first part. `sweep` runs what a `PeopleConfig` asks for; `write` makes
results.json and the figure of it, `tables` shows them.
"""

from irleed.experiments.people.config import PeopleConfig, check
from irleed.experiments.people.protocol import sweep
from irleed.experiments.people.results import tables, write

__all__ = ["PeopleConfig", "check", "sweep", "tables", "write"]
