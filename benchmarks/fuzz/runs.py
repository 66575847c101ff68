"""Hostile run directories and exports: what report, curate, validate and export read when somebody sends a run."""

import json
from pathlib import Path
from typing import Any

from fuzz import links, pictures, policies, values, zips
from fuzz.case import Case
from irleed.data import load, summarise

PERSON = {
    "skill": 0.8, "skill_low": 0.7, "skill_high": 0.9, "precision": 1.0, "precision_low": 0.9, "precision_high": 1.1,
    "bias": 0.2, "bias_low": 0.1, "bias_high": 0.3, "transitions": 6, "weight": 0.5, "log_likelihood": -1.0,
}  # fmt: skip
CONFIG = {
    "data": "poles.npz",
    "algorithm": "irleed",
    "reading": {"demonstrator": "data", "obs": [], "action": None},
    "env": None,
}
FIT = {
    "format": "irleed-fit", "version": 1, "config": CONFIG, "expertise": [{"name": name,
    **PERSON} for name in ("anna", "ben")],
    "steps": 7, "seconds": 1.5, "members": 2, "warnings": ["two members diverged"], "grid": None,
    "returns": [{"who": "policy", "mean": 3.0, "low": 2.0, "high": 4.0, "episodes": 5}],
    "episode_skill": [0.7, 0.9, 0.8], "episode_demonstrator": [0, 1, 0],
}  # fmt: skip
RUN = {"format": "irleed-run", "version": 1, "id": "0123abcd", "created": "2026-01-01T00:00:00+0000", "data": "f" * 64,
       "versions": {"irleed": "0.1.0", "jax": "0.10"}, "config": {"algorithm": "SoftQ", "seeds": 3}}  # fmt: skip
RETURNS = [{"who": "anna", "mean": 1.0, "low": None, "high": None, "episodes": 2}]
DEPARTURES = {
    "format": "irleed-departures", "version": 1, "mean": [0.1, 0.2], "looked_at": 13, "explained": [0.5, 0.2],
    "points": {"who": [0, 1], "place": [[0.0, 1.0], [1.0, 0.0]], "departure": [0.5, 1.0]},
    "people": [{"who": 0, "situations": [{"episode": 0, "step": 1, "action": 1, "probability": 0.1, "likeliest": 0,
    "departure": 2.0,
                "likeliest_probability": 0.9, "place": [0.0, 1.0], "observation": [0.0, 1.0, 2.0]}]}],
}  # fmt: skip
FILM = {
    "format": "irleed-film",
    "version": 1,
    "env": "x",
    "seed": 0,
    "return": 12.0,
    "steps": 12,
    "every": 3,
    "frames": 5,
}
AGREEMENT = {"name": "skill", "trivial": False, "people": 6, "spearman": 0.5, "low": 0.1, "high": 0.8}
VALIDATION = {
    "format": "irleed-validation", "version": 1, "answer": "", "score": "score", "names": ["anna", "ben"],
    "scores": [1.0, 2.0], "values": {"skill": [0.8, 0.8]}, "estimates": [AGREEMENT], "episodes": [], "given": ["steps"],
    "trivial": [AGREEMENT | {"name": "steps", "trivial": True}], "said": "skill adds to it", "notes": ["few people"],
}  # fmt: skip
ROW = {
    "setting": {"demonstrations": 10},
    "method": "irleed",
    "evaluation": "policy",
    "mean": 1.0,
    "std": 0.1,
    "ci_low": 0.9,
    "ci_high": 1.1,
    "seeds": 3,
}
RESULTS = {"version": 1, "experiment": "control", "config": {"environment": "CartPole-v1"}, "rows": [ROW,
    ROW | {"method": "iq"}],
           "summary": {}, "paper": {}, "seconds": 3.0, "device": "cpu"}  # fmt: skip


def sound(path: Path, demonstrations: Path) -> None:
    """A run of networks, with all that a report shows."""
    path.mkdir()
    data = {"format": "irleed-data", "version": 1, "returns": RETURNS, "facts": summarise(load(demonstrations))}
    documents = {"fit.json": FIT, "run.json": RUN, "data.json": data, "departures.json": DEPARTURES, "film.json": FILM,
                 "validation.json": VALIDATION}  # fmt: skip
    for name, content in documents.items():
        (path / name).write_text(json.dumps(content))
    lines = [json.dumps({"step": step, "loss": 1.0 / (1 + step), "seconds": 0.1}) for step in range(5)]
    (path / "history.jsonl").write_text("\n".join(lines) + "\n")
    (path / "film.png").write_bytes(pictures.sound(8, 6))
    (path / "film.webp").write_bytes(pictures.sound(8, 6, "WEBP"))
    header, arrays = policies.network()
    policies.write({"head": header, "arrays": arrays, "said": []}, path / "policy.safetensors")


def documents(case: Case, path: Path) -> None:
    """A JSON file is hostile."""
    found = sorted(file for file in path.glob("*.json") if links.is_small(file))
    if found:
        file = case.pick(found)
        case.note(file.name)
        values.write_json(case, file, json.loads(file.read_text()))


def texts(case: Case, path: Path) -> None:
    """Every name and text in the run is hostile."""
    name = values.name(case)
    case.note(ascii(name)[:40])
    for file in filter(links.is_small, sorted(path.glob("*.json"))):
        said = json.loads(file.read_text())
        for place in values.places(said):
            inner = said
            for key in place[:-1]:
                inner = inner[key]
            if isinstance(inner[place[-1]], str) and place[-1] != "format" and not _kept(place):
                inner[place[-1]] = name
        if case.chance(0.3) and isinstance(said.get("config"), dict):
            said["config"][name] = name
        file.write_text(json.dumps(said))


def _kept(place: tuple[Any, ...]) -> bool:
    """Is it a text that is compared with known ones?"""
    return "reading" in place or place[-1] in ("frame", "method", "evaluation", "algorithm")


def history(case: Case, path: Path) -> None:
    """history.jsonl is hostile."""
    if not links.is_small(path / "history.jsonl"):
        return
    lines = (path / "history.jsonl").read_text().splitlines()
    at = int(case.random.integers(len(lines)))
    kind = case.pick(("line", "line", "many", "deep", "numbers", "steps"))
    case.note(kind)
    if kind == "line":
        lines[at] = values.json_text(case, json.loads(lines[at]))
    elif kind == "many":
        lines *= case.pick((1000, 200_000))
    elif kind == "deep":
        lines[at] = "[" * case.pick((1000, 1_000_000))
    else:
        key = "loss" if kind == "numbers" else "step"
        lines = [
            json.dumps({**json.loads(line), key: case.pick((1e308, -1e308, 1e-320, 0, 10**400, -1, 1e149))})
            for line in lines
        ]
    (path / "history.jsonl").write_bytes(("\n".join(lines) + "\n").encode("utf-8", "surrogatepass"))


def many(case: Case, path: Path) -> None:
    """A document with a list of a hundred thousand entries, or hundreds of megabytes."""
    name, key = case.pick(
        (
            ("fit.json", "expertise"),
            ("fit.json", "returns"),
            ("data.json", "returns"),
            ("departures.json", "people"),
            ("fit.json", "warnings"),
            ("fit.json", "episode_skill"),
            ("validation.json", "estimates"),
            ("validation.json", "notes"),
            ("validation.json", "names"),
        )
    )
    if not links.is_small(path / name):
        return
    said = json.loads((path / name).read_text())
    if case.chance(0.3):
        text = json.dumps(said)[:-1] + ', "more": [' + "[]," * case.size(case.pick((1_000_000, 80_000_000))) + "[]]}"
    else:
        said[key] *= case.size(case.pick((64_000, 100_000)))
        text = json.dumps(said)
    (path / name).write_text(text)


def policy(case: Case, path: Path) -> None:
    """The policy is hostile."""
    if links.is_small(path / "policy.safetensors"):
        policies.made(case, path / "policy.safetensors")


def folder(case: Case, path: Path) -> None:
    """The folder is hostile."""
    case.mutate(path, links.FOLDERS)


def film(case: Case, path: Path) -> None:
    """Pictures that are none."""
    name = case.pick(("film.png", "film.webp"))
    if links.is_small(path / name):
        (path / name).write_bytes(pictures.hostile(case, 8, 6))


def baselines(case: Case, path: Path) -> None:
    """Runs inside the run: many, deep, or the run itself."""
    kind = case.pick(("itself", "above", "deep", "many", "odd"))
    case.note(kind)
    inside = path / "baselines"
    if kind in ("itself", "above"):
        inside.mkdir()
        (inside / "bc").symlink_to({"itself": "../..", "above": ".."}[kind] if case.chance(0.5) else str(path))
        return
    depth = {"deep": 60, "many": 1, "odd": 1}[kind]
    place = path
    for _ in range(depth):
        place = place / "baselines" / "bc"
        place.mkdir(parents=True)
        for file in path.iterdir():
            if links.is_small(file):
                (place / file.name).write_bytes(file.read_bytes())
    for number in range(200 if kind == "many" else 0):
        (inside / f"other {number}").mkdir()
    if kind == "odd":
        name = (
            values.text_without_zero(case)
            .replace("/", "_")
            .encode("utf-8", "surrogatepass")[:200]
            .decode("utf-8", "ignore")
        )
        if name not in ("", ".", ".."):
            (inside / "bc").rename(inside / name)


def experiment(case: Case, path: Path) -> None:
    """It is an experiment."""
    said = json.loads(json.dumps(RESULTS))
    said["experiment"] = case.pick(("control", "gridworld", "atari", "hopper", values.name(case)))
    (path / "results.json").write_bytes(values.json_text(case, said).encode("utf-8", "surrogatepass"))


RUNS = (
    documents,
    documents,
    documents,
    texts,
    texts,
    history,
    many,
    policy,
    policy,
    folder,
    folder,
    folder,
    film,
    baselines,
    experiment,
)


def signed(case: Case, path: Path) -> None:
    """Write checksums that are right, as whoever forges a run would; or wrong ones."""
    if not links.is_small(path / "fit.json"):
        return
    try:
        said = json.loads((path / "fit.json").read_text())
        names = ("policy.safetensors", "data.json", "history.jsonl", "film.png", "departures.json")
        said["files"] = {name: policies.checksum(path / name) for name in names if links.is_small(path / name)}
    except (OSError, ValueError, TypeError, RecursionError):
        return
    if case.chance(0.3):
        name = case.pick(
            (
                "../../outside/secret.txt",
                "/etc/passwd",
                "nowhere",
                ".",
                "policy.safetensors/x",
                "a\0b",
                values.name(case),
            )
        )
        said["files"][name] = case.pick(("0" * 64, 5, None, values.name(case)))
        case.note(f"checksum of {ascii(name)[:30]}")
    (path / "fit.json").write_text(json.dumps(said))


def answered(path: Path) -> None:
    """Make validation.json one about the answer that is there: that of another is not read."""
    if not all(links.is_small(path / name) for name in ("fit.json", "validation.json")):
        return
    try:
        said = json.loads((path / "validation.json").read_text())
        said["answer"] = policies.checksum(path / "fit.json")
        (path / "validation.json").write_text(json.dumps(said))
    except (OSError, ValueError, TypeError, RecursionError):
        return


def run(case: Case) -> Path:
    """A hostile run directory, and data to curate."""
    path = case.home / "run"
    zips.of_columns(zips.demonstrations()).write(case.home / "data.npz")
    sound(path, case.home / "data.npz")
    case.reading["command"] = case.pick(("report", "report", "curate", "validate", "export"))
    case.note(case.reading["command"])
    case.mutate(path, RUNS)
    if case.chance(0.3):
        signed(case, path)
    answered(path)
    (case.home / "scores.csv").write_text("demonstrator,score\nanna,1\nben,2\n")
    return path


DESCRIPTION = {
    "format": "irleed-export",
    "version": 1,
    "loads_with": "irleed.load_policy('policy.safetensors')",
    "kind": "ensemble of perceptrons",
}


def exported(case: Case) -> Path:
    """A hostile export folder; its policy is what is read."""
    path = case.home / "exported"
    path.mkdir()
    header, arrays = policies.network()
    policies.write({"head": header, "arrays": arrays, "said": []}, path / "policy.safetensors")
    files = {"policy.safetensors": policies.checksum(path / "policy.safetensors")}
    (path / "policy.json").write_text(json.dumps(DESCRIPTION | {"files": files if case.chance(0.5) else {}}))
    (path / "README.md").write_text("# A policy\n")
    case.mutate(path, (documents, policy, policy, folder, folder))
    named = path / "policy.safetensors"
    if named.is_symlink():  # what a user names may be a link
        named.unlink()
        policies.made(case, named)
    return named
