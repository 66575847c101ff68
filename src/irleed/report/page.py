"""The page: one HTML file that needs no network and no other file."""

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from irleed._io.files import beside
from irleed.errors import ConfigError
from irleed.report import compare, differences, experiment, expertise, facts, returns, validation
from irleed.report.markup import Safe, counted, element, join, listed, listing, number, paragraph, part
from irleed.runs.directory import REPORT
from irleed.runs.reader import ExperimentRun, FitRun, Run, read_run


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
    content = page([read_run(folder) for folder in folders]).encode()
    try:
        with beside(path) as file:
            file.write(content)
    except OSError as error:
        got, remedy = error.strerror or str(error), "choose another with --out"
        raise ConfigError(f"--out {path}", got=got, expected="a place to write", remedy=remedy) from error
    return path


def page(runs: list[Run]) -> str:
    """The whole page, the same for the same runs."""
    runs = _told_apart(runs)
    single = len(runs) == 1
    title = f"irleed report: {listed([run.label for run in runs])}"
    if single:
        parts = _parts(runs[0], 2, "run", 1)
    else:
        parts = [compare.section(runs, 2, "comparison")]
        parts += [
            part(2, f"Run {run.label}", f"run-{n}", *_parts(run, 3, f"run-{n}", len(runs)))
            for n, run in enumerate(runs)
        ]
    parts.append(facts.reproduce(runs, 2, "reproduce"))
    lead = paragraph(_subject(runs[0]) if single else f"{counted(len(runs), 'run')} side by side.", kind="lead")
    body = (
        element("a", "Skip to the content", href="#content", class_="skip"),
        element("header", element("h1", title), lead),
        _contents(runs),
        element("main", *parts, id="content", tabindex="-1"),
        element("footer", facts.made_by(runs)),
        element("script", Safe(_own("script.js"))),
    )
    return f"<!DOCTYPE html>\n{element('html', _head(title), element('body', *body), lang='en')}\n"


def _head(title: str) -> Safe:
    """Nothing is fetched, and no script runs but the page's own, whatever the data hold."""
    digest = base64.b64encode(hashlib.sha256(_own("script.js").encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Safe(_own("style.css"))),
    )


def _parts(run: Run, level: int, key: str, runs: int) -> list[Safe]:
    """The sections of one run among so many, which share the room for pictures."""
    if isinstance(run, ExperimentRun):
        return [_short(run, level, key), *experiment.sections(run, level, key)]
    where = differences.departures(run, key, runs) if run.networks else differences.maps(run, runs)
    return [
        _short(run, level, key),
        returns.section(run, level, f"{key}-returns", returns.MOST_FILM // runs),
        *([compare.beside(run, level, f"{key}-beside")] if run.baselines or run.unfinished else []),
        expertise.section(run, level, f"{key}-who"),
        *([] if run.validation is None else [validation.section(run.validation, level, f"{key}-scores")]),
        *([part(level, "Where they differ", f"{key}-where", *where)] if where else []),
        returns.learning(run, level, f"{key}-curve"),
        facts.section(run, level, f"{key}-data"),
    ]


def _short(run: Run, level: int, key: str) -> Safe:
    """What to take away, first."""
    title = "In short"
    if isinstance(run, ExperimentRun):
        said = [*experiment.said(run), *_warned(run.results.warnings)]
        return part(level, title, f"{key}-short", listing(said, "short"))
    points = [returns.said(run)[0]]
    if expertise.judged(run):
        order = expertise.compared(run)
        first, last = order[0], order[-1]
        points.append(
            f"{'Most skilled' if run.by_skill else 'Most precise'}: {first.name} ({number(first.quality.value)}); "
            f"least: {last.name} ({number(last.quality.value)}). {expertise.said(run)[0]}"
        )
    else:
        points.append(expertise.said(run)[0])
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
        if runs[0].validation is not None:
            links.insert(3, ("run-scores", "Scores"))
        if runs[0].baselines or runs[0].unfinished:
            links.insert(2, ("run-beside", "Other methods"))
    else:
        links = [("run-short", "In short"), ("run-0", "Returns"), ("run-summary", "Summary")]
    links.append(("reproduce", "Reproduce and cite"))
    return element("nav", listing(element("a", name, href=f"#{key}") for key, name in links), aria_label="Contents")


def _told_apart(runs: list[Run]) -> list[Run]:
    """Folders of the same name are called by their whole path, and one that is named twice is numbered."""
    count = Counter(run.label for run in runs)
    named = [replace(run, label=run.folder) if count[run.label] > 1 else run for run in runs]
    again = Counter(run.label for run in named)
    return [replace(run, label=f"{run.label} ({n})") if again[run.label] > 1 else run for n, run in enumerate(named, 1)]


def _own(name: str) -> str:
    """A file that comes with the package."""
    return (files("irleed") / "report" / name).read_text(encoding="utf-8")
