"""The run directory: checked before the work starts, written atomically, recognised on resume; and JSON files in it.

JSON may have been edited by others: every value is checked before it is used."""

import contextlib
import dataclasses
import json
import platform
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tokenize import TokenError
from typing import Any, NoReturn

import jax
import numpy as np

from irleed._io.arrays import CORRUPT
from irleed._io.files import CHECKSUM, LOCK, beside, digest, is_damaged, locked, sweep, temporary, write_signed, writing
from irleed._io.text import distinct, one_line, shortened
from irleed.data.demonstrations import Demonstrations
from irleed.data.formats import inside
from irleed.errors import ConfigError, DataError
from irleed.runs.checkpoint import FOLDER

RUN, FORMAT, VERSION = "run.json", "irleed-run", 1
BASELINES = "baselines"  # the folder inside a run that has those of other methods
ANSWER, POLICY, REPORT = "fit.json", "policy.safetensors", "report.html"
# Other files of a run; in a folder that is not a run, files of these names are not overwritten.
WRITTEN = (
    "data.json", "departures.json", "history.jsonl", "film.json", "film.webp", "film.png", "expertise.png",
    "expertise.pdf", "maps.png", "maps.pdf", "validation.json", "validation.png", "validation.pdf", BASELINES,
    "tensorboard", FOLDER, ANSWER, POLICY, REPORT,
)  # fmt: skip
COLUMNS = ("obs", "row", "action", "terminated", "truncated", "demonstrator", "episode", "reward")


@dataclass(frozen=True)
class OpenRun:
    """A run that is being written."""

    folder: Path
    identity: str
    fingerprint: str  # of its settings and data
    notes: tuple[str, ...] = ()  # for the user when the run is resumed


def prepare(folder: str | Path) -> Path:
    """Make the folder, and check that it can be written to."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = temporary(folder / "probe")
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        got, expected = error.strerror or str(error), "a folder that can be written to"
        remedy = "choose another with --out"
        raise ConfigError(f"output folder {folder}", got=got, expected=expected, remedy=remedy) from error
    return folder


@contextlib.contextmanager
def occupied(folder: str | Path) -> Iterator[Path]:
    """A writable folder, locked against other processes; temporary files of a killed one are removed."""
    folder = prepare(folder)
    with contextlib.ExitStack() as stack:
        with writing(folder, "choose another --out"):
            left = stack.enter_context(locked(folder / LOCK, f"folder {folder}"))
            for each in (folder, *folder.iterdir()) if left else ():  # it has our lock file
                if each.is_dir() and not each.is_symlink():
                    sweep(each)
        yield folder


def keep(path: Path, fingerprint: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays with a fingerprint of the settings they depend on, for `kept`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {"fingerprint": np.asarray(json.dumps(fingerprint)), "digest": np.asarray(digest(fingerprint, arrays))}
    with beside(path) as file:
        np.savez(file, **{**arrays, **head})  # pyright: ignore[reportArgumentType]


def kept(path: Path, fingerprint: Mapping[str, object]) -> dict[str, np.ndarray] | None:
    """The arrays that `keep` wrote, or None without a file; refused if the fingerprint differs."""
    if not path.exists():
        return None
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            if sum(entry.file_size for entry in file.zip.infolist()) > path.stat().st_size:
                raise ValueError("entries that are compressed, or lie over each other")
            arrays = dict(file)
        found = dict(json.loads(str(arrays.pop("fingerprint"))))
        written = arrays.pop("digest", None)  # older ones have none
        if written is not None and str(written) != digest(found, arrays):
            raise ValueError("arrays that do not match their checksum")
    except (*CORRUPT, TokenError) as error:  # the latter from NumPy, which parses the headers of arrays
        remedy = "remove it, or choose another --out"
        raise ConfigError(str(path), got=str(error), expected="a part of a result", remedy=remedy) from error
    _same(f"{path}, made with other settings", found, fingerprint)
    return arrays


@contextlib.contextmanager
def open_run(folder: str | Path, config: Mapping[str, object], data: str, *, resume: bool) -> Iterator[OpenRun]:
    """Start a run in a folder, or resume the one that is there, if its settings and data are the same.

    The folder is locked against other processes inside the `with` block. A folder that is not a run is refused.
    """
    folder = Path(folder)
    _check_place(folder, resume)
    _check_links(folder)
    prepare(folder)
    with contextlib.ExitStack() as stack:
        with writing(folder):
            stack.enter_context(locked(folder / LOCK, f"run {folder}"))
        run = _continued(folder, config, data, resume) if (folder / RUN).exists() else _begun(folder, config, data)
        with writing(folder):
            sweep(folder)
        yield run


def _check_place(folder: Path, resume: bool) -> None:
    """Refuse a folder without run.json that has files of a run or, to resume, any files."""
    try:
        there = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError:  # `prepare` refuses it
        return
    odd = sorted(set(there) & set(WRITTEN)) or (sorted(there) if resume else [])
    if RUN not in there and odd:
        got, expected = f"{', '.join(odd[:5])}, and no {RUN}", "a run, or an empty folder"
        remedy = "copy it again, or choose another --out"
        raise ConfigError(f"run {folder}", got=got, expected=expected, remedy=remedy)


def _check_links(folder: Path) -> None:
    """Refuse a run with links that lead out of it: writing or removing them would change other files.

    Pipes and devices are refused as well, before hours of work.
    """
    with writing(folder):
        within = (folder / BASELINES).iterdir() if (folder / BASELINES).is_dir() else ()
        for path in (*(folder / name for name in (RUN, "wandb", *WRITTEN)), *within):
            if inside(folder, path).exists() and not (path.is_file() or path.is_dir()):
                refuse(str(path), "a device or pipe", "a file or a folder", "remove it")


def _continued(folder: Path, config: Mapping[str, object], data: str, resume: bool) -> OpenRun:
    record = _record(folder / RUN)
    found, wanted = {**record["config"], "data": record["data"]}, {**config, "data": data}
    _same(f"run {folder}, started with other settings or data", found, wanted)
    if not resume:
        remedy = "add --resume to continue it, or choose another --out"
        raise ConfigError(f"run {folder}", got="a run of these settings", expected="none", remedy=remedy)
    changed = [f"{name} {record['versions'].get(name)}" for name, own in _versions().items()
               if record["versions"].get(name) != own]  # fmt: skip
    note = f"{folder} was started with {', '.join(changed)}: results may differ in the last digits"
    return OpenRun(folder, str(record["id"]), digest([config, data], {}), (note,) if changed else ())


def _begun(folder: Path, config: Mapping[str, object], data: str) -> OpenRun:
    identity = secrets.token_hex(4)
    record = {"format": FORMAT, "version": VERSION, "id": identity, "created": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    with writing(folder):
        write_signed(folder / RUN, {**record, "versions": _versions(), "data": data, "config": dict(config)})
    return OpenRun(folder, identity, digest([config, data], {}))


def fingerprint(data: Demonstrations, *others: Any) -> str:
    """SHA-256 of demonstrations, and of other trees of arrays, such as an MDP."""
    arrays = {name: getattr(data, name) for name in COLUMNS if getattr(data, name) is not None}
    for path, leaf in jax.tree_util.tree_leaves_with_path(others):
        arrays[jax.tree_util.keystr(path)] = np.asarray(leaf)
    return digest(list(data.names), arrays)


def plain(module: Any, name: str) -> dict[str, object]:
    """The settings of a module and of its submodules, by their names."""
    if not dataclasses.is_dataclass(module):
        return {name: str(module)}
    flat: dict[str, object] = {name: type(module).__name__}
    for field in dataclasses.fields(module):
        flat |= plain(getattr(module, field.name), f"{name}.{field.name}")
    return flat


def _record(path: Path) -> dict[str, Any]:
    """The content of run.json."""
    found = read_json(path)
    record = found.plain()
    remedy = "copy it again, or choose another --out"
    if record.get("format") != FORMAT:
        refuse(str(path), "another format", "the settings of a run", remedy)
    found.version(VERSION)
    whole = all(isinstance(record.get(name), dict) for name in ("config", "versions"))
    if not whole or not {"data", "id"} <= set(record):
        refuse(str(path), "incomplete settings", "the settings of a run", remedy)
    return record


def _same(where: str, found: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    """Refuse other settings, and name those that differ."""
    wanted = json.loads(json.dumps(wanted))
    differ = [key for key in sorted({*found, *wanted}) if found.get(key) != wanted.get(key)]
    if differ:
        got, expected = (", ".join(f"{key} {_short(side.get(key))}" for key in differ) for side in (found, wanted))
        raise ConfigError(where, got=got, expected=expected, remedy="choose another --out")


def _short(value: object) -> str:
    """A value; of a checksum, its beginning."""
    text = str(value)
    return f"{text[:8]}..." if len(text) == 64 and text.isalnum() else text


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("irleed", "jax", "numpy")} | {"python": platform.python_version()}


LARGEST = 1e150  # beyond, squares are infinite
LONGEST = 300, 1_000  # characters of a name and of a sentence
MOST_BYTES = 1 << 27  # of a file
MOST_VALUES = 1 << 22  # of a file: each may take a hundred bytes in memory
DEEPEST = 40  # lists and objects inside each other
AGAIN = "copy the run again, or make it again"


def refuse(where: str, got: object, expected: str, remedy: str = AGAIN) -> NoReturn:
    """Raise a `DataError` about a file of a run."""
    raise DataError(where, got=shortened(str(got), 80), expected=expected, remedy=remedy)


def read_json(path: Path) -> "Fields":
    """A file with one JSON object of finite numbers; its checksum is compared, if it has one."""
    try:
        found = json.loads(_json_text(path), parse_constant=_not_finite)
    except (ValueError, RecursionError) as error:
        refuse(str(path), f"no JSON ({error})", "a whole JSON file")
    if _is_deep(found):
        refuse(str(path), "deeply nested lists or objects", f"{DEEPEST} levels at most")
    fields = Fields(str(path), found)
    if is_damaged(found):
        refuse(str(path), "content that does not match its checksum", "the file as it was written")
    found.pop(CHECKSUM, None)
    return fields


def read_lines(path: Path) -> list["Fields"]:
    """A file with a JSON object on every line; an incomplete last line is left out."""
    try:
        lines = _json_text(path).split("\n")
        found = [json.loads(line, parse_constant=_not_finite) for line in lines[:-1] if line.strip()]
    except (ValueError, RecursionError) as error:
        refuse(str(path), f"no JSON ({error})", "a JSON object on every line")
    return [Fields(f"{path}, line {number}", value) for number, value in enumerate(found, 1)]


def content(path: Path, most: int, remedy: str = AGAIN) -> bytes:
    """The bytes of a file in the folder of a run; refused if it is outside, not a file, or larger than `most`."""
    try:
        if inside(path.parent, path).exists() and not path.is_file():  # a pipe would be waited for
            refuse(str(path), "a folder, device or pipe", "a file", remedy)
        if path.stat().st_size > most:
            refuse(str(path), f"{path.stat().st_size} bytes", f"at most {most}", remedy)
        return path.read_bytes()
    except OSError as error:
        refuse(str(path), error.strerror or str(error), "a file that can be read", remedy)


def _json_text(path: Path) -> str:
    """The text of a JSON file; refused if its values would take too much memory."""
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
    """A JSON object whose values are checked; every method takes a key and refuses values of another kind."""

    def __init__(self, where: str, value: object):
        if not isinstance(value, dict):
            refuse(where, _kind(value), "a JSON object")
        self.where, self._values = where, value

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def plain(self) -> dict[str, Any]:
        """The object itself."""
        return self._values

    def version(self, newest: int) -> None:
        """Refuse files of newer versions; the first ones have no version."""
        version = self.whole("version") if "version" in self else 1
        if version > newest:
            refuse(f"{self.where}, version", version, f"at most {newest}", "install a newer irleed to read it")

    def text(self, key: str, most: int = LONGEST[0]) -> str:
        """A string; a long one by its beginning and a checksum."""
        return distinct(self._of(key, "a text", lambda value: isinstance(value, str)), most)

    def flag(self, key: str) -> bool:
        return self._of(key, "true or false", lambda value: isinstance(value, bool))

    def whole(self, key: str) -> int:
        """A whole number from 0."""
        value = self._of(key, "a whole number from 0", lambda value: _number(value) and value >= 0 and value % 1 == 0)
        return int(value)

    def number(self, key: str) -> float:
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
        return [float(value) for value in self._each(key, "a list of numbers", _number)]

    def table(self, key: str) -> list[list[float]]:
        """A list of lists of numbers of one length."""

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
    """A value for messages."""
    return f"a {type(value).__name__}" if isinstance(value, dict | list) else repr(value)
