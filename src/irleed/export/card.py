"""The card of an exported policy, in Markdown with a head that model hubs read."""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

from irleed._io.text import markdown
from irleed.report.expertise import meaning, ranked
from irleed.report.markup import counted, interval, listed, number
from irleed.report.page import PAPER
from irleed.report.returns import conclusions, demonstrators, policies
from irleed.runs.fields import Fields, refuse
from irleed.runs.kinds import FitRun

HEAD = """---
library_name: irleed
pipeline_tag: reinforcement-learning
tags:
- imitation-learning
- inverse-reinforcement-learning
- learning-from-demonstrations
- {kind}
---
"""
MOST_ROWS = 100
LIMITS = (
    "The policy imitates what was demonstrated, weighted by skill; where nobody was, its actions mean little.",
    "Precision and bias are relative to these demonstrators: 1 is their average precision, not an absolute skill.",
    "Intervals know of the data and the training, not of a model that is wrong.",
    "Nothing here says that the policy is safe on a machine that can do harm: try it in simulation, and bound what it "
    "may do.",
)


def card(run: FitRun, policy: dict[str, Any]) -> str:
    """The whole card: of a run, and of its policy as `irleed.export.description` says it."""
    parts = [
        HEAD.format(kind="neural-network" if run.networks else "tabular"),
        f"# {markdown(run.label)}\n",
        _what(run, policy),
        "## How to use it\n",
        _python(run, policy),
        *(_graph(policy) if "onnx" in policy else ()),
        "In any other language: `policy.json` names the tensors of `policy.safetensors` and says how to compute with "
        "them. Loading runs no code.\n",
        "## The data\n",
        _data(run),
        "## The demonstrators\n",
        _expertise(run),
        "## Returns\n",
        _returns(run),
        "## Training\n",
        _training(run),
        "## Limitations\n",
        "\n".join(f"- {limit}" for limit in (*LIMITS, *map(markdown, run.warnings))) + "\n",
        "## Citation\n",
        f"```bibtex\n{PAPER}\n```\n",
    ]
    return "\n".join(parts)


def _what(run: FitRun, policy: dict[str, Any]) -> str:
    shape = " x ".join(map(str, policy["observation"]["shape"]))
    seen = f"{shape} numbers" if shape else "one number" if run.networks else "the number of a state"
    action = policy["action"]
    does = (
        f"one of {action['count']} actions"
        if action["kind"] == "choice"
        else f"{counted(action['count'], 'number')} within bounds"
    )
    return (
        f"A policy learnt from {counted(len(run.people), 'demonstrator')} of uneven skill by "
        f"{markdown(run.config.get('algorithm', 'irleed'))} "
        f"({policy['kind'] + (f', {run.members} members' if run.networks else '')}). "
        f"It sees {seen} and chooses {does}.\n"
    )


def _python(run: FitRun, policy: dict[str, Any]) -> str:
    shape = policy["observation"]["shape"]
    seen = f"np.zeros({tuple(shape)}, np.{policy['observation']['dtype']})"
    return (
        "```python\n"
        + ("import numpy as np\n" if run.networks else "")
        + 'import irleed\n\npolicy = irleed.load_policy("policy.safetensors")\n'
        + f"action, _ = policy.predict({seen if run.networks else 0}, deterministic=True)\n```\n"
    )


def _graph(policy: dict[str, Any]) -> Iterable[str]:
    shape, dtype = policy["observation"]["shape"], policy["observation"]["dtype"]
    size = ", ".join(map(str, [1, *shape])) + ("" if shape else ",")
    outputs = policy["onnx"]["outputs"]
    yield "Without irleed and JAX, for a batch of observations:\n"
    yield (
        "```python\nimport numpy as np\nimport onnxruntime\n\n"
        'session = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])\n'
        f'{", ".join(outputs)} = session.run(None, {{"observation": np.zeros(({size}), np.{dtype})}})\n```\n'
    )


def _data(run: FitRun) -> str:
    if run.facts is None:
        return "The run says nothing of them.\n"
    facts = run.facts
    seen, done = (_values(facts.inner(part)) for part in ("observation", "action"))
    odd = [f"- {markdown(warning)}" for warning in facts.texts("warnings") if warning not in run.warnings]
    return (
        f"{counted(facts.whole('transitions'), 'transition')} in {counted(facts.whole('episodes'), 'episode')} of "
        f"{counted(len(run.people), 'demonstrator')}. Observations: {seen}. Actions: {done}.\n"
        + ("\nWhat is odd about them:\n\n" + "\n".join(odd) + "\n" if odd else "")
    )


def _values(facts: Fields) -> str:
    sides = facts.numbers("shape") if "shape" in facts else []
    if any(side < 0 or side % 1 for side in sides):
        refuse(f"{facts.where}, shape", sides, "whole numbers from 0")
    shape = " x ".join(str(int(side)) for side in sides) or "one number"
    low, high = (number(facts.number(end)) if end in facts else "?" for end in ("min", "max"))
    return f"{shape} ({markdown(facts.text('dtype'))}, from {low} to {high})"


def _expertise(run: FitRun) -> str:
    rows = [
        (
            markdown(person.name),
            number(person.transitions),
            *(() if person.skill is None else (interval(person.skill),)),
            interval(person.precision),
            "" if person.bias is None else interval(person.bias),
            number(person.weight),
        )
        for person in ranked(run)
    ]
    headings = ("demonstrator", "transitions", *(["skill"] if run.by_skill else []), "precision", "bias", "weight")
    return f"{meaning(run)} 90 % intervals in brackets.\n\n{table(headings, rows)}"


def _returns(run: FitRun) -> str:
    tried = policies(run)
    words = " ".join(map(markdown, conclusions(run))) if tried else "The policy was not tried in an environment."
    rows = [(markdown(row.name), interval(row), number(row.count)) for row in (*tried, *demonstrators(run))]
    return f"{words}\n" + ("\n" + table(("who", "mean return", "episodes"), rows) if rows else "")


def _training(run: FitRun) -> str:
    provenance = run.provenance or {}
    versions = provenance.get("versions")
    told = [f"{markdown(name)} {markdown(own)}" for name, own in versions.items()] if isinstance(versions, dict) else []
    made = f" Made with {listed(told, 20)}." if told else ""
    rows = [(_key(name), markdown(value)) for name, value in _settings(run, provenance).items()]
    took = f"{counted(run.steps, 'step')}, {number(run.seconds)} s.{made}"
    return f"{took}\n\n{table(('setting', 'value'), rows)}"


def _key(name: str) -> str:
    """The name of a setting: as code, unless a stranger made it up."""
    return f"`{name}`" if re.fullmatch(r"[\w.-]+", name) else markdown(name)


def _settings(run: FitRun, provenance: dict[str, Any]) -> dict[str, Any]:
    """What made a difference; where files lay on the machine that made the run is nobody's business."""
    reading = run.config.get("reading")
    places = {name: PurePath(str(run.config[name])).name for name in ("data", "mdp") if name in run.config}
    found = places | (reading if isinstance(reading, dict) else {}) | provenance.get("config", {})
    return {name: value for name, value in found.items() if value not in (None, "None", [], "")}


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; of many rows, the first."""
    lines = [headings, ["---"] * len(headings), *rows[:MOST_ROWS]]
    more = f"\nand {len(rows) - MOST_ROWS} more.\n" if len(rows) > MOST_ROWS else ""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n" + more
