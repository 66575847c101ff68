"""`irleed.report`: the page, one HTML file that needs no network and no other file."""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from irleed._io.text import one_line, shell
from irleed.errors import ConfigError
from irleed.report import comparison, differences, expertise, returns, situations
from irleed.report.markup import (
    Safe,
    asset,
    counted,
    details,
    document,
    element,
    join,
    listed,
    listing,
    number,
    paragraph,
    part,
    table,
    write_page,
)
from irleed.runs.directory import REPORT, Fields
from irleed.runs.reader import ExperimentRun, FitRun, Run, read_run

MOST_PEOPLE = 200
# Defaults of `irleed fit`, which the command leaves out.
USUAL = {
    "algorithm": "irleed", "estimator": "map", "planner": "soft", "members": "8", "steps": "None", "ends": "neutral",
    "seed": "0", "mdp": "None", "env": "None", "discount": "0.95", "endless": "False", "demonstrator": "data",
    "action": "None", "clip": "False", "baselines": "False", "expansion": "100.0", "feature_names": "None",
    "demonstrators": "None",
}  # fmt: skip
PAPER = """@inproceedings{beliaev2025irleed,
  title     = {Inverse Reinforcement Learning by Estimating Expertise of Demonstrators},
  author    = {Beliaev, Mark and Pedarsani, Ramtin},
  booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence (AAAI-25)},
  year      = {2025},
  note      = {Extended version: arXiv:2402.01886}
}"""


def report(runs: str | Path | Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Write one self-contained HTML page about a run, or a comparison of several; returns where it is.

    **Arguments:**

    - `runs`: the folder of a fit or of an experiment, or several.
    - `out`: the page to write; by default, of one run, report.html in its folder.
    """
    folders = [Path(each) for each in ([runs] if isinstance(runs, str | Path) else runs)]
    if not folders:
        raise ConfigError("runs", got="none", expected="one folder or more", remedy="name the run")
    if out is None and len(folders) > 1:
        expected, remedy = "where to write the comparison", "give --out report.html"
        raise ConfigError("--out", got="nothing", expected=expected, remedy=remedy)
    path = folders[0] / REPORT if out is None else Path(out)
    return write_page(path, page([read_run(folder) for folder in folders]), "--out")


def page(runs: list[Run]) -> str:
    """The whole page, a function of the runs alone."""
    runs = _distinct_labels(runs)
    single = len(runs) == 1
    title = f"irleed report: {listed([run.label for run in runs])}"
    if single:
        parts = _parts(runs[0], 2, "run", 1)
    else:
        parts = [comparison.section(runs, 2, "comparison")]
        parts += [
            part(2, f"Run {run.label}", f"run-{n}", *_parts(run, 3, f"run-{n}", len(runs)))
            for n, run in enumerate(runs)
        ]
    parts.append(reproduce(runs, 2, "reproduce"))
    lead = paragraph(_subject(runs[0]) if single else f"{counted(len(runs), 'run')} side by side.", kind="lead")
    digest = base64.b64encode(hashlib.sha256(asset("script.js").encode()).digest()).decode()
    return document(
        title,
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        element("a", "Skip to the content", href="#content", class_="skip"),
        element("header", element("h1", title), lead),
        _contents(runs),
        element("main", *parts, id="content", tabindex="-1"),
        element("footer", made_by(runs)),
        element("script", Safe(asset("script.js"))),
    )


def _parts(run: Run, level: int, key: str, runs: int) -> list[Safe]:
    """The sections of one run; all runs of a page share a limit for pictures."""
    if isinstance(run, ExperimentRun):
        return [_short(run, level, key), *comparison.experiment_sections(run, level, key)]
    where = differences.departures(run, key, runs) if run.networks else differences.maps(run, runs)
    return [
        _short(run, level, key),
        returns.section(run, level, f"{key}-returns", returns.MOST_FILM // runs),
        *([comparison.beside(run, level, f"{key}-beside")] if run.baselines or run.unfinished else []),
        expertise.section(run, level, f"{key}-who"),
        *([] if run.strengths is None else [situations.section(run, run.strengths, level, f"{key}-situations")]),
        *([] if run.validation is None else [expertise.scores_section(run.validation, level, f"{key}-scores")]),
        *([part(level, "Where they differ", f"{key}-where", *where)] if where else []),
        returns.learning(run, level, f"{key}-curve"),
        data_section(run, level, f"{key}-data"),
    ]


def _short(run: Run, level: int, key: str) -> Safe:
    """The main results."""
    title = "In short"
    if isinstance(run, ExperimentRun):
        points = [*comparison.conclusions(run), *_warned(run.results.warnings)]
        return part(level, title, f"{key}-short", listing(points, "short"))
    points = [returns.conclusions(run)[0]]
    if expertise.has_ranking(run):
        order = expertise.compared(run)
        first, last = order[0], order[-1]
        points.append(
            f"{'Most skilled' if run.by_skill else 'Most precise'}: {first.name} ({number(first.quality.value)}); "
            f"least: {last.name} ({number(last.quality.value)}). {expertise.conclusions(run)[0]}"
        )
    else:
        points.append(expertise.conclusions(run)[0])
    points += [] if run.strengths is None else [situations.conclusion(run)]
    points += _warned(run.warnings)
    return part(level, title, f"{key}-short", listing(points, "short"))


def _warned(warnings: tuple[str, ...]) -> list[Safe]:
    return [join([element("strong", "Warning: "), warning]) for warning in warnings]


def _subject(run: Run) -> str:
    if isinstance(run, ExperimentRun):
        return f"The experiment {run.results.experiment}: {counted(len(run.results.rows), 'result')}."
    way = f"an ensemble of {counted(run.members, 'member')}" if run.members is not None else "a finite MDP"
    algorithm = run.config.get("algorithm", "an algorithm")
    return f"{counted(len(run.people), 'demonstrator')}, {algorithm}, {way}, learnt from {run.config.get('data')}."


def _contents(runs: list[Run]) -> Safe:
    """Links to the parts; of several runs, to the runs."""
    if len(runs) > 1:
        links = [("comparison", "Comparison"), *((f"run-{n}", run.label) for n, run in enumerate(runs))]
    elif isinstance(runs[0], FitRun):
        links = [("run-short", "In short"), ("run-returns", "The policy"), ("run-who", "The demonstrators")]
        if runs[0].networks or runs[0].bias is not None:
            links.append(("run-where", "Where they differ"))
        links += [("run-curve", "Training"), ("run-data", "The data")]
        if runs[0].strengths is not None:
            links.insert(3, ("run-situations", "Strong and weak"))
        if runs[0].validation is not None:
            links.insert(3 + (runs[0].strengths is not None), ("run-scores", "Scores"))
        if runs[0].baselines or runs[0].unfinished:
            links.insert(2, ("run-beside", "Other methods"))
    else:
        links = [("run-short", "In short"), ("run-0", "Returns"), ("run-summary", "Summary")]
    links.append(("reproduce", "Reproduce and cite"))
    return element("nav", listing(element("a", name, href=f"#{key}") for key, name in links), aria_label="Contents")


def _distinct_labels(runs: list[Run]) -> list[Run]:
    """Labels that differ: folders of the same name by their whole path, and the same folder numbered."""
    count = Counter(run.label for run in runs)
    named = [replace(run, label=run.folder) if count[run.label] > 1 else run for run in runs]
    again = Counter(run.label for run in named)
    return [replace(run, label=f"{run.label} ({n})") if again[run.label] > 1 else run for n, run in enumerate(named, 1)]


def data_section(run: FitRun, level: int, key: str) -> Safe:
    """The data that was learned from."""
    if run.facts is None:
        return part(level, "The data", key, paragraph(f"The run names only their file: {run.config.get('data')}."))
    facts, people = run.facts, run.facts.inners("demonstrators")
    seen, done = facts.inner("observation"), facts.inner("action")
    counts = (
        f"{number(facts.whole('transitions'))} transitions in {number(facts.whole('episodes'))} episodes of "
        f"{number(len(people))} demonstrators. Observations: {_kind(seen)}. Actions: {_kind(done)}."
    )
    earned = {row.name: row for row in run.demonstrated}
    rows = [
        (
            person.text("name"), person.whole("episodes"), person.whole("transitions"), person.number("mean_length"),
            earned.get(person.text("name")), person.whole("terminated"), person.whole("truncated"),
        )
        for person in people[:MOST_PEOPLE]
    ]  # fmt: skip
    headings = ["demonstrator", "episodes", "transitions", "mean length", "mean return", "ended", "cut off"]
    more = f"; the first {MOST_PEOPLE} of {len(people)}" if len(people) > MOST_PEOPLE else ""
    odd = [warning for warning in facts.texts("warnings") if warning not in run.warnings]  # which the main results show
    notes = [paragraph("Warnings:"), listing(odd)] if odd else []
    return part(level, "The data", key, paragraph(counts), *notes, table(f"Demonstrations{more}", headings, rows))


def _kind(values: Fields) -> str:
    shape = " × ".join(number(side) for side in values.numbers("shape")) or "one number"
    return f"{shape} ({values.text('dtype')}, from {number(values.number('min'))} to {number(values.number('max'))})"


def reproduce(runs: list[Run], level: int, key: str) -> Safe:
    """The commands, the settings, and the references."""
    commands = [element("pre", element("code", command(run))) for run in runs]
    settings = [details(f"All settings of {run.label}", _settings(run)) for run in runs]
    cite = (
        f"For the method, cite the paper; for the numbers, say irleed {version('irleed')} and the commands above.",
        element("pre", element("code", PAPER)),
    )
    again = paragraph("On the same data and versions, these commands make the same run again:")
    return part(level, "Reproduce and cite", key, again, *commands, *settings, paragraph(cite[0]), cite[1])


def command(run: Run) -> str:
    """The shell command that makes the run again, on one line."""
    if isinstance(run, ExperimentRun):
        return shell(["irleed", "experiment", run.results.experiment, *_flags(run.config), "--out", "AGAIN"])
    reading = run.config.get("reading")
    settings = run.config | (reading if isinstance(reading, dict) else {})
    if "python" in settings:  # some of what was given to `irleed.fit` was in memory
        return f"# in Python: {one_line(settings['python'])}, with the settings below"
    settings["members"] = settings.get("members", settings.get("seeds", "8"))  # as older runs call them
    words = ["irleed", "fit", str(settings.get("data", "DATA"))]
    for name, usual in USUAL.items():
        value = str(settings.get(name, usual))
        if value != usual:
            flag = f"--{name.replace('_', '-')}"
            words += [flag] if usual == "False" else [flag, value]
    own = settings.get("settings")
    for name, value in own.items() if isinstance(own, dict) else ():
        words += ["--set", f"{name}={value}"]
    chosen = settings.get("obs")
    if isinstance(chosen, list) and chosen:
        words += ["--obs", *map(str, chosen)]
    return shell([*words, "--out", "AGAIN"])


def _flags(config: Mapping[str, Any]) -> list[str]:
    """Settings of an experiment as flags of its command."""
    words = []
    for name, value in config.items():
        flag = f"--{name.replace('_', '-')}"
        if name == "out" or value is None or value is False or value == []:
            continue
        words += (
            [flag] if value is True else [flag, *map(str, value)] if isinstance(value, list) else [flag, str(value)]
        )
    return words


def _settings(run: Run) -> Safe:
    rows = [(name, _plain(value)) for name, value in run.config.items()]
    if isinstance(run, FitRun) and run.provenance is not None:
        rows += [(name, _plain(value)) for name, value in run.provenance.items() if name != "config"]
        rows += [(name, _plain(v)) for name, v in run.provenance.get("config", {}).items() if name not in run.config]
    return table(f"Settings of {run.label}", ["setting", "value"], rows, sortable=False)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def made_by(runs: list[Run]) -> Safe:
    """The footer."""
    folders = listed([run.folder for run in runs])
    return paragraph(
        f"Made by irleed {version('irleed')} from {folders}. This page needs no network and no other file."
    )
