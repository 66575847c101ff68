"""The report: one self-contained HTML page about runs and experiments.

- `page` puts it together from run directories; `report` writes it.
- `returns`, `expertise`, `differences`, `compare`, `experiment` and `facts` are its sections, `inspection` the page of
  `irleed inspect`.
- `markup` makes HTML, `svg` plots in it; `figures` are plots by matplotlib, for files.
"""

from irleed.report.page import report

__all__ = ["report"]
