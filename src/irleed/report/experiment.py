"""The paper's experiments: every method in every setting, with intervals."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from irleed.report import svg
from irleed.report.markup import Safe, counted, details, element, figure, listed, number, paragraph, part, table
from irleed.runs.directory import Fields
from irleed.runs.reader import Estimate, ExperimentRun
from irleed.runs.results import RETURN, Row

MOST_PANELS = 16  # settings that have a plot each; more are a table with colours
MOST_ROWS = 30  # of the summary that are shown at once
STRONGEST = 45  # percent of a colour behind text, which has to stay readable


def sections(run: ExperimentRun, level: int, key: str) -> list[Safe]:
    """What was compared, and how it came out."""
    parts = []
    measure = run.results.measure
    for number_, (task, rows) in enumerate(_tasks(run).items()):
        settings = list(dict.fromkeys(_setting(row) for row in rows if row.learnt))
        what = "Returns" if measure == RETURN else measure
        title = f"{what}: {task}" if task else what
        inside = _panels(rows, settings, measure) if len(settings) <= MOST_PANELS else _maps(rows)
        parts.append(part(level, title, f"{key}-{number_}", *inside, _all(rows, measure)))
    facts = [(name.replace("_", " "), _plain(run, name, value)) for name, value in run.results.summary.items()]
    summary = table("Over all settings; differences with 95 % intervals", ["what", "value"], facts)
    shown = details("All of the summary", summary) if len(facts) > MOST_ROWS else summary
    parts.append(part(level, "Summary", f"{key}-summary", paragraph(_took(run)), shown))
    return parts


def said(run: ExperimentRun) -> list[str]:
    """What came out, in a sentence for each task."""
    sentences = []
    for task, rows in _tasks(run).items():
        if run.results.measure != RETURN:  # one number each: means over settings would mix kinds of correlations
            sentence = run.results.summary.get(task)
            sentences += [f"{task}: {sentence}"] if isinstance(sentence, str) else []
            continue
        means = method_means(rows)
        best = sorted(means, key=lambda name: -means[name])
        where = f"{task}: " if task else ""
        kind = "greedy return over the best demonstrator's" if _relative(rows) else "greedy return"
        settings = counted(len({_setting(row) for row in rows}), "setting")
        shown = listed([f"{name} {number(means[name])}" for name in best], 4)
        sentences.append(f"{where}mean {kind} over {settings}: {shown}.")
    return sentences


def method_means(rows: Sequence[Row]) -> dict[str, float]:
    """The mean over settings of every method's greedy return."""
    greedy = _greedy(rows)
    names = dict.fromkeys(row.name for row in greedy)
    return {name: fmean(_estimate(row).value for row in greedy if row.name == name) for name in names}


def _tasks(run: ExperimentRun) -> dict[str, list[Row]]:
    """Rows by environment; the gridworld experiment has one, which it does not name."""
    found: dict[str, list[Row]] = {}
    for row in run.results.rows:
        found.setdefault(str(row.setting.get("env", "")), []).append(row)
    return found


def _panels(rows: list[Row], settings: list[str], measure: str) -> list[Safe]:
    """A plot for each setting."""
    relative = _relative(rows)
    returns = measure == RETURN
    axis = "return over the best demonstrator's" if relative else "mean return" if returns else measure
    plots = []
    for setting in settings:
        own = [row for row in _greedy(rows) if _setting(row) == setting]
        greedy = [(_estimate(row), 0 if row.name.startswith("IRLEED") else 1) for row in own]
        if not greedy:
            continue
        greedy.sort(key=lambda pair: -pair[0].value)
        label = f"{setting}: {axis}, with 95 % interval, best first: {listed([e.name for e, _ in greedy], 12)}"
        references = [1.0] if relative else [] if returns else [0.0]
        drawn = svg.forest(greedy, label=label, axis=axis, references=references)
        plots.append(figure(setting, drawn))
    how = "By greedy actions, with 95 % intervals over data sets" if returns else "With 95 % intervals over people"
    words = f"{how}; circles are IRLEED, squares the others."
    return [paragraph(words), element("div", *plots, class_="figures")]


def _maps(rows: list[Row]) -> list[Safe]:
    """How much better IRLEED is than IRL, by precision and accuracy of the demonstrators."""
    found = []
    for estimator in dict.fromkeys(row.estimator for row in _greedy(rows)):
        cells: dict[tuple[str, str], dict[str, float]] = {}
        for row in _greedy(rows):
            if row.estimator == estimator:
                place = str(row.setting.get("max_precision")), str(row.setting.get("accuracy"))
                cells.setdefault(place, {})[row.method] = row.mean
        found.append(_map(str(estimator), cells))
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


def _all(rows: list[Row], measure: str) -> Safe:
    shown = []
    for row in rows:
        estimate = _estimate(row) if row.learnt else None
        best = row.evaluation if row.best is None else f"best {number(row.best)}"
        shown.append((_setting(row), row.name, best, row.mean, estimate, row.seeds))
    value = "over the best demonstrator's" if _relative(rows) else "mean, with interval"
    if measure != RETURN:
        shown = [(setting, method, estimate) for setting, method, _, _, estimate, _ in shown]
        return details("All numbers", table(f"{measure}, 95 % intervals", ["setting", "what", measure], shown))
    headings = ["setting", "method", "actions", "mean return", value, "data sets"]
    return details("All numbers", table("Returns with 95 % intervals over data sets", headings, shown))


def _greedy(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.learnt and row.evaluation in (None, "greedy")]


def _relative(rows: Sequence[Row]) -> bool:
    """Whether returns are compared as multiples of the best demonstrator's."""
    return rows[-1].relative is not None


def _setting(row: Row) -> str:
    values = {name: value for name, value in row.setting.items() if name != "env"}
    levels = {"L": "low", "H": "high"}
    return ", ".join(f"{name.replace('_', ' ')} {levels.get(str(value), value)}" for name, value in values.items())


def _estimate(row: Row) -> Estimate:
    if row.relative is None:
        return Estimate(row.name, row.mean, row.ci_low, row.ci_high)
    return Estimate(row.name, row.relative, row.relative_low, row.relative_high)


def _took(run: ExperimentRun) -> str:
    if run.results.seconds is None:
        return "How long the experiment took is not known."
    device = f" on {run.results.device}" if run.results.device else ""
    return f"The experiment took {number(run.results.seconds)} s{device}."


def _plain(run: ExperimentRun, name: str, value: Any) -> object:
    """A number, a difference with its interval, or a number for each demonstrator."""
    if isinstance(value, list):
        found = Fields(f"{run.folder}, results.json, summary", dict(run.results.summary)).numbers(name)
        if "_minus_" in name and len(found) == 3:
            return Estimate(name, found[1], found[0], found[2])
        return ", ".join(map(number, found))
    return value if isinstance(value, int | float | str) else None
