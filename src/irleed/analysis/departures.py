r"""Where demonstrators depart most from the shared policy.

The departure of an action $a$ in a situation $s$ is its surprise minus the entropy of the shared policy $\pi$ there,
$-\log \pi(a \mid s) - H(\pi(\cdot \mid s))$: 0 on average for someone who acts by $\pi$, positive for actions that are
improbable under it.
"""

from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.files import write_json
from irleed._typing import Float, Int, Shaped
from irleed.data import Demonstrations, summarise
from irleed.policies import EnsemblePolicy, Policy
from irleed.report.markup import data_uri
from irleed.rollout import demonstrated

VERSION = 1
MOST_LOOKED_AT = 20_000  # transitions, as many of each demonstrator: images are slow
BATCH = 2_000
MOST_POINTS = 600  # of the projection
MOST_PEOPLE = 12  # demonstrators whose situations are listed
TOP, APART = 4, 10  # situations of each, and how many steps they are apart at least in one episode
LONGEST_SIDE = 96  # pixels of a frame
MOST_NUMBERS = 8  # of an observation that is listed


def write(folder: Path, data: Demonstrations, policy: Policy) -> None:
    """Write data.json, facts about the data, and for networks of discrete actions departures.json."""
    rows = [row.plain() for row in demonstrated(data)]
    head = {"format": "irleed-data", "version": VERSION}
    write_json(folder / "data.json", {**head, "facts": summarise(data), "returns": rows})
    if isinstance(policy, EnsemblePolicy) and isinstance(policy.actions, int):
        write_json(folder / "departures.json", departures(data, policy))


def departures(data: Demonstrations, policy: EnsemblePolicy, seed: int = 0) -> dict[str, Any]:
    """A projection of observations, and the situations of largest departure of those who depart most; for JSON."""
    looked_at = _even(np.asarray(data.demonstrator), MOST_LOOKED_AT, seed)
    owner = np.asarray(data.demonstrator)[looked_at]
    score = _log_probabilities(policy, data, looked_at)
    taken = score[np.arange(len(score)), np.asarray(data.action)[looked_at].astype(np.int64)]
    departure = (np.exp(score) * score).sum(1) - taken
    count = np.bincount(owner, minlength=data.demonstrators)
    mean = np.bincount(owner, departure, data.demonstrators) / np.maximum(count, 1)
    people = np.argsort(-mean, kind="stable")[:MOST_PEOPLE].tolist()
    tops = [_tops(data, looked_at, departure, np.flatnonzero(owner == who)) for who in people]
    shown = _even(owner, MOST_POINTS, seed)
    places, explained = _projected(data, looked_at[np.concatenate([shown, *tops])])
    points, *marks = np.split(places, np.cumsum([len(shown), *map(len, tops)])[:-1])

    def situation(row: np.integer, place: np.ndarray) -> dict[str, Any]:
        found = _situation(data, int(looked_at[row]), score[row])
        return found | {"departure": float(departure[row]), "place": place.tolist()}

    situations = [list(map(situation, own, places_of_own)) for own, places_of_own in zip(tops, marks, strict=True)]
    head = {"format": "irleed-departures", "version": VERSION, "looked_at": len(looked_at), "mean": mean.tolist()}
    cloud = {"who": owner[shown].tolist(), "place": points.tolist()}
    cloud["departure"] = departure[shown].round(3).tolist()
    listed = [{"who": who, "situations": own} for who, own in zip(people, situations, strict=True)]
    return {**head, "explained": explained, "points": cloud, "people": listed}


def frame(observation: Shaped[np.ndarray, "..."]) -> str | None:
    """An image observation, or the last of stacked grey ones, as a small picture; None for other observations."""
    if observation.dtype != np.uint8 or observation.ndim not in (2, 3):
        return None
    image = observation
    if image.ndim == 3 and image.shape[-1] not in (1, 3, 4):
        if image.shape[0] > 4:
            return None
        # Channels first: a colour image, or frames one after the other.
        image = image.transpose(1, 2, 0) if image.shape[0] == 3 else image[-1]
    elif image.ndim == 3 and image.shape[-1] == 4:
        image = image[..., -1]
    image = image.reshape(*image.shape[:2], -1)
    step = -(-max(image.shape[:2]) // LONGEST_SIDE)
    return data_uri(np.ascontiguousarray(image[::step, ::step]))


def _even(owner: Int[np.ndarray, " N"], most: int, seed: int) -> Int[np.ndarray, " M"]:
    """Rows in order: all if there are few, else about as many of each demonstrator, sampled at random."""
    if len(owner) <= most:
        return np.arange(len(owner))
    order = np.random.default_rng(seed).permutation(len(owner))
    order = order[np.argsort(owner[order], kind="stable")]
    count = np.bincount(owner[order])
    turn = np.arange(len(order)) - np.repeat(np.cumsum(count) - count, count)  # the first of each, the second ...
    return np.sort(order[np.argsort(turn, kind="stable")[:most]])


def _log_probabilities(
    policy: EnsemblePolicy, data: Demonstrations, chosen: Int[np.ndarray, " M"]
) -> Float[np.ndarray, "M A"]:
    """Log probabilities of all actions, in batches, as images may be many."""
    rows = np.asarray(data.row)[chosen]
    parts = [rows[n : n + BATCH] for n in range(0, len(rows), BATCH)]
    return np.concatenate([policy.log_probabilities(np.asarray(data.obs[part])) for part in parts])


def _tops(
    data: Demonstrations,
    looked_at: Int[np.ndarray, " M"],
    departure: Float[np.ndarray, " M"],
    own: Int[np.ndarray, " K"],
) -> Int[np.ndarray, " T"]:
    """A demonstrator's rows of largest departure, at some distance from each other."""
    found: list[int] = []
    for row in own[np.argsort(-departure[own], kind="stable")].tolist():
        if departure[row] <= 0 or len(found) == TOP:
            break
        # Episodes lie end to end: rows of two of them may be close as well.
        near = [other for other in found if abs(looked_at[other] - looked_at[row]) < APART]
        if all(data.episode[looked_at[other]] != data.episode[looked_at[row]] for other in near):
            found.append(row)
    return np.array(found, np.int64)


def _situation(data: Demonstrations, at: int, score: Float[np.ndarray, " A"]) -> dict[str, Any]:
    """A situation: its place, the observation, the action, and the shared policy's most probable one."""
    episode, action, likeliest = int(data.episode[at]), int(data.action[at]), int(score.argmax())
    observation = np.asarray(data.obs[int(data.row[at])])
    probability, most = (float(np.exp(score[each])) for each in (action, likeliest))
    few = observation.ndim == 1 and observation.size <= MOST_NUMBERS
    return {
        "episode": episode, "step": at - int(data.start[episode]), "action": action, "probability": probability,
        "likeliest": likeliest, "likeliest_probability": most, "observation": observation.tolist() if few else None,
        "frame": frame(observation),
    }  # fmt: skip


def _projected(data: Demonstrations, rows: Int[np.ndarray, " M"]) -> tuple[Float[np.ndarray, "M 2"], list[float]]:
    """The two principal components of standardised observations, and the share of their variance that each has."""
    table = np.asarray(data.obs[np.asarray(data.row)[rows]]).reshape(len(rows), -1).astype(float)
    table -= table.mean(0)
    table /= np.where(table.std(0) > 0, table.std(0), 1.0)
    left, values, right = np.linalg.svd(table, full_matrices=False)
    # A component and its opposite are the same: the largest entry is made positive, so that pages do not differ.
    sign = np.sign(right[np.arange(len(right)), np.abs(right).argmax(1)])
    places = np.zeros((len(rows), 2))
    places[:, : len(values[:2])] = (left * values * sign)[:, :2]
    total = float((values**2).sum()) or 1.0
    return places.round(3), [round(float(value**2) / total, 4) for value in values[:2]]
