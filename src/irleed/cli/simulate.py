"""The command `irleed simulate`: demonstrators of known precision and accuracy, in a finite MDP or from a critic."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from irleed._io.files import write_json
from irleed._io.text import say
from irleed.data import Demonstrations, save
from irleed.errors import ConfigError
from irleed.fit.door import PLANNERS, load_world
from irleed.fit.options import DISCOUNT, PlannerName
from irleed.fit.validation import refuse_ignored
from irleed.rollout import make_backend
from irleed.runs.directory import prepare
from irleed.simulation.critics import CriticDemonstrator, check_fit, draw_demonstrators, load_critic, to_demonstrations
from irleed.simulation.mdp import simulate

FOR_MDPS = ("mdp", "discount", "horizon", "accuracy", "planner", "endless")
FOR_CRITICS = ("precision", "bias_scale", "names", "workers")


@dataclass(frozen=True)
class SimulateCommand:
    """Make demonstrations from demonstrators of known precision and accuracy.

    In a finite MDP they plan; with --critic and --env they act by a trained critic, see `irleed expert`.
    """

    out: Path
    """The file of demonstrations to write (.npz); the truth goes beside it as .truth.json."""
    mdp: Path | None = None
    """The finite MDP that they act in: a file (.npz)."""
    env: str | None = None
    """Or a Gymnasium id such as FrozenLake-v1; with a critic, any that it suits."""
    discount: float = DISCOUNT
    """Discount of the MDP from --env; a file has its own."""
    demonstrators: int = 5
    """How many."""
    demonstrations: int = 40
    """Recorded episodes of each demonstrator."""
    max_precision: float = 5.0
    """Precisions are uniform between 0 and this; with a critic, inf means the largest value always."""
    horizon: int = 100
    """In an MDP: the longest episode."""
    accuracy: float = 4.0
    """In an MDP: biases are Gaussian with this inverse standard deviation; inf: none."""
    planner: PlannerName = "soft"
    """In an MDP: how demonstrators plan."""
    endless: bool = False
    """In an MDP: plan as if terminal states did not end the episode."""
    critic: str | None = None
    """A critic that comes with the package (cartpole, lunarlander, lunarlander_iq), or a file."""
    precision: tuple[float, ...] = ()
    """With a critic: everyone's precision, in place of --demonstrators and --max-precision."""
    bias_scale: tuple[float, ...] = (0.0,)
    """With a critic: biases are fresh networks times this; one number for all, or one each."""
    names: tuple[str, ...] = ()
    """With a critic: what they are called."""
    workers: int = 0
    """With a critic: processes for the environment's lanes; 0: this one."""
    seed: int = 0
    """The random seed."""

    def run(self, console: Console) -> None:
        """Simulate and save."""
        found, truth = self._in_mdp() if self.critic is None else self._by_critic(self.critic)
        prepare(self.out.parent)
        save(found, self.out)
        write_json(self.out.with_suffix(".truth.json"), truth)
        say(console, f"wrote {self.out}: {found.transitions} transitions in {found.episodes} episodes")

    def _in_mdp(self) -> tuple[Demonstrations, dict[str, object]]:
        refuse_ignored((self,), FOR_CRITICS, "in an MDP")
        mdp, _ = load_world(self.mdp, self.env, self.discount)
        settings = ("demonstrators", "demonstrations", "horizon", "max_precision", "accuracy", "endless")
        given = {name: getattr(self, name) for name in settings}
        found, truth = simulate(self.seed, mdp, planner=PLANNERS[self.planner], **given)
        known = {name: getattr(truth, name) for name in ("precision", "bias", "weights")}
        return found, {name: None if values is None else values.tolist() for name, values in known.items()}

    def _by_critic(self, name: str) -> tuple[Demonstrations, dict[str, object]]:
        refuse_ignored((self,), FOR_MDPS, "with a critic")
        if self.precision:
            refuse_ignored((self,), ("demonstrators", "max_precision"), "beside --precision")
        people = len(self.precision) or self.demonstrators
        self._check(people)
        if self.env is None:
            raise ConfigError("--critic", got="no --env", expected="where it plays", remedy="give --env ID")
        critic, backend = load_critic(name), make_backend(self.env, self.workers)
        try:
            check_fit(critic, name, backend.observation_shape, backend.actions, self.env)
            draw_key, play_key = jax.random.split(jax.random.key(self.seed))
            drawn = draw_demonstrators(draw_key, critic, self.max_precision, 0.0, people)
            scale = np.broadcast_to(np.asarray(self.bias_scale, np.float32), people)
            precision = jnp.asarray(self.precision, jnp.float32) if self.precision else drawn.precision
            drawn = eqx.tree_at(lambda d: (d.precision, d.bias_scale), drawn, (precision, jnp.asarray(scale)))
            played = backend.play(play_key, drawn, CriticDemonstrator.act, self.demonstrations)
        finally:
            backend.close()
        known = [None if np.isinf(p) else float(p) for p in np.asarray(precision)]
        truth = {"precision": known, "bias_scale": scale.tolist(), "returns": played.total.mean(1).tolist()}
        found = to_demonstrations(played)
        return dataclasses.replace(found, names=self.names or found.names), truth

    def _check(self, people: int) -> None:
        """Refuse settings of so many demonstrators that cannot be, before anyone plays."""
        for setting, least in (("demonstrators", 1), ("demonstrations", 1), ("max_precision", 0), ("workers", 0)):
            if not getattr(self, setting) >= least:
                _refuse(setting, getattr(self, setting), f"{least} or more")
        for value in self.precision:
            if not value >= 0:
                _refuse("precision", value, "0 or more")
        for setting, allowed in (("bias_scale", (1, people)), ("names", (0, people))):
            if len(getattr(self, setting)) not in allowed:
                _refuse(setting, f"{len(getattr(self, setting))} of them", f"one for each of the {people}")
        if not np.isfinite(self.bias_scale).all():
            _refuse("bias_scale", self.bias_scale, "finite numbers")
        if len(set(self.names)) < len(self.names):
            _refuse("names", ", ".join(self.names), "each once")


def _refuse(setting: str, got: object, expected: str) -> NoReturn:
    flag = f"--{setting.replace('_', '-')}"
    raise ConfigError(flag, got=got, expected=expected, remedy="choose another")
