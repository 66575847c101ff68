"""Errors that a user can fix. Each says where, what was found, what was expected and what to do about it."""

import importlib
from typing import Any

from irleed._io.text import escaped, one_line, shortened

LONGEST = 2_000  # characters of each part of a message: a path fits


class IrleedError(Exception):
    """Base class of errors that the caller can fix; other exceptions are bugs of this program.

    The message is one printable line, ``where: got X, expected Y; remedy``, whatever names and values it mentions.
    """

    def __init__(self, where: str, got: object, expected: object, remedy: str) -> None:
        """Keep the four parts as attributes; `got` and `expected` as they were given."""
        super().__init__(where, got, expected, remedy)
        self.where = where
        self.got = got
        self.expected = expected
        self.remedy = remedy

    def __str__(self) -> str:
        """The message, in which control characters are escaped and long parts shortened."""
        parts = (self.where, self.got, self.expected, self.remedy)
        shown = (shortened(escaped(str(part)[: LONGEST + 1]), LONGEST) for part in parts)
        return "{}: got {}, expected {}; {}".format(*shown)


class DataError(IrleedError):
    """A file of demonstrations, of an MDP or of a run is invalid."""


class SpaceError(IrleedError):
    """Demonstrations, policy and environment do not match."""


class ConfigError(IrleedError):
    """A setting is out of range or contradicts another."""


class DivergedError(IrleedError):
    """Training diverged: every run ended with non-finite parameters."""


def library(name: str, extra: str, where: str | None = None) -> Any:
    """An optional library, or a `ConfigError` that names the extra to install; `where` is what needs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        reason = "" if isinstance(error, ModuleNotFoundError) and error.name == name else f" ({one_line(error)})"
        got, expected = f"{name} not installed{reason}" if where else f"not installed{reason}", "the library"
        raise ConfigError(where or name, got, expected, f"pip install 'irleed[{extra}]'") from error
