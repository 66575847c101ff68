"""Compressed zeros: little data that are gigabytes when decompressed."""

import bz2
import lzma
import struct
import zlib
from pathlib import Path

from fuzz.case import Case

BLOCK = 1 << 24


def deflated(count: int) -> bytes:
    """A raw deflate stream of so many zeros, rounded up to whole blocks: one block's bytes, over and over."""
    press = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = press.compress(bytes(BLOCK)) + press.flush(zlib.Z_FULL_FLUSH)
    return block * -(-count // BLOCK) + press.flush(zlib.Z_FINISH)


def zlibbed(count: int) -> bytes:
    """The same as a zlib stream, with its checksum."""
    size = -(-count // BLOCK) * BLOCK
    return b"\x78\xda" + deflated(size) + struct.pack(">HH", size % 65521, 1)


def gzipped(count: int) -> bytes:
    """The same as a gzip file."""
    size = -(-count // BLOCK) * BLOCK
    tail = struct.pack("<II", checksum(0, size), size & 0xFFFFFFFF)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + deflated(size) + tail


def checksum(before: int, zeros: int) -> int:
    """The CRC-32 of bytes whose CRC-32 is `before`, followed by so many zeros, without going through them."""
    register, power = before ^ 0xFFFFFFFF, 1 << 31 >> 8  # x^8, bits reflected: one zero byte
    while zeros:
        if zeros & 1:
            register = _product(register, power)
        power, zeros = _product(power, power), zeros >> 1
    return register ^ 0xFFFFFFFF


def _product(one: int, other: int) -> int:
    """Of two polynomials over GF(2), modulo that of CRC-32, in reflected bits."""
    found, bit = 0, 1 << 31
    while bit:
        if one & bit:
            found ^= other
        other = other >> 1 ^ (0xEDB88320 if other & 1 else 0)
        bit >>= 1
    return found


def bzipped(case: Case, count: int) -> bytes:
    """One bzip2 stream."""
    return case.piece(f"{count}.bz2", lambda path: _streamed(path, bz2.BZ2Compressor(), count)).read_bytes()


def lzma_alone(case: Case, count: int) -> bytes:
    """An LZMA stream as zip archives have it: with the sizes of its properties before it."""

    def make(path: Path) -> None:
        filters = [{"id": lzma.FILTER_LZMA1, "preset": 0}]
        _streamed(path, lzma.LZMACompressor(lzma.FORMAT_RAW, filters=filters), count)

    preset = lzma._encode_filter_properties({"id": lzma.FILTER_LZMA1, "preset": 0})  # pyright: ignore
    return struct.pack("<BBH", 9, 4, len(preset)) + preset + case.piece(f"{count}.lzma", make).read_bytes()


def _streamed(path: Path, press: bz2.BZ2Compressor | lzma.LZMACompressor, count: int) -> None:
    with path.open("wb") as file:
        for _ in range(-(-count // BLOCK)):
            file.write(press.compress(bytes(BLOCK)))
        file.write(press.flush())


def sparse(path: Path, size: int) -> None:
    """Make a file longer without data in it."""
    with path.open("ab") as file:
        file.truncate(size)
