"""The report: one self-contained HTML page about runs and experiments.

- `page` assembles it from run directories; `report` writes it. `returns`, `expertise`, `differences` and `comparison`
  are its sections.
- `inspection` is the page of `irleed inspect`.
- `markup` has HTML elements, `svg` plots in them; `figures` are plots by matplotlib, for files.
"""

from irleed.report.page import report

__all__ = ["report"]
