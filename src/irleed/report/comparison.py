"""Runs side by side, methods beside a fit, and experiments: every method in every setting, with intervals."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any

from irleed.report import returns, svg
from irleed.report.expertise import compared, has_ranking, ranked
from irleed.report.markup import Safe, counted, details, element, figure, listed, number, paragraph, part, table
from irleed.runs.directory import Fields
from irleed.runs.reader import Estimate, ExperimentRun, FitRun, Person, Run
from irleed.runs.results import METHODS, RETURN, Row

MOST_PEOPLE = 12
MOST_PANELS = 16  # settings that have a plot each; more are a table with colours
MOST_ROWS = 30  # of the summary that are shown at once
STRONGEST = 45  # percent of a colour behind text, which has to stay readable


def section(runs: list[Run], level: int, key: str) -> Safe:
    """Fits compared with fits, and experiments with experiments."""
    fits = [run for run in runs if isinstance(run, FitRun)]
    experiments = [run for run in runs if isinstance(run, ExperimentRun)]
    inside = []
    if fits:
        files = {_file(run.config.get("data")) for run in fits}
        known = ["data"] if len(files) == 1 and len(fits) > 1 else []  # each run's section says it
        known += ["algorithm"] if all(run.label == run.config.get("algorithm") for run in fits) else []
        inside = [_same_data(fits), _overview("Runs; 90 % intervals in brackets", "run", fits, *known), _plots(fits)]
    if experiments:
        means = [method_means(run.results.rows) for run in experiments]
        methods = list(dict.fromkeys(name for mean in means for name in mean))
        rows = [(method, *(mean.get(method) for mean in means)) for method in methods]
        caption = "Mean over settings of every method's greedy return; settings may differ between runs"
        inside.append(table(caption, ["method", *(run.label for run in experiments)], rows))
    return part(level, "Comparison", key, *inside)


def beside(run: FitRun, level: int, key: str) -> Safe:
    """One fit compared with the baselines that were fitted with it."""
    order = {_method(name): place for place, name in enumerate(METHODS)}
    called = [replace(each, label=_method(each.config.get("algorithm"))) for each in (run, *run.baselines)]
    called[1:] = sorted(called[1:], key=lambda each: order.get(each.label, len(order)))
    lost = listed([_method(name) for name in run.unfinished])
    notes = [paragraph(f"Left out, as their training did not finish: {lost}.", kind="note")] if lost else []
    size = ", and ensembles of the same size" if run.networks else ""
    playing = [each.label for each in called if str(each.config.get("env")) != "None"]
    if run.networks and 0 < len(playing) < len(called):
        size += f"; {listed(playing)} learnt in the environment, the others from the data alone"
    note = (
        f"The same data{size}. Log likelihood is that of an action of the demonstrators as "
        "each method models them, on its training data: how well the demonstrators are described, not how good the "
        "policy is."
    )
    values = _overview("Methods; 90 % intervals in brackets", "method", called, "algorithm", "data")
    return part(level, "Other methods", key, paragraph(note), *notes, values, _plots(called))


def _method(name: object) -> str:
    return METHODS.get(str(name), str(name))


def _likelihood(run: FitRun) -> float | None:
    """The mean log likelihood of an action."""
    known = [(person.log_likelihood, person.transitions) for person in run.people if person.log_likelihood is not None]
    total = sum(transitions for _, transitions in known)
    return sum(value * transitions for value, transitions in known) / total if total else None


def _overview(caption: str, first: str, runs: list[FitRun], *left_out: str) -> Safe:
    """A row for each run, without empty columns and those `left_out`."""
    rows = [
        {
            first: run.label,
            "algorithm": run.config.get("algorithm"),
            "data": _file(run.config.get("data")),
            "steps": run.steps,
            **dict(zip_longest(("return, greedy actions", "return, sampled actions"), returns.policies(run)[:2])),
            "log likelihood": _likelihood(run),
            "ranked first": compared(run)[0].name if has_ranking(run) else "does not rank",
        }
        for run in runs
    ]
    shown = [key for key in rows[0] if key not in left_out and any(row[key] is not None for row in rows)]
    return table(caption, shown, [[row[key] for key in shown] for row in rows])


def _plots(runs: list[FitRun]) -> Safe:
    skilled = [(n, run) for n, run in enumerate(runs) if run.by_skill]
    ranking = [(n, run) for n, run in enumerate(runs) if has_ranking(run)]
    skills = _estimates(skilled, "skill", lambda person: person.skill, (0.0, 1.0))
    precisions = _estimates(ranking, "precision", lambda person: person.precision, (1.0,), log=True)
    plots = [_returns(runs), skills, precisions]
    return element("div", *(plot for plot in plots if plot is not None), class_="figures")


def _file(path: object) -> str | None:
    """The name of a file; its folders are private."""
    return None if path is None else Path(str(path)).name


def _same_data(runs: list[FitRun]) -> Safe:
    """Whether the runs come from the same data."""
    facts = [None if run.facts is None else run.facts.plain() for run in runs]
    if any(fact is None for fact in facts):
        return paragraph("Not all runs have a summary of their data: compare them only if the data are the same.")
    if any(fact != facts[0] for fact in facts):
        return paragraph("The runs come from different data, which may explain differences.", kind="warning")
    return paragraph("The data of all runs agree in every count and range.")


def _returns(runs: list[FitRun]) -> Safe | None:
    rows = [(named(row, run.label), n) for n, run in enumerate(runs) for row in returns.policies(run)[:1]]
    if not rows:
        return None
    shown = returns.demonstrators(runs[0])
    if shown:
        rows.append((named(shown[0], f"best: {shown[0].name}"), len(runs)))
    label = f"Mean return of each run's policy: {listed([f'{e.name} {number(e.value)}' for e, _ in rows])}"
    axis = "mean return, with 90 % interval"
    return figure(
        "Mean return of each policy with greedy actions, and of the best demonstrator.",
        svg.forest(rows, label=label, axis=axis),
    )


def _estimates(
    numbered: list[tuple[int, FitRun]],
    what: str,
    of: Callable[[Person], Estimate | None],
    references: tuple[float, ...],
    *,
    log: bool = False,
) -> Safe | None:
    """One estimate of each demonstrator in every run that has it; runs have their numbers, which are colours."""
    if len(numbered) < 2:
        return None
    names = [person.name for person in ranked(numbered[0][1])][:MOST_PEOPLE]
    by_run = [(n, run, {p.name: found for p in run.people if (found := of(p)) is not None}) for n, run in numbered]
    pairs = [(name, *each) for name in names for each in by_run if name in each[-1]]
    rows = [(named(known[name], f"{name} · {run.label}"), n) for name, n, run, known in pairs]
    label = f"{what.capitalize()} of {listed(names, MOST_PEOPLE)} in {listed([run.label for _, run in numbered])}"
    drawn = svg.forest(rows, label=label, axis=f"{what}, with 90 % interval", log=log, references=references)
    headings = ["demonstrator", *(run.label for _, run in numbered)]
    cells = [(name, *(known.get(name) for _, _, known in by_run)) for name in names]
    values = table(f"{what.capitalize()} in each run", headings, cells)
    caption = f"{what.capitalize()} of each demonstrator in each run: a colour and a shape for each run."
    return figure(caption, drawn, values)


def named(estimate: Estimate, name: str) -> Estimate:
    """The same under another name."""
    return Estimate(name, estimate.value, estimate.low, estimate.high, estimate.count)


def experiment_sections(run: ExperimentRun, level: int, key: str) -> list[Safe]:
    """The results of an experiment: a section for each environment, and the summary."""
    parts = []
    measure = run.results.measure
    for place, (task, rows) in enumerate(_tasks(run).items()):
        settings = list(dict.fromkeys(_setting(row) for row in rows if row.learnt))
        what = "Returns" if measure == RETURN else measure
        title = f"{what}: {task}" if task else what
        inside = _panels(rows, settings, measure) if len(settings) <= MOST_PANELS else _maps(rows)
        parts.append(part(level, title, f"{key}-{place}", *inside, _all(rows, measure)))
    facts = [(name.replace("_", " "), _plain(run, name, value)) for name, value in run.results.summary.items()]
    summary = table("Over all settings; differences with 95 % intervals", ["what", "value"], facts)
    shown = details("All of the summary", summary) if len(facts) > MOST_ROWS else summary
    took = "How long the experiment took is not known."
    if run.results.seconds is not None:
        device = f" on {run.results.device}" if run.results.device else ""
        took = f"The experiment took {number(run.results.seconds)} s{device}."
    parts.append(part(level, "Summary", f"{key}-summary", paragraph(took), shown))
    return parts


def conclusions(run: ExperimentRun) -> list[str]:
    """The main result in a sentence for each environment."""
    sentences = []
    for task, rows in _tasks(run).items():
        if run.results.measure != RETURN:  # means over settings would mix kinds of correlations
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


def _plain(run: ExperimentRun, name: str, value: Any) -> object:
    """A number, a difference with its interval, or a number for each demonstrator."""
    if isinstance(value, list):
        found = Fields(f"{run.folder}, results.json, summary", dict(run.results.summary)).numbers(name)
        if "_minus_" in name and len(found) == 3:
            return Estimate(name, found[1], found[0], found[2])
        return ", ".join(map(number, found))
    return value if isinstance(value, int | float | str) else None
