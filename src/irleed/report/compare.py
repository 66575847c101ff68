"""Several runs side by side: what each earned, and whether they agree on the demonstrators."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from irleed.report import experiment, returns, svg
from irleed.report.expertise import compared, judged, ranked
from irleed.report.markup import Safe, element, figure, listed, number, paragraph, part, table
from irleed.runs.reader import Estimate, ExperimentRun, FitRun, Person, Run
from irleed.runs.results import METHODS

MOST_PEOPLE = 12


def section(runs: list[Run], level: int, key: str) -> Safe:
    """Fits beside fits, experiments beside experiments."""
    fits = [run for run in runs if isinstance(run, FitRun)]
    experiments = [run for run in runs if isinstance(run, ExperimentRun)]
    inside = [*(_fits(fits) if fits else []), *(_experiments(experiments) if experiments else [])]
    return part(level, "Comparison", key, *inside)


def beside(run: FitRun, level: int, key: str) -> Safe:
    """One fit beside the other methods that were fitted with it."""
    order = {_method(name): place for place, name in enumerate(METHODS)}
    called = [replace(each, label=_method(each.config.get("algorithm"))) for each in (run, *run.baselines)]
    called[1:] = sorted(called[1:], key=lambda each: order.get(each.label, len(order)))
    lost = listed([_method(name) for name in run.unfinished])
    notes = [paragraph(f"Not here, as training did not come to an end: {lost}.", kind="note")] if lost else []
    size = ", and ensembles of the same size" if run.networks else ""
    playing = [each.label for each in called if str(each.config.get("env")) != "None"]
    if run.networks and 0 < len(playing) < len(called):
        size += f"; {listed(playing)} learnt by playing, the others from the data alone"
    said = (
        f"The same data{size}. Log likelihood is that of an action of the demonstrators as "
        "each method models them, on the data that it learnt from: how well they are described, not how good the "
        "policy is."
    )
    values = _overview("Methods; 90 % intervals in brackets", "method", called, "algorithm", "data")
    return part(level, "Other methods", key, paragraph(said), *notes, values, _plots(called))


def _method(name: object) -> str:
    return METHODS.get(str(name), str(name))


def _likelihood(run: FitRun) -> float | None:
    """Of an action, on average over all."""
    known = [(person.log_likelihood, person.transitions) for person in run.people if person.log_likelihood is not None]
    total = sum(transitions for _, transitions in known)
    return sum(value * transitions for value, transitions in known) / total if total else None


def _fits(runs: list[FitRun]) -> list[Safe]:
    files = {_file(run.config.get("data")) for run in runs}
    said = ["data"] if len(files) == 1 and len(runs) > 1 else []  # by every run's own facts
    said += ["algorithm"] if all(run.label == run.config.get("algorithm") for run in runs) else []
    return [_alike(runs), _overview("Runs; 90 % intervals in brackets", "run", runs, *said), _plots(runs)]


def _overview(caption: str, first: str, runs: list[FitRun], *left_out: str) -> Safe:
    """A row for each run; columns that have nothing to say, or nothing new, are left out."""
    rows = [
        {
            first: run.label,
            "algorithm": run.config.get("algorithm"),
            "data": _file(run.config.get("data")),
            "steps": run.steps,
            **dict(zip(("return, greedy actions", "return, sampled actions"), _two(run), strict=True)),
            "log likelihood": _likelihood(run),
            "ranked first": compared(run)[0].name if judged(run) else "does not rank",
        }
        for run in runs
    ]
    shown = [key for key in rows[0] if key not in left_out and any(row[key] is not None for row in rows)]
    return table(caption, shown, [[row[key] for key in shown] for row in rows])


def _plots(runs: list[FitRun]) -> Safe:
    plots = [_returns(runs), _skills(runs), _precisions(runs)]
    return element("div", *(plot for plot in plots if plot is not None), class_="figures")


def _file(path: object) -> str | None:
    """The name alone: the folders before it are somebody's own."""
    return None if path is None else Path(str(path)).name


def _two(run: FitRun) -> tuple[object, object]:
    tried = returns.policies(run)
    return (tried[0] if tried else None, tried[1] if len(tried) > 1 else None)


def _alike(runs: list[FitRun]) -> Safe:
    """Whether the runs can be compared at all."""
    facts = [None if run.facts is None else run.facts.plain() for run in runs]
    if any(fact is None for fact in facts):
        return paragraph("Not all runs say what data they come from: compare them only if you know it.")
    if any(fact != facts[0] for fact in facts):
        return paragraph("The runs come from different data: differences may be those of the data.", kind="warning")
    return paragraph("All runs come from data that are the same in every count and range.")


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


def _skills(runs: list[FitRun]) -> Safe | None:
    return _estimates(
        [(n, run) for n, run in enumerate(runs) if run.by_skill], "skill", lambda person: person.skill, (0.0, 1.0)
    )


def _precisions(runs: list[FitRun]) -> Safe | None:
    judging = [(n, run) for n, run in enumerate(runs) if judged(run)]
    return _estimates(judging, "precision", lambda person: person.precision, (1.0,), log=True)


def _estimates(
    judging: list[tuple[int, FitRun]],
    what: str,
    of: Callable[[Person], Estimate | None],
    references: tuple[float, ...],
    *,
    log: bool = False,
) -> Safe | None:
    """One estimate of each demonstrator in every run that judges it."""
    if len(judging) < 2:
        return None
    names = [person.name for person in ranked(judging[0][1])][:MOST_PEOPLE]
    by_run = [(n, run, {p.name: found for p in run.people if (found := of(p)) is not None}) for n, run in judging]
    rows = [
        (named(known[name], f"{name} · {run.label}"), n) for name in names for n, run, known in by_run if name in known
    ]
    label = f"{what.capitalize()} of {listed(names, MOST_PEOPLE)} in {listed([run.label for _, run in judging])}"
    drawn = svg.forest(rows, label=label, axis=f"{what}, with 90 % interval", log=log, references=references)
    values = table(
        f"{what.capitalize()} in each run",
        ["demonstrator", *(run.label for _, run in judging)],
        [(name, *(known.get(name) for _, _, known in by_run)) for name in names],
    )
    caption = f"{what.capitalize()} of each demonstrator in each run: a colour and a shape for each run."
    return figure(caption, drawn, values)


def named(estimate: Estimate, name: str) -> Estimate:
    """The same under another name."""
    return Estimate(name, estimate.value, estimate.low, estimate.high, estimate.count)


def _experiments(runs: list[ExperimentRun]) -> list[Safe]:
    means = [experiment.method_means(run.results.rows) for run in runs]
    methods = list(dict.fromkeys(name for mean in means for name in mean))
    rows = [(method, *(mean.get(method) for mean in means)) for method in methods]
    caption = "Mean over settings of every method's greedy return; settings may differ between runs"
    return [table(caption, ["method", *(run.label for run in runs)], rows)]
