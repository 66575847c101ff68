"""Perceptrons in safetensors files: written as they are, and read with a check of every shape and number."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from irleed._io.arrays import Tensor
from irleed._typing import Array
from irleed.data.conditioning import FIELDS, Conditioning
from irleed.data.transitions import Inputs
from irleed.model.networks import ACTIVATIONS, Activation, Mlp
from irleed.policies.base import VERSION, read_tensors, write_tensors

MOST_LAYERS = 32  # each is compiled: 300 would take half a minute
POSITIVE = ("spread", "sharpness", "half", "unit")  # what is divided by, or multiplied with
LEAST = float(np.finfo(np.float32).tiny)  # what is smaller is zero on most devices


def write_network(
    path: str | Path, form: str, network: Mlp, others: Mapping[str, Array], conditioning: Conditioning | None
) -> None:
    """Write perceptrons, and arrays that belong to them, as a safetensors file."""
    arrays = {"centre": network.inputs.centre, "spread": network.inputs.spread, **others}
    if conditioning is not None:
        arrays |= {name: getattr(conditioning, name) for name in FIELDS}
    if network.direct is not None:
        arrays["direct"] = network.direct
    for layer, (weight, offset) in enumerate(zip(network.weights, network.offsets, strict=True)):
        arrays |= {f"weights.{layer}": weight, f"offsets.{layer}": offset}
    header = {"format": form, "version": VERSION, "activation": network.activation}
    write_tensors(path, header, {name: np.ascontiguousarray(array) for name, array in arrays.items()})


def read_network(
    path: str | Path, forms: Mapping[str, Mapping[str, int]]
) -> tuple[str, Mlp, dict[str, np.ndarray], Conditioning | None]:
    """What `write_network` wrote: the format, K perceptrons, the arrays that belong to them, and the conditioning.

    `forms` has by format the names of these arrays, and how many axes each has after that of the members.
    """

    def check(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        if header.get("activation") not in list(ACTIVATIONS):  # a list, as what is in the file may be anything
            raise ValueError(f"activation {header.get('activation')}")
        check_shapes(tensors, forms[header["format"]], members=True)

    header, arrays = read_tensors(path, tuple(forms), check, check_numbers)
    network = assembled(arrays, cast(Activation, header["activation"]))
    conditioning = Conditioning(*(arrays[name] for name in FIELDS)) if FIELDS[0] in arrays else None
    return header["format"], network, {name: arrays[name] for name in forms[header["format"]]}, conditioning


def assembled(arrays: Mapping[str, np.ndarray], activation: Activation = "elu") -> Mlp:
    """A perceptron, or several along a leading axis, of arrays that were checked."""
    layers = range(_count(arrays))
    return Mlp(
        inputs=Inputs(arrays["centre"], arrays["spread"]),
        weights=tuple(arrays[f"weights.{layer}"] for layer in layers),
        offsets=tuple(arrays[f"offsets.{layer}"] for layer in layers),
        activation=activation,
        direct=arrays.get("direct"),
    )


def check_shapes(tensors: Mapping[str, Tensor], others: Mapping[str, int], *, members: bool) -> None:
    """Raise a ValueError unless the tensors are layers that follow each other, for each of some members or for one."""
    count = _count(tensors)
    if not 1 <= count <= MOST_LAYERS:
        raise ValueError(f"{count} layers, where 1 to {MOST_LAYERS} are supported")
    conditioned = FIELDS if any(name in tensors for name in FIELDS) else ()
    needed = ("centre", "spread", *others, *conditioned, *_layers(count))
    _check_names(tensors, needed, optional=("direct",))
    other = next((name for name, tensor in tensors.items() if tensor.dtype != np.float32), None)
    if other is not None:
        raise ValueError(f"{other} of type {tensors[other].dtype}, which should be float32")
    axes = int(members)
    leading, observation = tensors["centre"].shape[:axes], tensors["centre"].shape[axes:]
    width = entries = int(np.prod(observation))
    expected: dict[str, tuple[int, ...] | None] = {"spread": tensors["centre"].shape}
    expected |= dict.fromkeys(conditioned, observation)
    for layer in range(count):
        after = tensors[f"offsets.{layer}"].shape[-1:]
        expected |= {f"weights.{layer}": (*leading, width, *after), f"offsets.{layer}": (*leading, *after)}
        width = int(np.prod(after))
    if "direct" in tensors:
        expected["direct"] = (*leading, entries, width)
    for name, more in others.items():
        own = tensors[name].shape
        expected[name] = (*leading, *own[axes:]) if len(own) == axes + more else None
    for name, shape in expected.items():
        if tensors[name].shape != shape or len(leading) != axes:
            raise ValueError(f"layers that do not fit each other: {name} has the shape {tensors[name].shape}")


def check_numbers(arrays: Mapping[str, np.ndarray]) -> None:
    """Raise a ValueError where no finite outputs, or the same for every observation, would come of the numbers."""
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name} with NaN or infinity")
        if name in POSITIVE and not (array >= LEAST).all():
            raise ValueError(f"{name} {array.min():g}, which should be positive")
        if name.startswith("weights.") and not array.any((-2, -1)).all():
            raise ValueError(f"{name} of zeros alone")


def _check_names(found: Mapping[str, object], needed: Sequence[str], optional: Sequence[str]) -> None:
    missing = [name for name in needed if name not in found]
    if missing:
        raise ValueError(f"no tensor {missing[0]}")
    unknown = [name for name in found if name not in (*needed, *optional)]
    if unknown:
        raise ValueError(f"an unknown tensor {unknown[0]}")


def _count(names: Mapping[str, object]) -> int:
    return sum(name.startswith("weights.") for name in names)


def _layers(count: int) -> list[str]:
    return [f"{kind}.{layer}" for layer in range(count) for kind in ("weights", "offsets")]
