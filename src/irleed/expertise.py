"""Expertise: the answer about the demonstrators."""

import equinox as eqx
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from irleed._typing import Array, Float, Scalar

INTERVAL = 0.9


class Expertise(eqx.Module):
    """Who is how good, and in what way: D demonstrators, with 90 % credible intervals.

    - `precision`: how consistently they choose, in the gauge where the mean of log precision is 0.
    - `bias`: how far their idea of the reward is off: the size of their bias relative to that of the shared weights;
      for networks, of the shared values. NaN where an algorithm knows no bias.
    - `log_likelihood`: mean log probability of their actions under their own fitted policy.
    - `weight`: their share in what is known about the shared reward; sums to one.
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

    @property
    def ranking(self) -> tuple[str, ...]:
        """Names, the most precise first."""
        return tuple(self.names[i] for i in np.argsort(-np.asarray(self.precision), kind="stable"))

    def to_dict(self) -> list[dict[str, object]]:
        """One plain dictionary a demonstrator, for JSON."""
        columns = [field for field in self.__dataclass_fields__ if field != "names"]
        return [
            {"name": name, **{column: _plain(getattr(self, column)[i]) for column in columns}}
            for i, name in enumerate(self.names)
        ]

    def table(self, limit: int = 30) -> Table:
        """A readable table, the most precise first."""
        caption = "intervals hold 90 %; precision 1 is the average"
        table = Table(title="Expertise", caption=caption, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for heading in ("demonstrator", "n", "precision", "bias", "loglik", "weight"):
            table.add_column(heading, justify="left" if heading == "demonstrator" else "right", no_wrap=True)
        order = np.argsort(-np.asarray(self.precision), kind="stable")
        for i in order[:limit]:
            table.add_row(
                escape(self.names[i]),
                f"{self.transitions[i]:.0f}",
                with_interval(self.precision[i], self.precision_low[i], self.precision_high[i]),
                with_interval(self.bias[i], self.bias_low[i], self.bias_high[i]),
                f"{self.log_likelihood[i]:.3f}",
                f"{self.weight[i]:.2f}",
            )
        if len(order) > limit:
            table.add_row(f"and {len(order) - limit} more")
        return table


def with_interval(value: Scalar, low: Scalar, high: Scalar) -> str:
    """``1.75 [1.39, 2.19]``, the value alone where there is no interval, nothing where there is no value."""
    if np.isnan(value):
        return ""
    return f"{value:.2f}" if np.isnan(low) else escape(f"{value:.2f} [{low:.2f}, {high:.2f}]")


def _plain(value: float) -> float | None:
    """A number for JSON, which knows neither NaN nor infinity."""
    return float(value) if np.isfinite(value) else None
