"""Settings of algorithms by name: which there are, what they mean, and an algorithm with some of them changed.

A name is that of a field. Fields of the learner inside an online algorithm have their own names; those of other parts,
such as a planner, the part's name before a dot. What a setting means is said once, in the class's docstring.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin

import numpy as np

from irleed.algorithms import AbstractAgent, BehaviourCloning, Ileed, OfflineIrleed, OnlineIrleed, SacIrleed, Sqil
from irleed.algorithms.experts import SoftQExpert
from irleed.errors import ConfigError

HOISTED = "learner"  # its fields are settings like the algorithm's own
# Where a meaning is looked up that a class does not give itself: one name means one thing everywhere.
DESCRIBED = (OfflineIrleed, OnlineIrleed, SacIrleed, AbstractAgent, SoftQExpert, Ileed, BehaviourCloning, Sqil)
BULLET = re.compile(r"^- (?=`)(.*?)(?=^- |\Z)", re.MULTILINE | re.DOTALL)
TERM = re.compile(r"(?:^|[.;] )((?:`[\w.]+`(?:, )?)+): (.*?)(?=[.;] (?:`[\w.]+`(?:, )?)+: |\Z)", re.DOTALL)

T = TypeVar("T")


@dataclass(frozen=True)
class Setting:
    """A setting of an algorithm, its present value and its meaning."""

    name: str
    path: tuple[str, ...]  # of fields
    kind: Any  # its annotation
    value: Any
    meaning: str


def settings_of(algorithm: Any) -> tuple[Setting, ...]:
    """The settings of an algorithm."""
    meanings = {name: text for kind in reversed(DESCRIBED) for name, text in _meanings(kind).items()}
    return tuple(_settings(algorithm, (), "", meanings))


def _settings(part: Any, path: tuple[str, ...], prefix: str, meanings: Mapping[str, str]) -> Iterator[Setting]:
    fields = dataclasses.fields(part)
    known = {
        **meanings,
        **{name: text for kind in reversed(type(part).__mro__) for name, text in _meanings(kind).items()},
    }
    for field in fields:
        value, where = getattr(part, field.name), (*path, field.name)
        if field.name == HOISTED:
            taken = {each.name for each in fields}
            yield from (each for each in _settings(value, where, prefix, meanings) if each.name not in taken)
        elif dataclasses.is_dataclass(value):
            yield from _settings(value, where, f"{prefix}{field.name}.", {})
        else:
            yield Setting(prefix + field.name, where, field.type, value, known.get(field.name, ""))


def _meanings(kind: type) -> dict[str, str]:
    """What the bullets of a class's docstring say of each name."""
    found = {}
    for bullet in BULLET.findall(inspect.getdoc(kind) or ""):
        for names, text in TERM.findall(" ".join(bullet.split())):
            found |= dict.fromkeys(re.findall(r"`([\w.]+)`", names), text.rstrip(". "))
    return found


def with_settings(algorithm: T, settings: Mapping[str, Any]) -> T:
    """The algorithm with other values; text is read as the setting's type, and unknown names are refused."""
    known = {each.name: each for each in settings_of(algorithm)}
    for name, given in settings.items():
        if name not in known:
            expected = f"one of {', '.join(known)}"
            remedy = f"choose a setting of {type(algorithm).__name__}, see `irleed fit --help-settings`"
            raise ConfigError(f"--set {name}", got="an unknown setting", expected=expected, remedy=remedy)
        algorithm = _replaced(algorithm, known[name].path, _value(known[name], given))
    return algorithm


def _replaced(part: Any, path: tuple[str, ...], value: Any) -> Any:
    inner = value if len(path) == 1 else _replaced(getattr(part, path[0]), path[1:], value)
    return dataclasses.replace(part, **{path[0]: inner})


def _value(setting: Setting, given: Any) -> Any:
    """A value of the setting's type, from one or from text."""
    for read, _ in _readers(setting.kind):
        try:
            return read(given)
        except (ValueError, TypeError):
            continue
    expected = " or ".join(expected for _, expected in _readers(setting.kind))
    raise ConfigError(f"--set {setting.name}", got=repr(given), expected=expected, remedy="choose another value")


def _readers(kind: Any) -> list[tuple[Any, str]]:
    """How a value of a type is read, and what it is called; several where it may be one of several types."""
    if get_origin(kind) is Literal:
        return [(_one_of(get_args(kind)), " or ".join(map(repr, get_args(kind))))]
    options = get_args(kind) if get_origin(kind) is not tuple else ()
    found = [(_none, "none")] if NoneType in options else []
    if kind is bool:
        return [(_flag, "true or false")]
    if kind is int:
        return [(_whole, "a whole number")]
    if get_origin(kind) is tuple or any(get_origin(each) is tuple for each in options):
        return [*found, (_wholes, "whole numbers such as 64,64")]
    return [*found, (_number, "a number")]


def _one_of(choices: tuple[Any, ...]) -> Any:
    def read(given: Any) -> Any:
        if given not in choices:
            raise ValueError
        return given

    return read


def _none(given: Any) -> None:
    if given is not None and not (isinstance(given, str) and given.lower() == "none"):
        raise ValueError


def _flag(given: Any) -> bool:
    known = {"true": True, "false": False, True: True, False: False}
    if not isinstance(given, str | bool) or (key := given.lower() if isinstance(given, str) else given) not in known:
        raise ValueError
    return known[key]


def _whole(given: Any) -> int:
    if isinstance(given, bool) or (not isinstance(given, str) and given != int(given)):
        raise ValueError
    return int(given)


def _wholes(given: Any) -> tuple[int, ...]:
    return tuple(_whole(each) for each in (given.split(",") if isinstance(given, str) else given))


def _number(given: Any) -> Any:
    """A number; arrays stay, as sweeps have them."""
    if isinstance(given, bool):
        raise ValueError
    return float(given) if isinstance(given, str) or np.ndim(given) == 0 else given
