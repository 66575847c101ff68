"""What was learnt, and how good it is: returns of the policy beside those of every demonstrator."""

from irleed.report import svg
from irleed.report.markup import Safe, element, figure, interval, listed, paragraph, part, table
from irleed.report.runs import Estimate, FitRun

MOST_DRAWN, MOST_ROWS = 40, 500


def section(run: FitRun, level: int, key: str) -> Safe:
    """Returns with intervals, or why there are none."""
    rows = [(row, 1) for row in policies(run)] + [(row, 0) for row in demonstrators(run)]
    words = [paragraph(sentence) for sentence in said(run)]
    if not rows:
        return part(level, "What was learnt, and how good it is", key, *words)
    shown = rows[:MOST_DRAWN]
    more = f" The first {len(shown)} of {len(rows)}." if len(shown) < len(rows) else ""
    drawn = svg.forest(
        shown,
        label=f"Mean return with 90 % interval, from top to bottom: {listed([row.name for row, _ in shown], 12)}. "
        "The table has the values.",
        axis="mean return, with 90 % interval",
    )
    values = table(
        "Mean returns; 90 % intervals of the mean in brackets",
        ["who", "return", "episodes"],
        [(row.name, row, row.count) for row, _ in rows[:MOST_ROWS]],
    )
    caption = "Mean return of an episode: squares are the policy, circles the demonstrators." + more
    return part(
        level,
        "What was learnt, and how good it is",
        key,
        *words,
        element("div", figure(caption, drawn), values, class_="figures"),
    )


def policies(run: FitRun) -> list[Estimate]:
    """What the policy earned; the names of the demonstrators tell its rows from theirs."""
    return list(run.returns[: len(run.returns) - len(_own(run))])


def demonstrators(run: FitRun) -> list[Estimate]:
    """What the demonstrators earned, the best first."""
    found = _own(run) or list(run.demonstrated)
    return sorted(found, key=lambda row: -row.value)


def _own(run: FitRun) -> list[Estimate]:
    """The last rows, where they are the demonstrators', in their order."""
    names = [person.name for person in run.people]
    last = list(run.returns[-len(names) :])
    return last if [row.name for row in last] == names else []


def said(run: FitRun) -> list[str]:
    """How the policy compares with the best demonstrator, as far as the intervals tell."""
    tried, shown = policies(run), demonstrators(run)
    if not tried:
        why = "The policy was not tried in an environment"
        how = "the run says how likely the demonstrations are, not what the policy earns."
        remedy = ["Give --env to a fit of networks to have it tried."] if run.networks else []
        known = "The plot has what the demonstrators earned." if shown else "The data have no rewards either."
        return [f"{why}: {how}", " ".join([*remedy, known])]
    first = tried[0]
    sentence = f"The {first.name}, earned {interval(first)} on average over {first.count} episodes"
    if not shown:
        return [f"{sentence}. The data have no rewards, so there is nothing to compare with."]
    best = shown[0]
    against = f"the best demonstrator, {best.name}, {interval(best)}"
    if not first.apart(best):
        return [f"{sentence}; {against}. The intervals overlap, so neither can be called better."]
    verdict = "more than" if first.value > best.value else "less than"
    return [f"{sentence}: {verdict} {against}. The intervals do not overlap."]
