"""Expertise: the estimates for every demonstrator."""

import dataclasses
import html
from typing import Any

import equinox as eqx
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from irleed._io import text as _text
from irleed._typing import Array, Bool, Float, Int, Scalar
from irleed.data.summary import FEW
from irleed.errors import library

INTERVAL = 0.9
HEADINGS = ("demonstrator", "n", "skill", "precision", "bias", "loglik", "weight")
CAPTION = "intervals hold 90 %; precision 1 is the average"
CAPTION_OF_SKILL = "; skill 1 is what the others would do, 0 random"
UNRANKED = "(too few)"


class Expertise(eqx.Module):
    """Skill, precision and bias of D demonstrators, with 90 % credible intervals.

    - `precision`: how consistently they choose, in the gauge where the mean of log precision is 0.
    - `bias`: how far their reward deviates from the shared one: the norm of their bias relative to that of the shared
      weights; for networks, of the shared values. NaN for algorithms without biases.
    - `log_likelihood`: mean log probability of their actions under their own fitted policy.
    - `weight`: their share of the information about the shared reward, or of the shared policy; sums to one.
    - `skill`: the correlation of their actions with what a policy learnt from the others alone would do, beyond how
      often they take each action anyway; 1 at most, 0 if actions do not depend on the state, negative for the opposite.
      With vectors, how much closer their actions are to that policy's than random ones. None where it is not estimated.
    - `gain`, `offset`: with vectors, the size of actions relative to the shared policy's, and their mean deviation from
      them in the action's own units; NaN for entries that are choices. None where they are not estimated.

    For a demonstrator with a handful of transitions, all resamples are the same and an ensemble's intervals mean
    nothing: `without_few` removes them, and demonstrators with fewer than 10 transitions and no interval are not
    ranked. In a finite MDP, posterior intervals are wide for few transitions, and are kept.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    transitions: Float[Array, " D"]
    precision: Float[Array, " D"]
    precision_low: Float[Array, " D"]
    precision_high: Float[Array, " D"]
    bias: Float[Array, " D"]
    bias_low: Float[Array, " D"]
    bias_high: Float[Array, " D"]
    log_likelihood: Float[Array, " D"]
    weight: Float[Array, " D"]
    skill: Float[Array, " D"] | None = None
    skill_low: Float[Array, " D"] | None = None
    skill_high: Float[Array, " D"] | None = None
    gain: Float[Array, " D"] | None = None
    offset: Float[Array, "D A"] | None = None

    @property
    def ranking(self) -> tuple[str, ...]:
        """Names by skill or, where that is not estimated, by precision; only of demonstrators that are `ranked`."""
        return tuple(self.names[i] for i in self._order if self.ranked[i])

    @property
    def ranked(self) -> Bool[np.ndarray, " D"]:
        """Whether each demonstrator is ranked: at least 10 transitions, or a posterior interval."""
        return (np.asarray(self.transitions) >= FEW) | ~np.isnan(np.asarray(self.precision_low))

    @property
    def skill_and_ends(self) -> tuple[Float[Array, " D"], Float[Array, " D"], Float[Array, " D"]] | None:
        """Skill and the ends of its intervals, or None where it is not estimated."""
        if self.skill is None or self.skill_low is None or self.skill_high is None:
            return None
        return self.skill, self.skill_low, self.skill_high

    def without_few(self) -> "Expertise":
        """A copy without intervals for demonstrators with fewer than 10 transitions."""
        few = np.asarray(self.transitions) < FEW
        names = ("precision_low", "precision_high", "bias_low", "bias_high", "skill_low", "skill_high")
        ends = [name for name in names if getattr(self, name) is not None]
        return dataclasses.replace(self, **{end: np.where(few, np.nan, getattr(self, end)) for end in ends})

    def to_dict(self) -> list[dict[str, object]]:
        """A dictionary for each demonstrator, for JSON."""
        columns = self._columns
        return [
            {
                "name": name,
                **{column: _plain(getattr(self, column)[i]) for column in columns},
                "ranked": bool(self.ranked[i]),
            }
            for i, name in enumerate(self.names)
        ]

    def table(self, limit: int = 30) -> Table:
        """A readable table in the order of the ranking.

        To fit into 80 columns beside skill, bias has no interval there, and log likelihood is left out.
        """
        narrow = self.skill is not None
        table = Table(
            title="Expertise",
            caption=self._caption,
            box=SIMPLE_HEAD,
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )
        for heading in self._headings:
            if heading == "loglik" and narrow:
                continue
            table.add_column(heading, justify="left" if heading == HEADINGS[0] else "right", no_wrap=True)
        for row in self._rows(limit, narrow=narrow):
            table.add_row(*map(Text, row))
        return table

    def to_frame(self) -> Any:
        """A pandas DataFrame, a row for each demonstrator, by name, in the order of the ranking."""
        pandas = library("pandas", "formats")
        columns = {name: list(np.asarray(getattr(self, name))) for name in self._columns}
        frame = pandas.DataFrame(columns, index=pandas.Index(self.names, name="demonstrator"))
        return frame.iloc[self._order]

    def _repr_html_(self, limit: int = 30) -> str:
        """The same table for notebooks."""
        rows = [("th", self._headings), *(("td", row) for row in self._rows(limit))]
        lines = ["".join(f"<{tag}>{html.escape(_text.visible(cell))}</{tag}>" for cell in row) for tag, row in rows]
        return f"<table><caption>{self._caption}</caption>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"

    @property
    def _columns(self) -> list[str]:
        """The names of the fields that are estimated."""
        return [name for name in self.__dataclass_fields__ if name != "names" and getattr(self, name) is not None]

    @property
    def _order(self) -> Int[np.ndarray, " D"]:
        by = self.precision if self.skill is None else self.skill
        return np.lexsort((-np.asarray(by), ~self.ranked))  # those who are not ranked come last

    @property
    def _caption(self) -> str:
        return CAPTION if self.skill is None else CAPTION + CAPTION_OF_SKILL

    @property
    def _headings(self) -> tuple[str, ...]:
        return tuple(each for each in HEADINGS if each != "skill" or self.skill is not None)

    def _skill(self, i: int) -> tuple[str, ...]:
        """The cell of skill, if it is estimated."""
        found = self.skill_and_ends
        return () if found is None else (_interval(*(each[i] for each in found)),)

    def _rows(self, limit: int, *, narrow: bool = False) -> list[tuple[str, ...]]:
        """The cells of a table in the order of the ranking; beyond `limit` rows, the number of the others."""
        ends = [np.full(len(self.names), np.nan)] * 2 if narrow else [self.bias_low, self.bias_high]
        rows = [
            (
                _text.name(self.names[i]),
                f"{self.transitions[i]:.0f}" + ("" if self.ranked[i] else f" {UNRANKED}"),
                *self._skill(int(i)),
                _interval(self.precision[i], self.precision_low[i], self.precision_high[i]),
                _interval(self.bias[i], *(end[i] for end in ends)),
                *(() if narrow else (f"{self.log_likelihood[i]:.3f}",)),
                f"{self.weight[i]:.2f}",
            )
            for i in self._order[:limit]
        ]
        left = len(self.names) - limit
        return rows + [(f"and {left} more",)] if left > 0 else rows


def with_interval(value: Scalar, low: Scalar, high: Scalar) -> str:
    """``1.75 [1.39, 2.19]``, the value alone where there is no interval, nothing where there is no value."""
    return escape(_interval(value, low, high))


def _interval(value: Scalar, low: Scalar, high: Scalar) -> str:
    if np.isnan(value):
        return ""
    return f"{value:.2f}" if np.isnan(low) else f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _plain(value: Any) -> Any:
    """A number or a list of numbers for JSON, with None for NaN and infinity."""
    if np.ndim(value):
        return [_plain(each) for each in value]
    return float(value) if np.isfinite(value) else None
