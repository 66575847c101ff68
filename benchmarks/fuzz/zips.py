"""Hostile `.npz` archives: bombs, entries that lie about their size or place, arrays that claim more than there is."""

import io
import os
import pickle
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import bombs, values
from fuzz.case import SECRET, Case

GIGABYTE = 1 << 30
STORED, DEFLATED, BZIP2, LZMA = 0, 8, 12, 14


@dataclass
class Entry:
    """A file of an archive; the sizes and the place that its header claims are the true ones unless set."""

    name: bytes
    data: bytes  # as stored
    size: int  # decompressed
    crc: int
    method: int = STORED
    flags: int = 0
    claims: dict[str, int] = field(default_factory=dict)  # size, stored, offset, as the directory says
    local: bytes | None = None  # the name that stands before the data
    extra: bytes = b""

    @classmethod
    def of(cls, name: str | bytes, content: bytes, method: int = STORED) -> "Entry":
        """An honest entry."""
        data, raw = content, name if isinstance(name, bytes) else name.encode("utf-8", "surrogatepass")
        if method == DEFLATED:
            press = zlib.compressobj(9, zlib.DEFLATED, -15)
            data = press.compress(content) + press.flush()
        flags = 0x800 if not raw.isascii() else 0
        return cls(raw[:65535], data, len(content), zlib.crc32(content), method, flags)


@dataclass
class Archive:
    """What is written as a zip file."""

    entries: list[Entry]
    count: int | None = None  # as the end record claims
    prefix: bytes = b""
    comment: bytes = b""

    def find(self, name: str) -> Entry | None:
        """The first entry of an array."""
        return next((entry for entry in self.entries if entry.name == f"{name}.npy".encode()), None)

    def write(self, path: Path) -> None:
        """Write the file."""
        body, directory = io.BytesIO(self.prefix), io.BytesIO()
        body.seek(0, 2)
        for entry in self.entries:
            said = {"size": entry.size, "stored": len(entry.data), "offset": body.tell()} | entry.claims
            sizes = (min(said["stored"], 0xFFFFFFFF), min(said["size"], 0xFFFFFFFF))
            extra = entry.extra
            if 0xFFFFFFFF in sizes:
                full = (said["size"], said["stored"])
                extra += struct.pack("<HHQQ", 1, 16, *full)
                sizes = (0xFFFFFFFF, 0xFFFFFFFF)
            head = struct.pack("<HHHHHIII", 45, entry.flags, entry.method, 0, 33, entry.crc, *sizes)
            local = entry.name if entry.local is None else entry.local
            body.write(b"PK\3\4" + head + struct.pack("<HH", len(local), len(extra)) + local + extra + entry.data)
            directory.write(b"PK\1\2" + struct.pack("<H", 45) + head)
            directory.write(
                struct.pack("<HHHHHII", len(entry.name), len(extra), 0, 0, 0, 0, said["offset"] & 0xFFFFFFFF)
            )
            directory.write(entry.name + extra)
        count = (len(self.entries) if self.count is None else self.count) & 0xFFFF
        end = struct.pack("<HHHHIIH", 0, 0, count, count, directory.tell(), body.tell() & 0xFFFFFFFF, len(self.comment))
        path.write_bytes(body.getvalue() + directory.getvalue() + b"PK\5\6" + end + self.comment)


def npy(array: Any) -> bytes:
    """An array as a `.npy` file; objects are pickled."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), allow_pickle=True)
    return stream.getvalue()


def header(descr: str, shape: str, order: str = "False", version: int = 1) -> bytes:
    """The head of a `.npy` file that says this."""
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    width = 2 if version == 1 else 4
    text += b" " * (-(len(text) + 7 + width) % 64) + b"\n"
    if len(text) >= 1 << 16 and version == 1:
        return header(descr, shape, order, 2)
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(width, "little") + text


def of_columns(columns: dict[str, Any], method: int = DEFLATED) -> Archive:
    """An archive as `numpy.savez` writes it."""
    return Archive([Entry.of(f"{name}.npy", npy(values), method) for name, values in columns.items()])


def chosen(case: Case, archive: Archive) -> Entry:
    """One of its entries; of a file of nothing, a new one."""
    if not archive.entries:
        archive.entries.append(Entry.of("obs.npy", npy(np.zeros(3))))
    return case.pick(archive.entries)


def bomb(case: Case, archive: Archive) -> None:
    """An array of gigabytes of zeros, in one of the ways that zip archives compress."""
    entry, size = chosen(case, archive), case.size(case.pick((GIGABYTE // 4, GIGABYTE, 3 * GIGABYTE)))
    shape = case.pick((f"({size // 8},)", f"({size // 24}, 3)", f"(1, {size // 8})"))
    begin, method = header("'<f8'", shape), case.pick((DEFLATED, DEFLATED, BZIP2, LZMA))
    size, case.applied[-1] = -(-size // bombs.BLOCK) * bombs.BLOCK, f"bomb of {size >> 20} MiB, method {method}"
    if method == DEFLATED:
        press = zlib.compressobj(9, zlib.DEFLATED, -15)
        entry.data = press.compress(begin) + press.flush(zlib.Z_FULL_FLUSH) + bombs.deflated(size)
        entry.crc, entry.size = bombs.checksum(zlib.crc32(begin), size), len(begin) + size
    else:  # without a header, which would have to be compressed with the zeros
        size = case.size(GIGABYTE)
        entry.data = bombs.bzipped(case, size) if method == BZIP2 else bombs.lzma_alone(case, size)
        entry.crc, entry.size = bombs.checksum(0, size), size
        entry.flags |= 2 if method == LZMA else 0
    entry.method = method
    if case.chance(0.4):
        entry.name = case.pick((b"unknown.npy", b"readme.txt", b"data.pkl"))
    if case.chance(0.3):
        entry.claims["size"] = case.pick((0, 100, 1 << 40))


def nested(case: Case, archive: Archive) -> None:
    """Compressed data inside compressed data."""
    inner = bombs.gzipped(case.size(GIGABYTE))
    archive.entries.append(Entry.of(case.pick(("obs.npy", "inner.gz", "inner.npz")), inner, DEFLATED))


def lies(case: Case, archive: Archive) -> None:
    """The directory claims other sizes, places, methods or checksums."""
    entry = chosen(case, archive)
    kind = case.pick(("size", "stored", "offset", "method", "flags", "crc", "count", "local name"))
    case.note(kind)
    large = case.pick((0, 1, 77, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1))
    if kind in ("size", "stored"):
        entry.claims[kind] = large
    elif kind == "offset":
        entry.claims[kind] = large % (1 << 32)
    elif kind == "method":
        entry.method = case.pick((1, 9, 12, 14, 93, 95, 98, 99))
    elif kind == "flags":
        entry.flags ^= 1 << int(case.random.integers(14))
    elif kind == "crc":
        entry.crc ^= 1
    elif kind == "count":
        archive.count = case.pick((0, 1, 2, 65535))
    else:
        entry.local = case.pick((b"", b"other.npy", b"x" * 60000))


def overlapping(case: Case, archive: Archive) -> None:
    """Entries that share their data, so that the archive is small and its content is not."""
    size, many = case.pick((1 << 20, 1 << 26)), case.pick((3, 1000, 5000))
    begin = header("'<f8'", f"({size // 8},)")
    archive.entries.insert(0, Entry.of("obs.npy", begin + bytes(size), DEFLATED))
    shared = archive.entries[0]
    for number in range(many):
        name = case.pick(("action.npy", "reward.npy")) if case.chance(0.01) else f"{number}.npy"
        again = Entry(
            name.encode(), b"", shared.size, shared.crc, DEFLATED, claims={"offset": 0, "stored": len(shared.data)}
        )
        again.local = b""
        archive.entries.append(again)


def same_names(case: Case, archive: Archive) -> None:
    """An entry is there twice, with other content."""
    entry = chosen(case, archive)
    archive.entries.insert(int(case.random.integers(2)), Entry.of(entry.name, npy(np.zeros(case.whole(1, 1000)))))


def entry_names(case: Case, archive: Archive) -> None:
    """An entry has a hostile name."""
    raw = values.name(case).encode("utf-8", "surrogatepass")[:65530]
    chosen(case, archive).name = raw + (b".npy" if case.chance(0.5) else b"")


def claims(case: Case, archive: Archive) -> None:
    """An array claims a shape or type that its bytes do not have."""
    entry = chosen(case, archive)
    shape = case.pick(
        ("(1099511627776,)", "(4611686018427387904,)", "(2305843009213693952, 4)", "(-1,)", "(-5, 3)", "(1e9,)",
         "(True,)",
         "(0, 1099511627776)", "(400000000,)", "()", "[3]", "(3", "(9223372036854775808,)", f"({'1,' * 60})",
         f"({'1,' * 100000})", "(" * 5000 + ")" * 5000, "__import__('os').system('id')", "(65536, 65536, 65536)")
    )  # fmt: skip
    descr = case.pick(("'<f8'", "'<f8'", "'|O'", "'<U1000000'", "'|V1'", "'|S0'", "[('a', '<f8')]",
        "'<f8', 'descr': '|O'",
                       "'(1000,1000,1000)f8'", "[('a', '<f8', (100000, 100000))]", "'|u1'", "5"))  # fmt: skip
    case.note(f"{descr} of shape {shape[:30]}")
    begin = header(descr, shape, case.pick(("False", "True", "2")), case.pick((1, 2, 3, 9)))
    made = Entry.of(entry.name, begin + bytes(case.whole(1, 4000)), case.pick((STORED, DEFLATED)))
    archive.entries[archive.entries.index(entry)] = made


def objects(case: Case, archive: Archive) -> None:
    """An array of Python objects, which NumPy stores as a pickle: one that runs code when it is loaded."""
    entry = chosen(case, archive)
    content = header("'|O'", "(1,)") + pickle.dumps(Code(), protocol=case.pick((0, 2, 4)))
    archive.entries[archive.entries.index(entry)] = Entry.of(entry.name, content)


class Code:
    """Unpickled, it runs code that the harness notices."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"echo {SECRET}",)


def framed(case: Case, archive: Archive) -> None:
    """Bytes before the archive, and in its comment."""
    archive.prefix = case.pick((b"", b"#!/bin/sh\n", b"PK\5\6" + bytes(18), b"\x93NUMPY" + bytes(100), b"MZ" * 500))
    archive.comment = case.pick((b"", b"PK\5\6" + bytes(18), b"\x1b[2J" * 100, b"x" * 65535))


ARCHIVES = (bomb, bomb, nested, lies, lies, overlapping, same_names, entry_names, claims, claims, objects, framed)


def demonstrations() -> dict[str, Any]:
    """The arrays of a sound file of demonstrations."""
    parts = values.sample()
    length = [len(part["action"]) for part in parts]
    ends = np.cumsum(length) - 1
    last = np.isin(np.arange(sum(length)), ends)
    episode = np.repeat(np.arange(3, dtype=np.int32), length)
    terminated = last & np.array([part["terminated"] for part in parts])[episode]
    return {
        "format": np.array("irleed-demonstrations"), "version": np.array(1),
        "obs": np.concatenate([part["obs"] for part in parts]),
        "row": np.arange(sum(length), dtype=np.int32) + episode,
        "action": np.concatenate([part["action"] for part in parts]),
        "terminated": terminated, "truncated": last & ~terminated,
        "demonstrator": np.array([0, 1, 0], np.int32)[episode], "episode": episode,
        "names": np.array(["anna", "ben"]), "reward": np.concatenate([part["reward"] for part in parts]),
    }  # fmt: skip


def mdp() -> dict[str, Any]:
    """The arrays of a sound finite MDP."""
    return {
        "format": np.array("irleed-mdp"), "version": np.array(1), "initial": np.array([0.5, 0.5, 0.0]),
        "discount": np.array(0.9), "terminal": np.array([False, False, True]), "features": np.eye(3),
        "reward": np.array([0.0, 1.0, 0.0]), "state": np.array([0, 0, 1, 1]), "action": np.array([0, 1, 0, 1]),
        "successor": np.array([1, 2, 2, 0]), "probability": np.ones(4), "shape": np.array([1, 3]),
    }  # fmt: skip


def hostile_names(case: Case, columns: dict[str, Any]) -> None:
    """Demonstrators are called what nobody is called."""
    if "names" in columns:
        columns["names"] = np.array([values.name(case), case.pick(values.NAMES)])


def make(case: Case, columns: dict[str, Any]) -> Path:
    """A hostile archive of such columns."""
    kind = case.pick(("arrays", "arrays", "archive", "both"))
    if kind != "archive":
        case.mutate(columns, (*values.ARRAYS, hostile_names))
    if sum(np.asarray(array).nbytes for array in columns.values()) > 1 << 28:
        case.note("too large")
    archive = of_columns(columns, case.pick((STORED, DEFLATED)))
    if kind != "arrays":
        case.mutate(archive, ARCHIVES)
    path = case.home / "given.npz"
    archive.write(path)
    case.large = case.chance(0.3)
    return path


def npz(case: Case) -> Path:
    """Demonstrations in a file of ours."""
    return make(case, demonstrations())


def mdp_npz(case: Case) -> Path:
    """A finite MDP in a file of ours."""
    return make(case, mdp())
