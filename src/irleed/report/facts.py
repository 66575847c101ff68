"""The data, how to make the run again, and what to cite."""

import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from irleed._io.text import one_line, shell
from irleed.report.markup import Safe, details, element, listed, listing, number, paragraph, part, table
from irleed.runs.directory import Fields
from irleed.runs.reader import ExperimentRun, FitRun, Run

MOST_PEOPLE = 200
# What `irleed fit` does unless told otherwise: a command that says it would be long, and no clearer.
USUAL = {
    "algorithm": "irleed", "estimator": "map", "planner": "soft", "members": "8", "steps": "None", "ends": "neutral",
    "seed": "0", "mdp": "None", "env": "None", "discount": "0.95", "endless": "False", "demonstrator": "data",
    "action": "None", "clip": "False", "baselines": "False", "expansion": "100.0",
}  # fmt: skip
PAPER = """@inproceedings{beliaev2025irleed,
  title     = {Inverse Reinforcement Learning by Estimating Expertise of Demonstrators},
  author    = {Beliaev, Mark and Pedarsani, Ramtin},
  booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence (AAAI-25)},
  year      = {2025},
  note      = {Extended version: arXiv:2402.01886}
}"""


def section(run: FitRun, level: int, key: str) -> Safe:
    """What was learnt from."""
    if run.facts is None:
        return part(level, "The data", key, paragraph(f"The run says only where they were: {run.config.get('data')}."))
    facts, people = run.facts, run.facts.inners("demonstrators")
    seen, done = facts.inner("observation"), facts.inner("action")
    said = (
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
    odd = [warning for warning in facts.texts("warnings") if warning not in run.warnings]  # those are said in short
    notes = [paragraph("What is odd about them:"), listing(odd)] if odd else []
    return part(level, "The data", key, paragraph(said), *notes, table(f"Who showed what{more}", headings, rows))


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
    """What to type to make the run again, elsewhere; one line, in which every word is quoted that needs to be."""
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
            words += [f"--{name}"] if usual == "False" else [f"--{name}", value]
    own = settings.get("settings")
    for name, value in own.items() if isinstance(own, dict) else ():
        words += ["--set", f"{name}={value}"]
    chosen = settings.get("obs")
    if isinstance(chosen, list) and chosen:
        words += ["--obs", *map(str, chosen)]
    return shell([*words, "--out", "AGAIN"])


def _flags(config: Mapping[str, Any]) -> list[str]:
    """Settings of an experiment as its command takes them."""
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
    """The last line of the page."""
    folders = listed([run.folder for run in runs])
    return paragraph(
        f"Made by irleed {version('irleed')} from {folders}. This page needs no network and no other file."
    )
