"""Pickles read without running anything of them.

A pickle is a program. Its instructions are checked first, the few names it may use stand for functions of this module,
arrays are made only of as many bytes as the file holds, and all that is made of a file counts against one budget: parts
that are stored once may be used many times.
"""

import io
import math
import pickle
import pickletools
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.npz import printable
from irleed.data.formats.base import refuse
from irleed.data.limits import Budget
from irleed.errors import DataError

NUMPY = b"\x93NUMPY"
MODULES = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric")
CODES = set(
    "PROTO FRAME STOP MARK MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 "
    "LONG1 LONG4 BINFLOAT BINSTRING SHORT_BINSTRING SHORT_BINBYTES BINBYTES BINBYTES8 BYTEARRAY8 SHORT_BINUNICODE "
    "BINUNICODE BINUNICODE8 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 "
    "TUPLE3 GLOBAL STACK_GLOBAL REDUCE BUILD".split()
)
DEEPEST = 32  # tuples in tuples, lists in lists: far more than trajectories need, far less than overflows the stack
OPERATION, VALUE, POINTER = 100, 40, 8  # bytes in memory of an instruction, of a value in a list, and of a place in it
OFTEN = 1000  # instructions that are counted together

Take = Callable[[int], None]  # counts bytes against the budget before they are used


class _Array(list):
    """An array that is being read: numbers in `values`, objects as the entries of the list itself."""

    values: np.ndarray | None = None
    shape: tuple[int, ...] = (0,)

    def __init__(self, take: Take) -> None:
        super().__init__()
        self.take = take

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, data = state
        if kind.dtype != object:
            self.values = _numbers(data, kind, shape, "F" if fortran else "C", self.take)
            return
        if type(data) is not list or fortran or math.prod(shape) != len(data) or 0 in shape or len(shape) > DEEPEST:
            raise ValueError("an array of objects with another shape than its entries")
        self.take(POINTER * len(data))
        self[:], self.shape = data, shape


class _Type:
    """The type of an array's entries: numbers, text or objects."""

    __slots__ = ("dtype",)

    def __init__(self, code: str, *_: Any) -> None:
        if not re.fullmatch(r"b1|[iu][1248]|f[248]|U[1-9][0-9]{0,5}|O8?", code):
            raise ValueError(f"entries of type {code[:20]!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        if state[1] == ">":
            self.dtype = self.dtype.newbyteorder(">")


class _Name:
    """What a name in the file stands for: a function of this module, which the file can call but not change."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise ValueError("a change of a function")


def _numbers(data: Any, kind: _Type, shape: Any, order: str, take: Take) -> np.ndarray:
    """An array of exactly these bytes, which are text where Python 2 wrote them."""
    size = len(data) if isinstance(data, str) else memoryview(data).nbytes
    if kind.dtype == object or math.prod(shape) * kind.dtype.itemsize != size or min(shape, default=0) < 0:
        raise ValueError(f"{size} bytes for an array of another size")
    if not isinstance(data, bytes):
        take(size)
        data = data.encode("latin-1") if isinstance(data, str) else bytes(memoryview(data))
    return np.frombuffer(data, kind.dtype).reshape(shape, order="F" if order == "F" else "C")


def _encode(text: str, encoding: str, take: Take) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise ValueError(f"bytes encoded as {encoding[:20]!r}")
    take(len(text))
    return text.encode("latin-1")


def _names(take: Take) -> dict[tuple[str, str], Callable[..., Any]]:
    """What the names stand for that a file may use."""
    calls: dict[str, Callable[..., Any]] = {
        "_reconstruct": lambda *_: _Array(take),
        "scalar": lambda kind, data: _numbers(data, kind, (1,), "C", take)[0],
        "_frombuffer": lambda data, kind, shape, order, *_: _numbers(data, kind, shape, order, take),
    }
    return {(module, name): call for name, call in calls.items() for module in MODULES} | {
        ("numpy", "dtype"): _Type,
        ("numpy", "ndarray"): lambda *_: _Array(take),
        ("_codecs", "encode"): lambda text, encoding: _encode(text, encoding, take),
        ("collections", "defaultdict"): lambda *_: {},  # what IQ-Learn collects trajectories in, of lists
        ("builtins", "list"): lambda: [],
        ("__builtin__", "list"): lambda: [],
    }


class _Unpickler(pickle.Unpickler):
    """Knows `_names`, and imports nothing."""

    def __init__(self, content: bytes, where: str, take: Take) -> None:
        super().__init__(io.BytesIO(content), encoding="latin1")
        self.where, self.names = where, _names(take)

    def find_class(self, module: str, name: str) -> _Name:  # pyright: ignore[reportIncompatibleMethodOverride]
        if (module, name) not in self.names:
            found = ascii(f"{module}.{name}"[:80])
            refuse(
                self.where, f"a pickle that uses {found}", "arrays, lists and numbers only", "do not trust this file"
            )
        return _Name(self.names[module, name])


def _scan(content: bytes, where: str, take: Take) -> None:
    """Refuse instructions that data do not need, and those that would use up the memory or the stack."""
    stack: list[int | None] = []  # how deep tuples are nested in each entry; None is a mark
    memo: dict[int, int | None] = {}
    end = 0
    for count, (code, argument, position) in enumerate(pickletools.genops(content)):
        if not count % OFTEN:
            take(OFTEN * OPERATION)
        end, name = (position or 0) + 1, code.name
        if name not in CODES:
            refuse(where, f"a pickle with {name}", "arrays, lists and numbers only", "do not trust this file")
        if name.endswith("GET"):
            stack.append(memo[argument or 0])
        elif name.endswith("PUT") or name == "MEMOIZE":
            place = len(memo) if argument is None else argument
            if place > count:
                refuse(where, f"a pickle with entry {place}", f"at most {count} here", "do not trust this file")
            memo[place] = stack[-1]
        elif name == "MARK":
            stack.append(None)
        else:
            depth = _pop(stack, code) + name.startswith("TUPLE") if code.stack_before else 0
            if depth > DEEPEST:
                refuse(where, f"more than {DEEPEST} tuples in each other", "trajectories", "do not trust this file")
            stack.extend([depth] * len(code.stack_after))
    if end != len(content):
        refuse(where, f"{len(content) - end} bytes after the pickle", "none", "store one dict a file")


def _pop(stack: list[int | None], code: pickletools.OpcodeInfo) -> int:
    """Take from the stack what an instruction takes; the depth of the deepest of it."""
    taken, single = [0], len(code.stack_before)
    if pickletools.markobject in code.stack_before:
        single = code.stack_before.index(pickletools.markobject)
        while (entry := stack.pop()) is not None:
            taken.append(entry)
    for _ in range(single):
        taken.append(stack.pop() or 0)
    return max(taken)


class _Plain:
    """Makes lists and arrays without objects in them, and counts what they take as one array of numbers or text."""

    def __init__(self, take: Take) -> None:
        self.take, self.uncounted = take, 0
        self.values, self.longest = 0, 0  # NumPy gives every value the room of the longest text

    def of(self, entry: Any) -> Any:
        """All of an entry of the file."""
        plain = self._plain(entry, 0)
        self.take(self.uncounted + self.values * self.longest)
        return plain

    def _plain(self, value: Any, depth: int) -> Any:
        if depth > DEEPEST:
            raise ValueError("parts nested too deeply")
        if isinstance(value, _Array) and value.values is not None:
            value = value.values
        size = 1
        if isinstance(value, np.ndarray):
            size = value.size
            if value.dtype.kind == "U":
                self.longest = max(self.longest, value.dtype.itemsize)
        elif isinstance(value, str | bytes):
            self.longest = max(self.longest, 4 * len(value))
        self.values += size
        self.uncounted += VALUE + POINTER * size  # numbers may become larger ones, like those beside them
        if self.uncounted > OFTEN * VALUE:
            self.take(self.uncounted)
            self.uncounted = 0
        if not isinstance(value, list | tuple):
            return value
        entries = [self._plain(entry, depth + 1) for entry in value]
        for width in value.shape[:0:-1] if isinstance(value, _Array) else ():
            self.take((VALUE + POINTER) * len(entries))
            entries = [entries[i : i + width] for i in range(0, len(entries), width)]
        return entries[0] if isinstance(value, _Array) and value.shape == () else entries


def load(path: Path, budget: Budget) -> dict[str, Any]:
    """The dict in the file, of lists, arrays, numbers and text."""
    where = printable(path)
    take = partial(budget.take, where)
    try:
        budget.admit(path)
        content = path.read_bytes()
        if content.startswith(NUMPY):
            content = content[_header(content) :]
        _scan(content, where, take)
        value = _Unpickler(content, where, take).load()
        if isinstance(value, _Array) and value.shape == () and len(value) == 1:
            value = value[0]
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            got = "an array" if isinstance(value, _Array) else type(value).__name__
            refuse(where, got, "a dict of lists, its keys text", "store it as IQ-Learn does")
        return {key: _Plain(take).of(entry) for key, entry in value.items()}
    except DataError:
        raise
    except Exception as error:  # a broken pickle can raise anything
        refuse(where, ascii(f"{type(error).__name__}: {error}"[:120]), "a sound pickle", "write the file again")


def _header(content: bytes) -> int:
    """Where the pickle begins in a .npy file."""
    width = 2 if content[6] == 1 else 4
    return 8 + width + int.from_bytes(content[8 : 8 + width], "little")
