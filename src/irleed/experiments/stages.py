"""Policies with continuous actions at several stages of their training, kept with what they earn."""

import csv
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Float
from irleed.arena import HostArena, drawn
from irleed.iq.gaussian import GaussianPolicy
from irleed.iq.gaussian_ensemble import GaussianEnsemble
from irleed.store import prepare

EPISODES = 5  # by drawn actions, for the table


class Stages:
    """A folder with one file a stage and run, and a table of them all."""

    def __init__(self, folder: Path, arena: HostArena, seed: int) -> None:
        self._folder, self._arena, self._key = folder, arena, jax.random.fold_in(jax.random.key(seed), 1)
        prepare(folder)
        with (folder / "stages.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(("file", "run", "steps", "greedy", "drawn"))

    def keep(self, steps: int, policies: GaussianPolicy, earned: Float[np.ndarray, " P"]) -> None:
        """The policies of all runs after so many steps."""
        by_chance = self._arena.returns(jax.random.fold_in(self._key, steps), policies, drawn, EPISODES).mean(1)
        with (self._folder / "stages.csv").open("a", newline="", encoding="utf-8") as file:
            for number, (greedy, chance) in enumerate(zip(earned, by_chance, strict=True)):
                name = f"{number}_{steps}.safetensors"
                one_of(policies, number).save(self._folder / name)
                csv.writer(file).writerow((name, number, steps, round(float(greedy), 1), round(float(chance), 1)))


def one_of(policies: GaussianPolicy, number: int) -> GaussianEnsemble:
    """One of several policies, as what is saved."""
    return GaussianEnsemble(jax.tree.map(lambda leaf: jnp.asarray(leaf)[number][None], policies))
