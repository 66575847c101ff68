"""Text of unknown origin, made safe to show on a terminal, in a message, in CSV, in Markdown and in a shell command.

Names and messages come from files of others. Terminals interpret escape sequences, spreadsheets formulas, and Markdown
renderers HTML: all are escaped.
"""

import hashlib
import os
import re
import shlex
import unicodedata
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

LONGEST_NAME, LONGEST_LINE, LONGEST_SAID = 100, 200, 5_000  # characters
FORMULA = re.compile(r"\s*[=+\-@\t\r\n＝＋－＠]")  # what a spreadsheet may evaluate, by OWASP's list
HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # Unicode categories of invisible characters
SEEN = "\n\t\u200c\u200d"  # except these: joiners are part of Persian words and of emoji


def escaped(value: object) -> str:
    """Text on one line: what is not printable (line breaks, terminal escapes) as ``\\n`` or ``\\x1b``."""
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def printable(path: str | os.PathLike[str]) -> str:
    """A path as messages show it: as it is or, where that is not printable, as a Python string."""
    text = os.fspath(path)
    return text if text.isprintable() else repr(text)


def one_line(value: object, most: int = LONGEST_LINE) -> str:
    """Text, or what an error says, on one printable line of at most so many characters."""
    text = str(value)
    if isinstance(value, BaseException):
        text = (value.strerror if isinstance(value, OSError) else None) or text or type(value).__name__
    return shortened(escaped(" ".join(text[: 10 * most].split())), most)


def shortened(text: str, most: int) -> str:
    """The beginning of a long text."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def several(parts: Sequence[object], most: int = 8, count: int | None = None) -> str:
    """``a, b, c and 4 more``: the first parts of a list of `count`, which is their number by default."""
    left = (len(parts) if count is None else count) - most
    return ", ".join(map(str, parts[:most])) + (f" and {left} more" if left > 0 else "")


def distinct(text: str, most: int) -> str:
    """The text or, of a long one, its beginning and a checksum, to distinguish texts with the same beginning."""
    if len(text) <= most:
        return text
    return f"{text[: most - 9]}…{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:8]}"


def name(value: object, most: int = LONGEST_NAME) -> str:
    """A name on one printable line; a long one by its beginning and a checksum."""
    return escaped(distinct(str(value), most))


def cell(value: object) -> Text:
    """A name for a table on a terminal, where neither ``[markup]`` nor ``:emoji:`` has a meaning."""
    return Text(name(value))


def say(console: Console, *lines: str) -> None:
    """Print lines verbatim: no markup, colours or emoji, and no wrapping."""
    for line in lines:
        text = shortened(escaped(line), LONGEST_SAID)
        console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)


def visible(text: str) -> str:
    """Text for HTML: line breaks and tabs stay, other characters that cannot be seen become U+FFFD."""
    if text.isprintable():
        return text
    return "".join(c if c in SEEN or unicodedata.category(c) not in HIDDEN else "\ufffd" for c in text)


def csv_cell(value: object) -> object:
    """A value for a CSV file; text that a spreadsheet would take for a formula gets an apostrophe in front."""
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


def markdown(value: object, most: int = 1_000) -> str:
    """Text escaped for Markdown: one line without markup, HTML, formulas or links."""
    shown = "".join(c if c.isprintable() else " " for c in shortened(str(value), most))
    shown = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    shown = re.sub(r"([\\`*_{}\[\]#|~!$]|:(?=//)|(?<=www)\.)", r"\\\1", shown, flags=re.IGNORECASE)
    return re.sub(r"^(\s*)([-+=]|[0-9]+(?=[.)](\s|$)))", _not_first, shown)


def _not_first(found: re.Match[str]) -> str:
    """A list's mark at the beginning of a text, as text."""
    space, mark = found[1], found[2]
    return f"{space}&#{ord(mark[0])};{mark[1:]}"


def shell(words: Iterable[object]) -> str:
    """A command on one line, to be copied: every word quoted where it needs to be."""
    return " ".join(map(_quoted, map(str, words)))


def _quoted(word: str) -> str:
    """A word for a POSIX shell; of one with line breaks or control characters, these as octal numbers."""
    if word.isprintable():
        return shlex.quote(word)
    shown = "".join(c if c.isprintable() and c not in "\\'" else _octal(c) for c in word)
    return f"$'{shown}'"


def _octal(character: str) -> str:
    """Its bytes; a byte of a path that is no UTF-8 is itself again."""
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\{byte:03o}" for byte in character.encode(errors=errors))
