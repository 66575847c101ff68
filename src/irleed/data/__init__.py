"""Demonstrations: the data set type, its files, and what is in them."""

from irleed.data.batches import Batches
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.formats.base import ReadOptions
from irleed.data.io import load, save
from irleed.data.summary import summarise

__all__ = ["Batches", "Demonstrations", "Episode", "ReadOptions", "load", "save", "summarise"]
