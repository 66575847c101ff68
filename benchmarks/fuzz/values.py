"""Hostile numbers, arrays, names and JSON: valid for the container, nonsense for whoever believes them."""

import json
from typing import Any

import numpy as np

from fuzz.case import Case

NUMBERS = (
    np.nan, np.inf, -np.inf, 5e-324, 1e-310, 1.7e308, -1.7e308, 3.5e38, 1e-46, 1e16, 2.0**53 + 2, 2.0**31, 2.0**63,
    -(2.0**63), -1.0, 0.0, 0.5, 1e-12, 1e8,
)  # fmt: skip
DTYPES = (
    "f2", "f4", "f8", ">f8", ">i4", "i1", "u1", "u8", "i8", "?", "c8", "c16", "S8", "U8", "M8[s]", "m8[ns]", "V4", "g",
    "i2", "S0", "U0",
)  # fmt: skip
SHAPES = ("empty", "first axis", "last axis", "flat", "short", "long", "scalar", "many axes", "wide", "no columns")
NAMES = (
    "\x1b]0;title\x07\x1b[2J\x1b[31mred", "a\nb", "a\r\nirleed: done", "\x00", "\x9b31m", "\u202eabc", "\u200b",
    "\ufeff",
    "=cmd|' /C calc'!A0", "+1+1", "-2", "@SUM(1:9)", "\t=1+1", "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)",
    "'\"><svg onload=alert(3)>", ":skull:", "[bold red]x[/]", "[link=file:///etc/passwd]x[/link]", "[/]", "a|b|c",
    "`x`",
    "../../../../etc/passwd", "/etc/passwd", "", " ", ".", "..", "nan", "None", "0", "a/b", "data", "é" * 300, "𝕏" * 40,
    "%s%s%n", "{0.__class__}", "$(id)", "`id`", ";id", "a\\b", "\\u0000",
)  # fmt: skip


def sample() -> list[dict[str, Any]]:
    """Three episodes of two demonstrators, as plain arrays."""
    random = np.random.default_rng(0)
    return [
        {
            "obs": random.normal(size=(n + 1, 3)),
            "action": random.integers(0, 4, n),
            "reward": random.normal(size=n),
            "terminated": n == 4,
            "name": who,
        }
        for n, who in ((4, "anna"), (6, "ben"), (3, "anna"))
    ]


def name(case: Case) -> str:
    """A hostile name; one in ten is of 10 MB."""
    kind = case.random.random()
    if kind < 0.1:
        part = case.pick(("x", "\x1b[2J", "é", "<b>"))
        return part * (10_000_000 // len(part))
    chosen = case.pick(NAMES)
    return chosen + case.pick(NAMES) if kind < 0.2 else chosen


def text_without_zero(case: Case) -> str:
    """A hostile name for formats whose text ends at a zero byte."""
    return name(case).replace("\x00", "") or "x"


def column_of(case: Case, columns: dict[str, Any]) -> str | None:
    """The name of one of the arrays."""
    arrays = [key for key, values in columns.items() if isinstance(values, np.ndarray)]
    return case.pick(arrays) if arrays else None


def numbers(case: Case, columns: dict[str, Any]) -> None:
    """Some or all values of an array become one that is hard to compute with."""
    key = column_of(case, columns)
    if key is None or columns[key].dtype.kind not in "iufb":
        return
    value = case.pick(NUMBERS)
    case.note(f"{key} = {value}")
    values = np.array(columns[key], np.float64 if columns[key].dtype.kind == "f" or case.chance(0.5) else None)
    flat = values.reshape(-1)
    if values.dtype.kind != "f":
        value = int(np.clip(value, -(2**62), 2**62)) if np.isfinite(value) else np.iinfo(np.int64).min
        values = values.astype(np.int64)
        flat = values.reshape(-1)
    where = slice(None) if case.chance(0.3) else case.random.integers(0, max(flat.size, 1), case.whole(1, 4))
    if flat.size:
        flat[where] = value
    columns[key] = values


def dtypes(case: Case, columns: dict[str, Any]) -> None:
    """An array has another type."""
    key = column_of(case, columns)
    if key is None:
        return
    dtype = case.pick(DTYPES)
    case.note(f"{key} as {dtype}")
    with np.errstate(all="ignore"):
        try:
            columns[key] = np.asarray(columns[key]).astype(dtype)
        except (TypeError, ValueError):
            columns[key] = np.zeros(np.shape(columns[key]), dtype)


def shapes(case: Case, columns: dict[str, Any]) -> None:
    """An array has another shape."""
    key = column_of(case, columns)
    if key is None:
        return
    kind, values = case.pick(SHAPES), np.asarray(columns[key])
    case.note(f"{key}: {kind}")
    row = values.shape[1:]
    columns[key] = {
        "empty": lambda: values[:0] if values.ndim else np.zeros(0, values.dtype),
        "first axis": lambda: values[None],
        "last axis": lambda: values[..., None],
        "flat": lambda: values.reshape(-1),
        "short": lambda: values[:-1] if values.ndim else values,
        "long": lambda: np.concatenate([values, values]) if values.ndim else values,
        "scalar": lambda: values.reshape(-1)[0] if values.size else values,
        "many axes": lambda: values.reshape(*values.shape, *[1] * (30 - values.ndim)),
        "wide": lambda: np.zeros((*values.shape[:1], 4000, *row[1:]), values.dtype),
        "no columns": lambda: np.zeros((*values.shape[:1], 0), values.dtype),
    }[kind]()
    columns[key] = np.asarray(columns[key])


def missing(case: Case, columns: dict[str, Any]) -> None:
    """An array is not there."""
    if columns:
        del columns[case.pick(list(columns))]


def swapped(case: Case, columns: dict[str, Any]) -> None:
    """Two arrays have each other's names."""
    if len(columns) > 1:
        one, other = case.random.permutation(len(columns))[:2]
        keys = list(columns)
        columns[keys[one]], columns[keys[other]] = columns[keys[other]], columns[keys[one]]


def more(case: Case, columns: dict[str, Any]) -> None:
    """There is an array that nobody asked for."""
    columns[name(case)] = np.zeros(case.whole(1, 100))


ARRAYS = (numbers, dtypes, shapes, missing, swapped, more)


def json_value(case: Case) -> Any:
    """A value that is valid JSON, or Python's idea of it, and hardly what was expected."""
    return case.pick(
        (
            None, True, -1, 0, 1e308, -1e308, float("nan"), float("inf"), 2**63, -(2**63), 2**70, 10**400, 0.5, "", "1",
            [], {}, [[]], [None], {"a": None}, [1] * 1000, "x" * 1_000_000, "\ud800", name(case), name(case), [1, "a",
            {}],
            1e-320, 10**18, "v3.999", "NaN", "/etc/passwd", "../../..", "file:///etc/passwd", "http://127.0.0.1:9/x",
        )
    )  # fmt: skip


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where values stand in JSON, as keys from the outside in."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here] * bool(here) + [place for key, inner in items for place in places(inner, (*here, key))]


def put(value: Any, place: tuple[Any, ...], new: Any) -> None:
    """Change the value that stands at a place."""
    for key in place[:-1]:
        value = value[key]
    value[place[-1]] = new


def json_text(case: Case, value: Any) -> str:
    """A JSON document with some values changed, or with what only its text can have."""
    value = json.loads(json.dumps(value))
    kind = case.pick(("values",) * 6 + ("removed", "deep", "duplicate keys", "outermost", "long number", "marks"))
    case.note(f"JSON: {kind}")
    if kind == "outermost":
        return json.dumps(json_value(case))
    for _ in range(case.whole(1, 3) if kind == "values" else 0):
        if found := places(value):
            place, new = case.pick(found), json_value(case)
            case.note(f"{'.'.join(map(str, place))} = {ascii(new)[:40]}")
            put(value, place, new)
    if kind == "removed" and isinstance(value, dict) and value:
        del value[case.pick(list(value))]
    text = json.dumps(value)
    if kind in ("deep", "long number") and (found := places(value)):
        put(value, case.pick(found), "@HERE@")
        depth = case.pick((500, 5000, 200_000))
        deep = case.pick(("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth))
        text = json.dumps(value).replace(
            '"@HERE@"', deep if kind == "deep" else "9" * case.pick((400, 5000, 1_000_000))
        )
    if kind == "duplicate keys" and isinstance(value, dict) and value:
        key = case.pick(list(value))
        text = f"{text[:-1]}, {json.dumps(key)}: {json.dumps(json_value(case))}}}"
    if kind == "marks":
        text = case.pick(
            ("\ufeff" + text, text + "\x00", text + text, text + "/*", "//\n" + text, text.replace(",", ",\n\t"))
        )
    return text


def write_json(case: Case, path: Any, value: Any) -> None:
    """Write a hostile document, now and then in another encoding."""
    encoding = case.pick(("utf-8",) * 8 + ("utf-16", "utf-32"))
    path.write_bytes(json_text(case, value).encode(encoding, "surrogatepass"))
