"""What is done with a hostile file: all that the commands would do, short of training."""

import json
from pathlib import Path

import numpy as np
from rich.console import Console

from fuzz.case import Case
from irleed.analysis.curation import curate
from irleed.analysis.validation import read_scores, validate
from irleed.cli import inspect
from irleed.data import ReadOptions, lazy, load, summarise
from irleed.envs.mdp import load_mdp
from irleed.export import description, export
from irleed.policies import load_policy
from irleed.policies.tabular import TabularPolicy
from irleed.report.page import report

RAW = (b"<img src=x", b"<script>alert(", b"<svg onload", b"onerror=alert(1)>")  # of `fuzz.values.NAMES`


class UnescapedError(Exception):
    """Text of the file stands in a page as markup."""


def demonstrations(case: Case, path: Path) -> list[bytes]:
    """Load, look at every number, and print what `irleed inspect` prints, as text and as JSON."""
    data = load(path, ReadOptions(**case.reading))
    held = [np.ascontiguousarray(rows).tobytes() for _, rows in lazy.chunks(data.obs)]
    held += [np.asarray(data.action).tobytes(), *(name.encode("utf-8", "replace") for name in data.names)]
    summary = summarise(data)
    json.dumps(summary)
    inspect._show(summary, Console())
    return held


def mdp(case: Case, path: Path) -> list[bytes]:
    """Load."""
    found, _ = load_mdp(path)
    return [np.asarray(found.features).tobytes()]


def policy(case: Case, path: Path) -> list[bytes]:
    """Load, describe, and ask for an action."""
    found = load_policy(path)
    said = json.dumps(description(found))
    if isinstance(found, TabularPolicy):
        found.predict(0, deterministic=True)
    else:
        found.predict(np.zeros(found.observation_shape, np.float32), deterministic=True)
    return [said.encode()]


def scores(case: Case, path: Path) -> list[bytes]:
    """Load, and match with people who may have none."""
    found = read_scores(path)
    found.matched(load(case.home / "people.npz"))
    return [found.column.encode("utf-8", "replace")]


def folder_of_run(case: Case, path: Path) -> list[bytes]:
    """Report, curate, validate or export."""
    out = case.home / "out"
    out.mkdir()
    which = case.reading.get("command")
    if which == "curate":
        json.dumps(curate(case.home / "data.npz", path).rows())
    elif which == "validate":
        validate(path, case.home / "scores.csv", data=case.home / "data.npz", out=out)
    elif which == "export":
        export(path, out / "exported", onnx=False)
    else:
        report(path, out / "report.html")
    texts = [file.read_bytes() for file in out.rglob("*") if file.is_file()]
    for text in texts:
        if found := [mark for mark in RAW if mark in text]:
            raise UnescapedError(found[0])
    return texts
