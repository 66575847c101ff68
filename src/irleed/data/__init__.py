"""Demonstrations: the data set type, its files, and what is in them.

- `demonstrations`: the only data set type; `validation`: what is checked when one is made.
- `io`: `load` and `save`; `formats`: files of other programs.
- `summary`: what is in a data set, what is odd about it, and what makes a fit of it doubtful.
- `transitions`: the same, flat, to train networks on; batches and bootstrap resamples of data that stay on disk.
- `conditioning`: ranges, outliers, entries of actions that are choices; `lazy`: rows that stay on disk.
"""

from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.formats import ReadOptions
from irleed.data.io import load, save
from irleed.data.summary import summarise
from irleed.data.transitions import Batches

__all__ = ["Batches", "Demonstrations", "Episode", "ReadOptions", "load", "save", "summarise"]
