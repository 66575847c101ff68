"""A run as a folder to hand on: the policy for any language, an ONNX graph, and a card that says what it is."""

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from irleed._io.files import TEMPORARY, beside, file_digest, filling, write_signed, writing
from irleed.data.formats import library
from irleed.errors import ConfigError
from irleed.export.card import card
from irleed.export.graph import OBSERVATION, OPSET, write_graph
from irleed.fit.result import Fit
from irleed.model.actions import LOG_STDS
from irleed.policies.base import Policy
from irleed.policies.ensemble import EnsemblePolicy
from irleed.policies.tabular import TabularPolicy
from irleed.runs.directory import POLICY
from irleed.runs.reader import read_fit

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
    "z = mean for the greedy action, or mean + exp(log_spread) * standard normal noise for a drawn one",
    "action = middle[0] + half[0] * tanh(z)",
)
MIXTURE = (
    "for every entry of the action with values, in turn: the next part of x has a score for each of them and, if the "
    "entry is free as well, one for none of them",
    "log probabilities of these options = mean of log_softmax(part of x) over the members; the greedy option is the "
    "most probable one, and the entry is its value",
    "the rest of x is for the entries that are free and not at one of their values:",
)


def export(run: Fit | str | Path, out: str | Path, *, onnx: bool = False) -> Path:
    """Write policy.safetensors, policy.json, README.md and, if asked for, policy.onnx into a new folder.

    `run` is a fit, or the folder of one.

    Nothing is run when these files are loaded: they hold numbers and text. policy.json says all that is needed to write
    the policy again in another language.
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
            name: {"shape": list(array.shape), "dtype": str(array.dtype), "meaning": _meaning(name)}
            for name, array in sorted(load_file(part / POLICY).items())
        }
        described["files"] = {each.name: file_digest(each) for each in sorted(part.iterdir())}
        write_signed(part / DESCRIPTION, described)
        with beside(part / CARD) as file:
            file.write(card(found, described).encode())
    return out


def description(policy: Policy) -> dict[str, Any]:
    """What a policy takes, what it gives, and how it computes; for JSON."""
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


def _meaning(name: str) -> str:
    """Of a tensor, by its name; K is the number of members."""
    meanings = {
        "probabilities": "[state, action]",
        "centre": "[K, *observation]: what is subtracted",
        "spread": "[K, *observation]: what is divided by",
        "origin": "[*observation]: what is subtracted first, in double precision",
        "remainder": "[*observation]: what is subtracted besides",
        "unit": "[*observation]: what is divided by then",
        "low": "[*observation]: the least that is left",
        "high": "[*observation]: the most that is left",
        "sharpness": "[K]: what the last layer's output is multiplied with",
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
    return meanings[name.split(".")[0]]
