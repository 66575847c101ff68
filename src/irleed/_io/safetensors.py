"""Safetensors files that anyone may have made: all that the header claims is checked before an array is read.

Such a file is the header's length in eight bytes, the header as JSON (type, shape and place of every tensor, and texts
under ``__metadata__``), and the numbers one after the other. Writing is the library's part.
"""

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from irleed._io import text as _text
from irleed.errors import DataError

METADATA, OURS = "__metadata__", "irleed"
MOST_HEADER = 1 << 20  # bytes; a policy's header has a few thousand
MOST_AXES = 8
TYPES = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}


class Tensor(NamedTuple):
    """What a header says of a tensor."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int  # byte in the file

    @property
    def size(self) -> int:
        """Bytes of its numbers."""
        return math.prod(self.shape) * self.dtype.itemsize


@contextlib.contextmanager
def refusing(path: str | os.PathLike[str], expected: str) -> Iterator[None]:
    """Turn what is wrong with a file, said by a ValueError or the file system, into one line that names the file."""
    try:
        yield
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        remedy = "name another file, or copy it again"
        got = _text.one_line(error)
        raise DataError(_text.printable(path), got=got, expected=expected, remedy=remedy) from error


def read_header(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What irleed wrote beside the tensors, empty if nothing, and the tensors by name; a ValueError says what is wrong.

    No tensor lies outside of the file or over another one, or has an axis of length 0.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # reading a pipe might never end
        raise ValueError("a folder, device or pipe")
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or not 2 <= length <= min(MOST_HEADER, size - 8):
            raise ValueError("a file without a safetensors header, or with half of one")
        entries = _json(stream.read(length))
    texts = entries.pop(METADATA, {})
    if not isinstance(texts, dict) or not isinstance(texts.get(OURS, ""), str):
        raise ValueError(f"a header with other things than texts in {METADATA}")
    found = {name: _tensor(name, entry, 8 + length) for name, entry in entries.items()}
    end = 8 + length
    for tensor in sorted(found.values(), key=lambda tensor: tensor.start):
        if tensor.start != end:
            raise ValueError("tensors that overlap or leave gaps")
        end += tensor.size
    if end != size:
        raise ValueError(f"{size} bytes, and a header that says {end}")
    return _json(texts.get(OURS, "{}").encode()), found


def read_arrays(path: str | os.PathLike[str], tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """The numbers of tensors that `read_header` found."""
    with Path(path).open("rb") as stream:
        return {name: _array(stream, tensor) for name, tensor in tensors.items()}


def _array(stream: Any, tensor: Tensor) -> np.ndarray:
    stream.seek(tensor.start)
    return np.fromfile(stream, tensor.dtype, math.prod(tensor.shape)).reshape(tensor.shape)


def _json(text: bytes) -> dict[str, Any]:
    """An object in which no name comes twice: which of the two holds would be up to the reader."""
    found = json.loads(text.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
    if not isinstance(found, dict):
        raise ValueError("a header that is no JSON object")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a header in which a name comes twice")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"a header with the number {name}")


def _tensor(name: str, entry: Any, start: int) -> Tensor:
    """What one entry of the header says; places in it are counted from the header's end, which is at byte `start`."""
    where = f"tensor {_text.name(name)}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{where} without dtype, shape and data_offsets")
    dtype, shape, place = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in TYPES:
        raise ValueError(f"{where} of type {_text.one_line(dtype, 20)}, which is not one of {', '.join(TYPES)}")
    if not _whole(shape) or len(shape) > MOST_AXES or not all(shape):
        raise ValueError(f"{where} of shape {_text.one_line(shape, 60)}")
    found = Tensor(TYPES[dtype], tuple(shape), start + place[0] if _whole(place) and len(place) == 2 else -1)
    if found.start < start or place[1] - place[0] != found.size:
        raise ValueError(f"{where} of shape {_text.one_line(shape, 60)} in bytes {_text.one_line(place, 60)}")
    return found


def _whole(values: Any) -> bool:
    """Whether it is a list of whole numbers from 0."""
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)
