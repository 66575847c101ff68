"""Words into settings, by tyro, with help texts that fill the lines of the screen they are shown on."""

import contextlib
import dataclasses
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import tyro
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from irleed.errors import ConfigError


def parsed(settings: Any, arguments: Sequence[str], prog: str, description: str | None = None) -> Any:
    """Settings of a type from words; help and what is wrong with the words are printed, and end the program."""
    _refuse_empty(arguments)
    registry = ConstructorRegistry()
    registry.struct_rule(_Flowing())
    helping = {"-h", "--help"} & set(arguments)  # what else is printed, such as completions, is no prose
    with contextlib.redirect_stdout(_Wrapping(sys.stdout) if helping else sys.stdout):
        found = tyro.cli(
            settings,
            prog=prog,
            description=description,
            args=arguments,
            registry=registry,
            config=(tyro.conf.DisallowNone,),  # or every default that is None would be something to type
        )
    seed = getattr(found, "seed", None)
    if seed is not None and abs(seed) >= 1 << 63:
        raise ConfigError("--seed", got=seed, expected="a number of 64 bits", remedy="choose, say, 0")
    return found


# Flags of earlier versions, by command.
RENAMED = {
    "fit": {"--seeds": "--members"},
    "simulate": {"--episodes": "--demonstrations"},
    "expert": {
        "--copies": "--num-envs", "--rate": "--learning-rate", "--batch": "--batch-size", "--random": "--exploration",
    },
}  # fmt: skip


def refuse_renamed(arguments: Sequence[str]) -> None:
    """Refuse flags that have another name now, and say it."""
    known = RENAMED.get(arguments[0], {}) if arguments else {}
    for word in arguments[1:]:
        flag = word.partition("=")[0]
        if flag in known:
            raise ConfigError(flag, got="a flag of earlier versions", expected=known[flag], remedy="use that")


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse words without a letter: as a path, they would be the folder that the user happens to be in."""
    flag = "the command"
    for word in arguments:
        flag, given, value = word.partition("=") if word.startswith("--") else (flag, True, word)
        if given and not value.strip():
            got, expected = "an empty text", "a name or a value"
            raise ConfigError(flag, got=got, expected=expected, remedy="check what is between the quotes")


class _Flowing:
    """Dataclasses as tyro reads them, except that a docstring's lines are one paragraph.

    tyro keeps a line break that is followed by an indent, which every break inside a docstring is.
    """

    def __init__(self) -> None:
        self._asked = False

    def __call__(self, info: StructTypeInfo) -> StructConstructorSpec | None:
        if self._asked or not dataclasses.is_dataclass(info.type):
            return None
        self._asked = True  # by itself, for what there would be without it
        try:
            found = ConstructorRegistry.get_struct_spec(info)
        finally:
            self._asked = False
        if not isinstance(found, StructConstructorSpec):
            return None
        return dataclasses.replace(found, fields=tuple(map(_flowing, found.fields)))


def _flowing(field: StructFieldSpec) -> StructFieldSpec:
    said: str | Callable[[], str | None] | None = field.helptext

    def paragraph() -> str | None:
        text = said() if callable(said) else said
        return None if text is None else " ".join(text.split())

    return dataclasses.replace(field, helptext=paragraph)


class _Wrapping:
    """A stream that breaks lines of prose between words; tyro prints descriptions as they are, however long."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        width = shutil.get_terminal_size().columns
        for line in text.splitlines(keepends=True):
            prose = len(line.rstrip("\n")) > width and line[0].isalpha()
            self._stream.write("\n".join(textwrap.wrap(line, width)) + "\n" * line.endswith("\n") if prose else line)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
