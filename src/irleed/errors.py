"""Errors a user can mend. Every message says where, what was found, what was expected and what to do about it."""

from irleed._io.text import escaped, shortened

LONGEST = 2_000  # characters of each part of a message: a path fits


class IrleedError(Exception):
    """Base of all errors that the caller can do something about; others are failures of this program."""


class DataError(IrleedError):
    """A file of demonstrations, or of an MDP, is not what it should be."""


class SpaceError(IrleedError):
    """Demonstrations and environment do not belong together."""


class ConfigError(IrleedError):
    """A setting is out of its range or contradicts another."""


class DivergedError(IrleedError):
    """Training led nowhere: every run ended in what is no number."""


def problem(where: str, *, got: object, expected: object, remedy: str) -> str:
    """One printable line: ``where: got X, expected Y; remedy``, whatever the names and values in it are."""
    shown = (shortened(escaped(str(part)[: LONGEST + 1]), LONGEST) for part in (where, got, expected, remedy))
    return "{}: got {}, expected {}; {}".format(*shown)
