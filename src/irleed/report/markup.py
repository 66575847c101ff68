"""HTML in which text is escaped, pages as files, and pictures as data URIs."""

import base64
import html
import struct
import zlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from irleed._io.files import beside
from irleed._io.text import several, shortened, visible
from irleed._typing import Shaped
from irleed.errors import ConfigError
from irleed.runs.reader import Estimate

COLOUR_TYPES = {1: 0, 3: 2, 4: 6}  # by channels: grey, colour, colour with opacity
VOID = ("meta", "img", "br")
LONGEST = 5_000  # characters of a piece of text


def data_uri(pixels: Shaped[np.ndarray, "H W C"]) -> str:
    """A data URI of a PNG image with 1 (grey), 3 (colour) or 4 channels (with opacity)."""
    height, width, channels = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 8, COLOUR_TYPES[channels], 0, 0, 0)
    # Every row starts with the number of its filter; 0 is none.
    rows = np.pad(pixels.reshape(height, width * channels), ((0, 0), (1, 0)))
    picture = b"\x89PNG\r\n\x1a\n"
    for name, body in ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")):
        picture += struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    return "data:image/png;base64," + base64.b64encode(picture).decode()


class Safe(str):
    """HTML, in which all text is escaped."""


def document(title: str, policy: str, *body: object) -> str:
    """A whole page; `policy` is what it may load and run, whatever names in the data hold."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Safe(asset("style.css"))),
    )
    return f"<!DOCTYPE html>\n{element('html', head, element('body', *body), lang='en')}\n"


def asset(name: str) -> str:
    """A file that comes with the package."""
    return (files("irleed") / "report" / name).read_text(encoding="utf-8")


def write_page(path: Path, page: str, flag: str) -> Path:
    """Write a page; where that fails, the error names the `flag` that chooses the path."""
    try:
        with beside(path) as file:
            file.write(page.encode())
    except OSError as error:
        got, remedy = error.strerror or str(error), f"choose another with {flag}"
        raise ConfigError(f"{flag} {path}", got=got, expected="a place to write", remedy=remedy) from error
    return path


def text(value: object) -> Safe:
    """A value as escaped text without invisible characters; HTML stays."""
    if isinstance(value, Safe):
        return value
    return Safe(html.escape(visible("" if value is None else str(value))))


def join(parts: Iterable[object]) -> Safe:
    """Parts concatenated; long texts are cut."""
    return Safe("".join(text(shortened(part, LONGEST) if type(part) is str else part) for part in parts))


def element(tag: str, *children: object, **attributes: object) -> Safe:
    """An element. Names of attributes have _ for -; None and False leave one out, True sets it."""
    named = "".join(
        f" {name.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value)}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    return Safe(f"<{tag}{named}>" if tag in VOID else f"<{tag}{named}>{join(children)}</{tag}>")


def part(level: int, title: str, key: str, *children: object) -> Safe:
    """A section with its heading, to which the table of contents links."""
    heading = element(f"h{level}", title, id=f"{key}-title")
    # A landmark each, but for the parts of one run among several, which would be too many of the same names.
    return element("section", heading, *children, id=key, aria_labelledby=f"{key}-title" if level == 2 else None)


def paragraph(*children: object, kind: str | None = None) -> Safe:
    """A paragraph; `kind` is its class, such as note."""
    return element("p", *children, class_=kind)


def listing(items: Iterable[object], kind: str | None = None) -> Safe:
    """A list of points."""
    return element("ul", *(element("li", item) for item in items), class_=kind)


def details(summary: str, *children: object) -> Safe:
    """Content that is folded until the user opens it."""
    return element("details", element("summary", summary), *children)


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]], *, sortable: bool = True) -> Safe:
    """A table whose first column names the rows; formatted numbers stay sortable."""
    head = element("tr", *(element("th", heading, scope="col") if heading else element("td") for heading in headings))
    body = [element("tr", *(_cell(value, first=n == 0) for n, value in enumerate(row))) for row in rows]
    parts = element("caption", caption), element("thead", head), element("tbody", *body)
    inner = element("table", *parts, data_sortable=sortable and len(body) > 1)
    # What is too wide for a phone scrolls in its own box, which the keyboard has to reach.
    return element("div", inner, class_="scroll", tabindex="0", role="group", aria_label=caption)


def _cell(value: object, *, first: bool) -> Safe:
    if isinstance(value, Estimate):
        return element("td", interval(value), class_="number", data_value=value.value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return element("th", value, scope="row") if first else element("td", value)
    return element(
        "th" if first else "td", number(value), class_="number", data_value=value, scope="row" if first else None
    )


def figure(caption: object, drawing: Safe, values: Safe | None = None) -> Safe:
    """A drawing with its caption and, folded, the same values as a table."""
    behind = () if values is None else (details("The same as a table", values),)
    return element("figure", element("figcaption", caption), drawing, *behind)


def number(value: float | int | None) -> str:
    """About three digits, whole numbers in full, with thin spaces between thousands."""
    if value is None:
        return "–"
    size = abs(value)
    if size >= 1e7 or 0 < size < 1e-4:
        return f"{value:.2e}".replace("-", "−")
    return _fixed(value, 0 if value == int(value) else _decimals(size))


def interval(found: Estimate) -> str:
    """``1.46 [1.42, 1.53]``, all with the same decimals, or the number alone."""
    if found.low is None or found.high is None or found.exact:
        return number(found.value)
    decimals = _decimals(max(abs(found.value), (found.high - found.low) / 2))
    return "{} [{}, {}]".format(*(_fixed(value, decimals) for value in (found.value, found.low, found.high)))


def _decimals(size: float | int) -> int:
    return 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 0.1 else 3


def _fixed(value: float | int, decimals: int) -> str:
    shown = f"{value:,.{decimals}f}".replace(",", "\u202f")
    return shown.lstrip("-") if not any(digit in "123456789" for digit in shown) else shown.replace("-", "−")


def listed(names: Sequence[object], most: int = 8) -> str:
    """``a, b and c``; of many, the first."""
    if len(names) > most or len(names) < 2:
        return several(names, most)
    *first, last = map(str, names)
    return f"{', '.join(first)} and {last}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """``1 step``, ``2 steps``."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"
