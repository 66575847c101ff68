"""The policy: its returns beside those of every demonstrator, and its learning curve."""

from irleed._io.text import name
from irleed.report import svg
from irleed.report.markup import Safe, counted, element, figure, interval, listed, number, paragraph, part, table
from irleed.runs.reader import Estimate, FitRun

MOST_DRAWN, MOST_ROWS = 40, 500
MOST_POINTS, ROWS_OF_CURVE = 400, 40
MOST_FILM = 1_000_000  # characters of films on a page


def section(run: FitRun, level: int, key: str, room: int = MOST_FILM) -> Safe:
    """Returns with intervals, or why there are none, and a recorded episode of at most `room` characters."""
    rows = [(row, 1) for row in policies(run)] + [(row, 0) for row in demonstrators(run)]
    words = [paragraph(sentence) for sentence in conclusions(run)]
    if not rows:
        return part(level, "The policy", key, *words, *_film(run, room))
    shown = rows[:MOST_DRAWN]
    more = f" The first {len(shown)} of {len(rows)}." if len(shown) < len(rows) else ""
    names = listed([row.name for row, _ in shown], 12)
    label = f"Mean return with 90 % interval, from top to bottom: {names}. The table has the values."
    drawn = svg.forest(shown, label=label, axis="mean return, with 90 % interval")
    values = table(
        "Mean returns; 90 % intervals of the mean in brackets",
        ["who", "return", "episodes"],
        [(row.name, row, "computed" if row.exact else row.count) for row, _ in rows[:MOST_ROWS]],
    )
    caption = "Mean return of an episode: squares are the policy, circles the demonstrators." + more
    figures = element("div", figure(caption, drawn), values, class_="figures")
    return part(level, "The policy", key, *words, figures, *_film(run, room))


def _film(run: FitRun, room: int) -> list[Safe]:
    """A film of an episode, which can be hidden as accessibility rules ask; else why there is none."""
    film = run.film
    if film is None:
        return []
    if isinstance(film, str):
        return [paragraph(f"No film of an episode: {film}", kind="note")]
    each = "every step" if film.every == 1 else f"one step in {film.every}"
    caption = (
        f"An episode by the policy's greedy actions, from seed {film.seed}: return {number(film.total)} in "
        f"{counted(film.steps, 'step')}; {each} is shown."
    )
    label = f"{name(run.config.get('env'))}: {caption}"
    moves = len(film.moving) + len(film.still) <= room  # or the still picture has to do
    pictures = (
        *([element("img", src=film.moving, alt=label, class_="moving")] if moves else []),
        element("img", src=film.still, alt=f"{label} A few frames.", class_="still" if moves else None),
    )
    inside = element("figure", element("figcaption", caption), *pictures)
    return [element("details", element("summary", "A film of the policy"), inside, class_="film", open=True)]


def policies(run: FitRun) -> list[Estimate]:
    """Returns of the policy, which come before those of the demonstrators."""
    return list(run.returns[: len(run.returns) - len(_own(run))])


def demonstrators(run: FitRun) -> list[Estimate]:
    """Returns of the demonstrators, the best first."""
    found = _own(run) or list(run.demonstrated)
    return sorted(found, key=lambda row: -row.value)


def _own(run: FitRun) -> list[Estimate]:
    """The last rows of the returns, where they are those of the demonstrators."""
    names = [person.name for person in run.people]
    last = list(run.returns[-len(names) :])
    return last if [row.name for row in last] == names else []


def conclusions(run: FitRun) -> list[str]:
    """The policy compared with the best demonstrator, by the intervals."""
    policy_rows, people = policies(run), demonstrators(run)
    if not policy_rows:
        why = "The policy was not evaluated in an environment" if run.networks else "No true reward of the MDP is known"
        how = "the run has the likelihood of the demonstrations, but no returns of the policy."
        remedy = ["Give --env to evaluate it."] if run.networks else []
        known = "The plot has the demonstrators' returns." if people else "The data have no rewards either."
        return [f"{why}: {how}", " ".join([*remedy, known])]
    if all(row.exact for row in policy_rows):
        return _computed(policy_rows, people)
    first = policy_rows[0]
    sentence = f"The {first.name}, earned {interval(first)} on average over {first.count} episodes"
    if not people:
        return [f"{sentence}. The data have no rewards, so there is nothing to compare with."]
    best = people[0]
    against = f"the best demonstrator, {best.name}, {interval(best)}"
    if not first.apart(best):
        return [f"{sentence}; {against}. The intervals overlap, so neither can be called better."]
    verdict = "more than" if first.value > best.value else "less than"
    return [f"{sentence}: {verdict} {against}. The intervals do not overlap."]


def _computed(policy_rows: list[Estimate], people: list[Estimate]) -> list[str]:
    """The same of a policy in an MDP, whose returns were computed exactly."""
    first, second = policy_rows
    earns = f"The policy earns {interval(first)} by its greedy actions and {interval(second)} by sampled ones, exactly."
    how = (
        "Returns are undiscounted and by the true reward of the MDP: of the policy what is expected over as many steps "
        "as the longest demonstration has, so that it needs no interval; of the demonstrators what they did."
    )
    if not people:
        return [earns, how]
    best = people[0]
    verdicts = [
        "not told apart from" if not row.apart(best) else "more than" if row.value > best.value else "less than"
        for row in (first, second)
    ]
    which = (
        f"Both are {verdicts[0]}" if verdicts[0] == verdicts[1] else "The first is {}, the second {}".format(*verdicts)
    )
    return [f"{earns} {which} what the best demonstrator, {best.name}, earned: {interval(best)}.", how]


def learning(run: FitRun, level: int, key: str) -> Safe:
    """The learning curve, or why there is none."""
    title, took = "Training", f"{counted(run.steps, 'step')} in {number(run.seconds)} s."
    if len(run.history) < 2:
        return part(level, title, key, paragraph(f"{took} The run has no learning curve."))
    measure = run.measure.replace("_", " ")
    points = _thinned(run.history, MOST_POINTS)
    first = f"{number(points[0][1])} at step {number(points[0][0])}"
    label = f"{measure} from {first} to {number(points[-1][1])} at the end"
    drawn = svg.line(points, label=label, across="step", up=measure)
    rows = [(int(x), y) for x, y in _thinned(points, ROWS_OF_CURVE)]
    values = table(f"{measure} by step", ["step", measure], rows, sortable=False)
    of = ", the mean over members" if run.networks else ""
    return part(level, title, key, paragraph(took), figure(f"{measure.capitalize()}{of}.", drawn, values))


def _thinned(points: tuple[tuple[float, float], ...], most: int) -> tuple[tuple[float, float], ...]:
    """At most so many points, evenly spaced from the first to the last."""
    if len(points) <= most:
        return points
    return tuple(points[round(n * (len(points) - 1) / (most - 1))] for n in range(most))
