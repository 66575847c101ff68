"""Policies as ONNX graphs of primitive operations, for machines without JAX."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.files import beside
from irleed.data.conditioning import FIELDS, Conditioning
from irleed.errors import library
from irleed.model.actions import LOG_STDS, Softmax, Squashing
from irleed.model.mixed import Mixing
from irleed.model.networks import Activation
from irleed.policies import Actor, EnsemblePolicy, Policy, TabularPolicy

OPSET, IR = 13, 7  # of the year 2020, for old runtimes on robots
NORM_FLOOR = 1e-5  # what `irleed.model.networks.norm_relu` adds to the variance
BATCH = "batch"
OBSERVATION, ACTION = "observation", "action"
SCORES, MEAN, LOG_SPREAD = "log_probabilities", "mean", "log_spread"

Input = tuple[str, Sequence[int]]  # type and shape of one observation
Outputs = dict[str, tuple[str, Sequence[int]]]  # the same of each output


class Graph:
    """A graph under construction, whose operations return the names of their results."""

    def __init__(self) -> None:
        self.onnx: Any = library("onnx", "export")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: Any) -> str:
        """An array under a name."""
        array = np.ascontiguousarray(value)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, operation: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """An operation of the standard; returns the name of its result."""
        result = f"{operation.lower()}.{len(self.nodes)}" if name is None else name
        self.nodes.append(self.onnx.helper.make_node(operation, list(inputs), [result], **attributes))
        return result

    def write(self, path: Path, observation: Input, outputs: Outputs) -> None:
        """The file."""
        helper, kinds = self.onnx.helper, self.onnx.TensorProto

        def values(name: str, kind: str, shape: Sequence[int]) -> Any:
            return helper.make_tensor_value_info(name, getattr(kinds, kind), [BATCH, *shape])

        given = [values(name, *each) for name, each in outputs.items()]
        graph = helper.make_graph(self.nodes, "policy", [values(OBSERVATION, *observation)], given, self.constants)
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, producer_name="irleed", ir_version=IR)
        with beside(path) as file:
            file.write(model.SerializeToString())


def write_graph(policy: Policy, path: Path) -> list[str]:
    """Write a graph that maps a batch of observations to the policy's outputs; returns the names of these."""
    graph = Graph()
    match policy:
        case TabularPolicy():
            observation, outputs = _table(graph, policy)
        case EnsemblePolicy(members=Actor(head=Softmax() as head)):
            observation, outputs = _choices(graph, policy, head)
        case EnsemblePolicy(members=Actor(head=Squashing() as head)):
            observation, outputs = _quantities(graph, policy, head)
        case EnsemblePolicy(members=Actor(head=Mixing() as head)):
            observation, outputs = _mixture(graph, policy, head)
        case _:
            raise TypeError(f"no graph of {type(policy).__name__}")
    graph.write(path, observation, outputs)
    return list(outputs)


def _choices(graph: Graph, policy: EnsemblePolicy, head: Softmax) -> tuple[Input, Outputs]:
    """Log probabilities, means over the members, and the greedy action."""
    x = _perceptrons(graph, policy)
    sharp = graph.constant("sharpness", np.asarray(head.sharpness)[:, None, None])
    each = graph.add("LogSoftmax", graph.add("Mul", x, sharp), axis=-1)
    graph.add("LogSoftmax", graph.add("ReduceMean", each, axes=[0], keepdims=0), name=SCORES, axis=-1)
    graph.add("ArgMax", SCORES, name=ACTION, axis=-1, keepdims=0)
    actions = policy.network.offsets[-1].shape[-1]
    return (_kind(policy), policy.observation_shape), {SCORES: ("FLOAT", [actions]), ACTION: ("INT64", [])}


def _quantities(graph: Graph, policy: EnsemblePolicy, head: Squashing) -> tuple[Input, Outputs]:
    """The greedy action, and the Gaussian to sample others from."""
    together = graph.add("ReduceMean", _perceptrons(graph, policy), axes=[0], keepdims=0)
    size = _gaussian(graph, together, 0, head, ACTION)
    return (_kind(policy), policy.observation_shape), {name: ("FLOAT", [size]) for name in (ACTION, MEAN, LOG_SPREAD)}


def _mixture(graph: Graph, policy: EnsemblePolicy, head: Mixing) -> tuple[Input, Outputs]:
    """The same, and for entries that are choices the log probabilities of their options, concatenated."""
    x, bounds, outputs, at, scores = _perceptrons(graph, policy), head.bounds, {}, 0, {}
    for entry in bounds.choosing:
        count = bounds.options[entry]
        own = graph.add("LogSoftmax", _part(graph, x, at, at + count), axis=-1)
        scores[entry] = graph.add("LogSoftmax", graph.add("ReduceMean", own, axes=[0], keepdims=0), axis=-1)
        at += count
    graph.add("Concat", *scores.values(), name=SCORES, axis=-1)
    outputs[SCORES] = ("FLOAT", [at])
    if any(bounds.free):
        together = graph.add("ReduceMean", x, axes=[0], keepdims=0)
        size = _gaussian(graph, together, at, head.squashing, "inside")
        outputs |= {name: ("FLOAT", [size]) for name in (MEAN, LOG_SPREAD)}
    columns, place = [], 0
    for entry, (values, free) in enumerate(zip(bounds.values, bounds.free, strict=True)):
        number = _part(graph, "inside", place, place + 1) if free else None
        place += free
        if values:
            option = graph.add("ArgMax", scores[entry], axis=-1, keepdims=1)
            listed = graph.constant(f"values.{entry}", np.array([*values, *[0.0] * free], np.float32))
            chosen = graph.add("Gather", listed, option, axis=0)
            none = graph.constant(f"none.{entry}", np.array(len(values), np.int64))
            column = chosen if number is None else graph.add("Where", graph.add("Equal", option, none), number, chosen)
        else:
            column = number
        columns.append(column)
    graph.add("Concat", *columns, name=ACTION, axis=-1)
    return (_kind(policy), policy.observation_shape), {ACTION: ("FLOAT", [bounds.size]), **outputs}


def _gaussian(graph: Graph, together: str, first: int, head: Squashing, name: str) -> int:
    """The greedy action under this name, the mean and the log spread; returns the size of each."""
    middle, half = np.asarray(head.middle)[0], np.asarray(head.half)[0]
    size, (low, high) = len(middle), LOG_STDS
    _part(graph, together, first, first + size, MEAN)
    raw = graph.add("Tanh", _part(graph, together, first + size, first + 2 * size))
    width = graph.constant("half the range of log spreads", np.array(0.5 * (high - low), np.float32))
    centre = graph.constant("middle of the range of log spreads", np.array(0.5 * (high + low), np.float32))
    graph.add("Add", graph.add("Mul", raw, width), centre, name=LOG_SPREAD)
    reached = graph.add("Mul", graph.add("Tanh", MEAN), graph.constant("half", half))
    action = graph.add("Add", reached, graph.constant("middle", middle))
    above = graph.add("Max", action, graph.constant("lowest", middle - half))  # despite rounding
    graph.add("Min", above, graph.constant("highest", middle + half), name=name)
    return size


def _part(graph: Graph, x: str, first: int, last: int, name: str | None = None) -> str:
    """Columns from first to last."""
    number = len(graph.nodes)
    ends = [graph.constant(f"end.{number}.{n}", np.array([end], np.int64)) for n, end in enumerate((first, last, -1))]
    return graph.add("Slice", x, *ends, name=name)


def _table(graph: Graph, policy: TabularPolicy) -> tuple[Input, Outputs]:
    """Log probabilities and the greedy action, looked up."""
    table = np.asarray(policy.probabilities)
    with np.errstate(divide="ignore"):  # actions of probability 0 have log probability -inf
        scores = graph.constant("table", np.log(table).astype(np.float32))
    greedy = graph.constant("likeliest", table.argmax(-1).astype(np.int64))
    graph.add("Gather", scores, OBSERVATION, name=SCORES, axis=0)
    graph.add("Gather", greedy, OBSERVATION, name=ACTION, axis=0)
    return ("INT64", ()), {SCORES: ("FLOAT", [table.shape[1]]), ACTION: ("INT64", [])}


def _perceptrons(graph: Graph, policy: EnsemblePolicy) -> str:
    """K perceptrons of the observations: [K, batch, outputs]."""
    network = policy.network
    entries = int(np.prod(policy.observation_shape))
    rows = (policy.size, 1, -1)
    x = graph.add("Reshape", OBSERVATION, graph.constant("flat", np.array([-1, entries], np.int64)))
    if policy.conditioning is not None:
        x = _conditioned(graph, x, policy.conditioning)
    x = graph.add("Sub", x, graph.constant("centre", np.reshape(network.inputs.centre, rows)))
    x = seen = graph.add("Div", x, graph.constant("spread", np.reshape(network.inputs.spread, rows)))
    for layer, (weight, offset) in enumerate(zip(network.weights, network.offsets, strict=True)):
        x = graph.add("MatMul", x, graph.constant(f"weights.{layer}", weight))
        x = graph.add("Add", x, graph.constant(f"offsets.{layer}", np.reshape(offset, rows)))
        if layer < len(network.weights) - 1:
            x = _activated(graph, x, network.activation)
    if network.direct is not None:
        x = graph.add("Add", x, graph.add("MatMul", seen, graph.constant("direct", network.direct)))
    return x


def _kind(policy: EnsemblePolicy) -> str:
    """The type of observations: double precision where they are conditioned."""
    return "FLOAT" if policy.conditioning is None else "DOUBLE"


def _conditioned(graph: Graph, x: str, conditioning: Conditioning) -> str:
    """Observations conditioned in double precision, then cast to single precision."""
    parts = {name: np.ravel(getattr(conditioning, name)).astype(float) for name in FIELDS}
    centre = graph.constant("conditioning centre", parts["origin"] + parts["remainder"])
    x = graph.add("Sub", x, centre)
    x = graph.add("Div", x, graph.constant("conditioning unit", parts["unit"]))
    x = graph.add("Max", x, graph.constant("conditioning low", parts["low"]))
    x = graph.add("Min", x, graph.constant("conditioning high", parts["high"]))
    return graph.add("Cast", x, to=graph.onnx.TensorProto.FLOAT)


def _activated(graph: Graph, x: str, activation: Activation) -> str:
    if activation == "norm_relu":
        centred = graph.add("Sub", x, graph.add("ReduceMean", x, axes=[-1]))
        variance = graph.add("ReduceMean", graph.add("Mul", centred, centred), axes=[-1])
        floor = graph.constant(f"floor.{len(graph.nodes)}", np.array(NORM_FLOOR, np.float32))
        x = graph.add("Div", centred, graph.add("Sqrt", graph.add("Add", variance, floor)))
    return graph.add("Elu" if activation == "elu" else "Relu", x)
