"""JSON that others may have edited: every value is looked at before it is used, and refused in one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from irleed._io.files import CHECKSUM, is_damaged
from irleed._io.text import distinct, one_line, shortened
from irleed.data.formats.base import inside
from irleed.errors import DataError

LARGEST = 1e150  # beyond, squares are infinite
LONGEST = 300, 1_000  # characters of a name and of a sentence
MOST_BYTES = 1 << 27  # of a file
MOST_VALUES = 1 << 22  # of a file: each may take a hundred bytes in memory
DEEPEST = 40  # lists and objects inside each other
AGAIN = "copy the run again, or make it again"


def refuse(where: str, got: object, expected: str, remedy: str = AGAIN) -> NoReturn:
    """Say what is wrong with a file."""
    raise DataError(where, got=shortened(str(got), 80), expected=expected, remedy=remedy)


def read_json(path: Path) -> "Fields":
    """A file with one JSON object; numbers are finite, and the content matches its checksum, if it has one."""
    try:
        found = json.loads(_text(path), parse_constant=_not_finite)
    except (ValueError, RecursionError) as error:
        refuse(str(path), f"what is no JSON ({error})", "a whole JSON file")
    if _is_deep(found):
        refuse(str(path), "lists or objects inside each other without end", f"{DEEPEST} levels at most")
    fields = Fields(str(path), found)
    if is_damaged(found):
        refuse(str(path), "content that does not match its checksum", "the file as it was written")
    found.pop(CHECKSUM, None)
    return fields


def read_lines(path: Path) -> list["Fields"]:
    """A file with a JSON object on every line; a last line that was cut off, as of a run that stopped, is left out."""
    try:
        lines = _text(path).split("\n")
        found = [json.loads(line, parse_constant=_not_finite) for line in lines[:-1] if line.strip()]
    except (ValueError, RecursionError) as error:
        refuse(str(path), f"what is no JSON ({error})", "a JSON object on every line")
    return [Fields(f"{path}, line {number}", value) for number, value in enumerate(found, 1)]


def content(path: Path, most: int, remedy: str = AGAIN) -> bytes:
    """What a file in a run's folder holds; refused if it lies elsewhere, is no file, or is larger than that."""
    try:
        if inside(path.parent, path).exists() and not path.is_file():  # a pipe would be waited for
            refuse(str(path), "a folder, device or pipe", "a file", remedy)
        if path.stat().st_size > most:
            refuse(str(path), f"{path.stat().st_size} bytes", f"at most {most}", remedy)
        return path.read_bytes()
    except OSError as error:
        refuse(str(path), error.strerror or str(error), "a file that can be read", remedy)


def _text(path: Path) -> str:
    """What a text file says, if it does not fill the memory, as it is or as values."""
    text = content(path, MOST_BYTES).decode("utf-8")
    if sum(map(text.count, ",[{")) > MOST_VALUES:
        refuse(str(path), "millions of values", f"at most {MOST_VALUES}")
    return text


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [each for outer in level if isinstance(outer, dict | list)
                 for each in (outer.values() if isinstance(outer, dict) else outer)]  # fmt: skip
    return bool(level)


def _not_finite(name: str) -> NoReturn:
    raise ValueError(f"the number {name}")


class Fields:
    """A JSON object, and where it stands. Every method takes a key and checks the kind of its value."""

    def __init__(self, where: str, value: object):
        if not isinstance(value, dict):
            refuse(where, _kind(value), "a JSON object")
        self.where, self._values = where, value

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def plain(self) -> dict[str, Any]:
        """The object as it is."""
        return self._values

    def version(self, newest: int) -> None:
        """Refuse what a newer program wrote; files of the first ones say nothing of it."""
        version = self.whole("version") if "version" in self else 1
        if version > newest:
            refuse(f"{self.where}, version", version, f"at most {newest}", "install a newer irleed to read it")

    def text(self, key: str, most: int = LONGEST[0]) -> str:
        """A string; a long one by its beginning and a checksum."""
        return distinct(self._of(key, "a text", lambda value: isinstance(value, str)), most)

    def flag(self, key: str) -> bool:
        """True or false."""
        return self._of(key, "true or false", lambda value: isinstance(value, bool))

    def whole(self, key: str) -> int:
        """A whole number from 0."""
        value = self._of(key, "a whole number from 0", lambda value: _number(value) and value >= 0 and value % 1 == 0)
        return int(value)

    def number(self, key: str) -> float:
        """A number."""
        return float(self._of(key, "a number", _number))

    def maybe(self, key: str) -> float | None:
        """A number, or null where there is none."""
        value = self._of(key, "a number or null", lambda value: value is None or _number(value))
        return None if value is None else float(value)

    def texts(self, key: str) -> list[str]:
        """A list of sentences, each on one line."""
        found = self._each(key, "a list of texts", lambda value: isinstance(value, str))
        return [one_line(sentence, LONGEST[1]) for sentence in found]

    def numbers(self, key: str) -> list[float]:
        """A list of numbers."""
        return [float(value) for value in self._each(key, "a list of numbers", _number)]

    def table(self, key: str) -> list[list[float]]:
        """A list of lists of numbers, all as long."""

        def whole(value: object) -> bool:
            return isinstance(value, list) and all(map(_number, value))

        rows = self._each(key, "a list of lists of numbers", whole)
        if len({len(row) for row in rows}) > 1:
            refuse(f"{self.where}, {key}", "rows of several lengths", "rows of one length")
        return [[float(value) for value in row] for row in rows]

    def inner(self, key: str) -> "Fields":
        """An object inside."""
        return Fields(f"{self.where}, {key}", self._of(key, "a JSON object", lambda value: isinstance(value, dict)))

    def inners(self, key: str) -> list["Fields"]:
        """A list of objects."""
        values = self._of(key, "a list", lambda value: isinstance(value, list))
        return [Fields(f"{self.where}, {key} {number}", value) for number, value in enumerate(values)]

    def _each(self, key: str, expected: str, right: Callable[[Any], bool]) -> list[Any]:
        return self._of(key, expected, lambda value: isinstance(value, list) and all(map(right, value)))

    def _of(self, key: str, expected: str, right: Callable[[Any], bool]) -> Any:
        if key not in self._values:
            refuse(self.where, f"no {key!r}", expected)
        if not right(self._values[key]):
            refuse(f"{self.where}, {key}", _kind(self._values[key]), expected)
        return self._values[key]


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def _kind(value: object) -> str:
    """What stands there, in a word or as it is."""
    return f"a {type(value).__name__}" if isinstance(value, dict | list) else repr(value)
