"""Command lines parsed by tyro into settings, with help texts wrapped to the terminal."""

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
    """Settings of a type from command-line arguments; help and errors are printed and end the program."""
    _refuse_empty(arguments)
    registry = ConstructorRegistry()
    registry.struct_rule(_Flowing())
    helping = {"-h", "--help"} & set(arguments)  # other output, such as completions, is not wrapped
    with contextlib.redirect_stdout(_Wrapping(sys.stdout) if helping else sys.stdout):
        config = (tyro.conf.DisallowNone,)  # None is a default, not a value to type
        found = tyro.cli(settings, prog=prog, description=description, args=arguments, registry=registry, config=config)
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
    """Refuse renamed flags with their new names."""
    known = RENAMED.get(arguments[0], {}) if arguments else {}
    for word in arguments[1:]:
        flag = word.partition("=")[0]
        if flag in known:
            raise ConfigError(flag, got="a flag of earlier versions", expected=known[flag], remedy="use that")


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse empty arguments: as a path, they would be the current folder."""
    flag = "the command"
    for word in arguments:
        flag, given, value = word.partition("=") if word.startswith("--") else (flag, True, word)
        if given and not value.strip():
            got, expected = "an empty text", "a name or a value"
            raise ConfigError(flag, got=got, expected=expected, remedy="check what is between the quotes")


class _Flowing:
    """Dataclasses as tyro reads them, except that the lines of a docstring become one paragraph.

    tyro keeps a line break that is followed by an indent, which every break inside a docstring is.
    """

    def __init__(self) -> None:
        self._asked = False

    def __call__(self, info: StructTypeInfo) -> StructConstructorSpec | None:
        if self._asked or not dataclasses.is_dataclass(info.type):
            return None
        self._asked = True  # tyro's own rules apply to the inner call
        try:
            found = ConstructorRegistry.get_struct_spec(info)
        finally:
            self._asked = False
        if not isinstance(found, StructConstructorSpec):
            return None
        return dataclasses.replace(found, fields=tuple(map(_flowing, found.fields)))


def _flowing(field: StructFieldSpec) -> StructFieldSpec:
    helptext: str | Callable[[], str | None] | None = field.helptext

    def paragraph() -> str | None:
        text = helptext() if callable(helptext) else helptext
        return None if text is None else " ".join(text.split())

    return dataclasses.replace(field, helptext=paragraph)


class _Wrapping:
    """A stream that wraps long lines of prose, which tyro does not."""

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
