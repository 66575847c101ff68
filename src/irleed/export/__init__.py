"""`irleed.export`: a run's policy as a folder of its own, for any language, with an ONNX graph and a model card."""

import contextlib
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from irleed._io.files import TEMPORARY, beside, file_digest, filling, write_signed, writing
from irleed._io.text import markdown
from irleed.errors import ConfigError, library
from irleed.export.graph import OBSERVATION, OPSET, write_graph
from irleed.fit.result import Fit
from irleed.model.actions import LOG_STDS
from irleed.policies import EnsemblePolicy, Policy, TabularPolicy
from irleed.report.expertise import meaning, ranked
from irleed.report.markup import counted, interval, listed, number
from irleed.report.page import PAPER
from irleed.report.returns import conclusions, demonstrators, policies
from irleed.runs.directory import POLICY, Fields, refuse
from irleed.runs.reader import FitRun, read_fit

DESCRIPTION, GRAPH, CARD = "policy.json", "policy.onnx", "README.md"
ACTIVATED = {
    "elu": "x = x if x > 0 else exp(x) - 1",
    "relu": "x = max(x, 0)",
    "norm_relu": "c = x - mean(x), x = max(c / sqrt(mean(c^2) + 0.00001), 0)",
}
CONDITIONED = (
    "in double precision, first: observation = min(max((observation - origin - remainder) / unit, low), high)",
    "then in single precision:",
)
CHOICE = (
    "score[k] = log_softmax(sharpness[k] * x)",
    "log probabilities of the actions = log_softmax(mean of score[k] over the members)",
)
LOW, HIGH = LOG_STDS
QUANTITY = (
    "y = mean of x over the members; its first half is mean, its second half raw",
    f"log_spread = {LOW} + {0.5 * (HIGH - LOW)} * (tanh(raw) + 1)",
    "z = mean for the greedy action, or mean + exp(log_spread) * standard normal noise for a sampled one",
    "action = middle[0] + half[0] * tanh(z)",
)
MIXTURE = (
    "for every entry of the action with values, in turn: the next part of x has a score for each of them and, if the "
    "entry is free as well, one for none of them",
    "log probabilities of these options = mean of log_softmax(part of x) over the members; the greedy option is the "
    "most probable one, and the entry is its value",
    "the rest of x is for the entries that are free and not at one of their values:",
)
MEANINGS = {  # of tensors; K is the number of members
    "probabilities": "[state, action]",
    "centre": "[K, *observation]: the mean, which is subtracted",
    "spread": "[K, *observation]: the standard deviation, a divisor",
    "origin": "[*observation]: subtracted first, in double precision",
    "remainder": "[*observation]: subtracted as well",
    "unit": "[*observation]: the divisor after that",
    "low": "[*observation]: the lower limit after that",
    "high": "[*observation]: the upper limit after that",
    "sharpness": "[K]: the factor of the last layer's output",
    "least": "[K, action]: the lower bounds, the same for all members",
    "most": "[K, action]: the upper bounds, the same for all members",
    "values": "[K, action, value]: the values of entries that are choices, filled up with zeros",
    "count": "[K, action]: how many values an entry has",
    "free": "[K, action]: 1 if an entry can be other numbers as well, else 0",
    "middle": "[K, action]: the middle of the bounds, the same for all members",
    "half": "[K, action]: half the width of the bounds, the same for all members",
    "weights": "[K, inputs, outputs] of a layer",
    "offsets": "[K, outputs] of a layer",
    "direct": "[K, inputs, outputs] from the observation to the last layer's output",
}
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
OTHER_LANGUAGES = (
    "In any other language: `policy.json` names the tensors of `policy.safetensors` and says how to compute with "
    "them. Loading runs no code.\n"
)
LIMITS = (
    "The policy imitates what was demonstrated, weighted by skill; far from these, its actions mean little.",
    "Precision and bias are relative to these demonstrators: 1 is their average precision, not an absolute skill.",
    "Intervals cover the variation of data and training, not a misspecified model.",
    "Nothing here shows that the policy is safe on a machine that can do harm: test it in simulation, and limit its "
    "actions.",
)


def export(run: Fit | str | Path, out: str | Path, *, onnx: bool = False) -> Path:
    """Write policy.safetensors, policy.json, README.md and, if asked for, policy.onnx into a new folder.

    `run` is a fit, or the folder of one.

    Loading these files runs no code: they hold numbers and text. policy.json describes all that is needed to implement
    the policy in another language.
    """
    if isinstance(run, Fit):
        with tempfile.TemporaryDirectory() as folder:
            return export(run.save(Path(folder) / "run"), out, onnx=onnx)
    out = Path(out)
    if onnx:
        library("onnx", "export")  # before anything is written
    found = read_fit(Path(run))
    policy = found.policy
    described = description(policy)
    with contextlib.ExitStack() as stack:
        stack.enter_context(writing(f"--out {out}", "choose another place, or make room there"))
        if out.exists() and (not out.is_dir() or any(not TEMPORARY.fullmatch(each.name) for each in out.iterdir())):
            got = "a folder with something in it" if out.is_dir() else "a file"
            raise ConfigError(f"--out {out}", got=got, expected="a new folder", remedy="choose another")
        part = stack.enter_context(filling(out))
        policy.save(part / POLICY)
        if onnx:
            given = write_graph(policy, part / GRAPH)
            described["onnx"] = {"file": GRAPH, "opset": OPSET, "input": OBSERVATION, "outputs": given}
        described["tensors"] = {
            name: {"shape": list(array.shape), "dtype": str(array.dtype), "meaning": MEANINGS[name.split(".")[0]]}
            for name, array in sorted(load_file(part / POLICY).items())
        }
        described["files"] = {each.name: file_digest(each) for each in sorted(part.iterdir())}
        write_signed(part / DESCRIPTION, described)
        with beside(part / CARD) as file:
            file.write(card(found, described).encode())
    return out


def description(policy: Policy) -> dict[str, Any]:
    """Inputs, outputs and computation of a policy, for JSON."""
    head = {"format": "irleed-export", "version": 1, "loads_with": f"irleed.load_policy({POLICY!r})"}
    if isinstance(policy, TabularPolicy):
        states, actions = np.shape(policy.probabilities)
        return head | {
            "kind": "table",
            "observation": {"shape": [], "dtype": "int64", "range": [0, states - 1], "meaning": "number of a state"},
            "action": {"kind": "choice", "count": actions},
            "computation": ["probabilities[observation, action] is the probability of the action"],
        }
    if not isinstance(policy, EnsemblePolicy):
        raise TypeError(f"no description of {type(policy).__name__}")
    network, actions = policy.network, policy.actions
    last = len(network.weights) - 1
    if isinstance(actions, int):
        action: dict[str, Any] = {"kind": "choice", "count": actions}
        computation = CHOICE
    else:
        action = {"kind": "numbers", "count": actions.size, "low": actions.low.tolist(), "high": actions.high.tolist()}
        computation = QUANTITY
        if actions.choosing:
            action |= {"values": list(map(list, actions.values)), "free": list(actions.free)}
            computation = (*MIXTURE, *QUANTITY, "there, middle = (most + least) / 2 and half = (most - least) / 2")
    conditioned = policy.conditioning is not None
    between = "0" if last == 1 else f"N = 0 to {last - 1}, one after the other"
    direct = "" if network.direct is None else " + seen @ direct[k]"
    hidden = f"x = x @ weights.N[k] + offsets.N[k], then {ACTIVATED[network.activation]}, for layer {between}"
    return head | {
        "kind": "ensemble of perceptrons",
        "observation": {"shape": list(policy.observation_shape), "dtype": "float64" if conditioned else "float32"},
        "action": action,
        "members": policy.size,
        "layers": last + 1,
        "activation": network.activation,
        "computation": [
            *(CONDITIONED if conditioned else ()),
            "for every member k: x = seen = (observation - centre[k]) / spread[k], flattened in row-major order",
            *([hidden] if last else []),
            f"x = x @ weights.{last}[k] + offsets.{last}[k]{direct}",
            *computation,
        ],
    }


def card(run: FitRun, policy: dict[str, Any]) -> str:
    """The model card of a run, whose policy is described by `description`."""
    use = [_python(run, policy), *(_graph(policy) if "onnx" in policy else ()), OTHER_LANGUAGES]
    limits = [f"- {limit}\n" for limit in (*LIMITS, *map(markdown, run.warnings))]
    sections = {
        "How to use it": "\n".join(use),
        "The data": _data(run),
        "The demonstrators": _expertise(run),
        "Returns": _returns(run),
        "Training": _training(run),
        "Limitations": "".join(limits),
        "Citation": f"```bibtex\n{PAPER}\n```\n",
    }
    head = HEAD.format(kind="neural-network" if run.networks else "tabular")
    title = f"# {markdown(run.label)}\n"
    return "\n".join([head, title, _what(run, policy), *(f"## {name}\n\n{text}" for name, text in sections.items())])


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
        return "The run has no summary of the data.\n"
    facts = run.facts
    seen, done = (_values(facts.inner(part)) for part in ("observation", "action"))
    odd = [f"- {markdown(warning)}" for warning in facts.texts("warnings") if warning not in run.warnings]
    return (
        f"{counted(facts.whole('transitions'), 'transition')} in {counted(facts.whole('episodes'), 'episode')} of "
        f"{counted(len(run.people), 'demonstrator')}. Observations: {seen}. Actions: {done}.\n"
        + ("\nWarnings:\n\n" + "\n".join(odd) + "\n" if odd else "")
    )


def _values(facts: Fields) -> str:
    sides = facts.numbers("shape") if "shape" in facts else []
    if any(side < 0 or side % 1 for side in sides):
        refuse(f"{facts.where}, shape", sides, "whole numbers from 0")
    shape = " x ".join(str(int(side)) for side in sides) or "one number"
    low, high = (number(facts.number(end)) if end in facts else "?" for end in ("min", "max"))
    return f"{shape} ({markdown(facts.text('dtype'))}, from {low} to {high})"


def _expertise(run: FitRun) -> str:
    rows = []
    for person in ranked(run):
        skill = () if person.skill is None else (interval(person.skill),)
        estimates = *skill, interval(person.precision), "" if person.bias is None else interval(person.bias)
        rows.append((markdown(person.name), number(person.transitions), *estimates, number(person.weight)))
    headings = ("demonstrator", "transitions", *(["skill"] if run.by_skill else []), "precision", "bias", "weight")
    return f"{meaning(run)} 90 % intervals in brackets.\n\n{table(headings, rows)}"


def _returns(run: FitRun) -> str:
    tried = policies(run)
    words = " ".join(map(markdown, conclusions(run))) if tried else "The policy was not evaluated in an environment."
    rows = [(markdown(row.name), interval(row), number(row.count)) for row in (*tried, *demonstrators(run))]
    return f"{words}\n" + ("\n" + table(("who", "mean return", "episodes"), rows) if rows else "")


def _training(run: FitRun) -> str:
    provenance = run.provenance or {}
    versions = provenance.get("versions")
    used = [f"{markdown(name)} {markdown(own)}" for name, own in versions.items()] if isinstance(versions, dict) else []
    made = f" Made with {listed(used, 20)}." if used else ""
    rows = [(_key(name), markdown(value)) for name, value in _settings(run, provenance).items()]
    took = f"{counted(run.steps, 'step')}, {number(run.seconds)} s.{made}"
    return f"{took}\n\n{table(('setting', 'value'), rows)}"


def _key(name: str) -> str:
    """The name of a setting, as code if it looks like one."""
    return f"`{name}`" if re.fullmatch(r"[\w.-]+", name) else markdown(name)


def _settings(run: FitRun, provenance: dict[str, Any]) -> dict[str, Any]:
    """Settings that are not None or empty, and names of files without their private folders."""
    reading = run.config.get("reading")
    places = {name: PurePath(str(run.config[name])).name for name in ("data", "mdp") if name in run.config}
    found = places | (reading if isinstance(reading, dict) else {}) | provenance.get("config", {})
    return {name: value for name, value in found.items() if value not in (None, "None", [], "")}


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table of the first rows."""
    lines = [headings, ["---"] * len(headings), *rows[:MOST_ROWS]]
    more = f"\nand {len(rows) - MOST_ROWS} more.\n" if len(rows) > MOST_ROWS else ""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n" + more
