"""Demonstrations: the data set type, its files, and what is in them.

- `demonstrations`: the only data set type; `validation`: what is checked when one is made.
- `io`: `load` and `save`; `formats`: files of other programs; `limits`: the memory that a file may take.
- `summary`: what is in a data set, what is odd about it, and what makes a fit of it doubtful.
- `transitions`: the same, flat, to train networks on; `conditioning`: ranges, outliers, double precision.
- `lazy`: rows that stay on disk; `batches`: batches and resamples of them, read ahead.
"""

from irleed.data.batches import Batches
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.formats.base import ReadOptions
from irleed.data.io import load, save
from irleed.data.summary import summarise

__all__ = ["Batches", "Demonstrations", "Episode", "ReadOptions", "load", "save", "summarise"]
