"""The paper's experiments: every method in every setting, with intervals."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from irleed.report import svg
from irleed.report.markup import Safe, counted, details, element, figure, listed, number, paragraph, part, table
from irleed.runs.fields import Fields
from irleed.runs.kinds import Estimate, ExperimentRun

NAMES = {"irleed": "IRLEED", "iq": "IQ-Learn", "ileed": "ILEED", "bc": "cloning", "sqil": "SQIL", "maxent": "IRL"}
MOST_PANELS = 16  # settings that have a plot each; more are a table with colours
MOST_ROWS = 30  # of the summary that are shown at once
STRONGEST = 45  # percent of a colour behind text, which has to stay readable


def sections(run: ExperimentRun, level: int, key: str) -> list[Safe]:
    """What was compared, and how it came out."""
    parts = []
    for number_, (task, rows) in enumerate(_tasks(run).items()):
        settings = list(dict.fromkeys(_setting(row) for row in rows if row.text("method") != "demonstrators"))
        title = f"Returns: {task}" if task else "Returns"
        inside = _panels(rows, settings) if len(settings) <= MOST_PANELS else _maps(rows)
        parts.append(part(level, title, f"{key}-{number_}", *inside, _all(rows)))
    facts = [(name.replace("_", " "), _plain(run, name, value)) for name, value in run.summary.items()]
    took = f"{number(run.seconds)} s" + (f" on {run.device}" if run.device else "")
    summary = table("Over all settings; differences with 95 % intervals", ["what", "value"], facts)
    shown = details("All of the summary", summary) if len(facts) > MOST_ROWS else summary
    parts.append(part(level, "Summary", f"{key}-summary", paragraph(f"The experiment took {took}."), shown))
    return parts


def said(run: ExperimentRun) -> list[str]:
    """What came out, in a sentence for each task."""
    sentences = []
    for task, rows in _tasks(run).items():
        means = method_means(rows)
        best = sorted(means, key=lambda name: -means[name])
        where = f"{task}: " if task else ""
        kind = "greedy return over the best demonstrator's" if "relative" in rows[-1] else "greedy return"
        settings = counted(len({_setting(row) for row in rows}), "setting")
        shown = listed([f"{name} {number(means[name])}" for name in best], 4)
        sentences.append(f"{where}mean {kind} over {settings}: {shown}.")
    return sentences


def method_means(rows: Sequence[Fields]) -> dict[str, float]:
    """The mean over settings of every method's greedy return."""
    greedy = [row for row in rows if "evaluation" in row and row.text("evaluation") == "greedy"]
    names = dict.fromkeys(_method(row) for row in greedy)
    return {name: fmean(_value(row) for row in greedy if _method(row) == name) for name in names}


def _tasks(run: ExperimentRun) -> dict[str, list[Fields]]:
    """Rows by environment; the gridworld experiment has one, which it does not name."""
    found: dict[str, list[Fields]] = {}
    for row in run.rows:
        found.setdefault(str(row.inner("setting").plain().get("env", "")), []).append(row)
    return found


def _panels(rows: list[Fields], settings: list[str]) -> list[Safe]:
    """A plot for each setting."""
    relative = "relative" in rows[-1]
    axis = "return over the best demonstrator's" if relative else "mean return"
    plots = []
    for setting in settings:
        own = [row for row in rows if _setting(row) == setting and row.text("method") != "demonstrators"]
        greedy = [
            (_estimate(row), 0 if "IRLEED" in _method(row) else 1) for row in own if row.text("evaluation") == "greedy"
        ]
        if not greedy:
            continue
        greedy.sort(key=lambda pair: -pair[0].value)
        label = f"{setting}: {axis}, with 95 % interval, best first: {listed([e.name for e, _ in greedy], 12)}"
        drawn = svg.forest(greedy, label=label, axis=axis, reference=1.0 if relative else None)
        plots.append(figure(setting, drawn))
    words = "By greedy actions, with 95 % intervals over data sets; circles are IRLEED, squares the others."
    return [paragraph(words), element("div", *plots, class_="figures")]


def _maps(rows: list[Fields]) -> list[Safe]:
    """How much better IRLEED is than IRL, by precision and accuracy of the demonstrators."""
    greedy = [row for row in rows if "evaluation" in row and row.text("evaluation") == "greedy"]
    found = []
    for estimator in dict.fromkeys(row.text("estimator") for row in greedy):
        cells: dict[tuple[str, str], dict[str, float]] = {}
        for row in greedy:
            if row.text("estimator") == estimator:
                setting = row.inner("setting").plain()
                place = str(setting.get("max_precision")), str(setting.get("accuracy"))
                cells.setdefault(place, {})[row.text("method")] = row.number("mean")
        found.append(_map(estimator, cells))
    words = (
        "IRLEED's improvement over IRL in percent, by the demonstrators' largest precision and by their accuracy: blue "
        "is better, orange worse."
    )
    return [paragraph(words), *found]


def _map(estimator: str, cells: dict[tuple[str, str], dict[str, float]]) -> Safe:
    down, across = (list(dict.fromkeys(place[n] for place in cells)) for n in (0, 1))

    def cell(place: tuple[str, str]) -> Safe | None:
        means = cells.get(place, {})
        if not means.get("maxent") or "irleed" not in means:
            return None
        percent = 100 * (means["irleed"] - means["maxent"]) / abs(means["maxent"])
        strength = min(abs(percent), 100) / 100 * STRONGEST
        colour = "over" if percent >= 0 else "under"
        style = f"background: color-mix(in srgb, var(--{colour}) {strength:.0f}%, transparent)"
        return element("span", f"{percent:.0f}".replace("-0", "0").replace("-", "−"), class_="heat", style=style)

    rows = [(p, *(cell((p, a)) for a in across)) for p in reversed(down)]
    caption = f"Improvement in percent, estimator {estimator}: largest precision downwards, accuracy across"
    return element("div", table(caption, ["", *across], rows, sortable=False), class_="tight")


def _all(rows: list[Fields]) -> Safe:
    shown = []
    for row in rows:
        if row.text("method") == "demonstrators":
            best = f"best {number(row.number('best'))}" if "best" in row else None
            shown.append((_setting(row), "demonstrators", best, row.number("mean"), None, None))
        else:
            seeds = row.whole("seeds")
            shown.append(
                (_setting(row), _method(row), row.text("evaluation"), row.number("mean"), _estimate(row), seeds)
            )
    value = "over the best demonstrator's" if "relative" in rows[-1] else "mean, with interval"
    headings = ["setting", "method", "actions", "mean return", value, "data sets"]
    return details("All numbers", table("Returns with 95 % intervals over data sets", headings, shown))


def _setting(row: Fields) -> str:
    values = {name: value for name, value in row.inner("setting").plain().items() if name != "env"}
    levels = {"L": "low", "H": "high"}
    return ", ".join(f"{name.replace('_', ' ')} {levels.get(str(value), value)}" for name, value in values.items())


def _method(row: Fields) -> str:
    first, *rest = row.text("method").split("_")
    estimator = [row.text("estimator")] if "estimator" in row else []
    return " ".join([NAMES.get(first, first), *rest, *estimator])


def _value(row: Fields) -> float:
    return row.number("relative") if "relative" in row else row.number("mean")


def _estimate(row: Fields) -> Estimate:
    return Estimate(_method(row), _value(row), row.number("ci_low"), row.number("ci_high"))


def _plain(run: ExperimentRun, name: str, value: Any) -> object:
    """A number, or a difference with its interval."""
    if isinstance(value, list):
        found = Fields(f"{run.folder}, results.json, summary", run.summary).numbers(name)
        return Estimate(name, found[1], found[0], found[2]) if len(found) == 3 else listed(found)
    return value if isinstance(value, int | float | str) else None
