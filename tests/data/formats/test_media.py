"""Pictures and videos of strangers: nothing is decoded but PNG, JPEG and MP4, and nothing else is opened or started."""

import io
import subprocess
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from irleed.data.formats.media import Frames, decoded
from irleed.errors import DataError

SIZE = (32, 48)
RGB = (*SIZE, 3)
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 48 32\n%%EndComments\n(out) (w) file closefile\n%%EOF\n"


def encoded(kind: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.zeros(RGB, np.uint8)).save(stream, kind)
    return stream.getvalue()


def test_png_and_jpeg_are_decoded_and_nothing_else():
    for kind in ("PNG", "JPEG"):
        np.testing.assert_array_equal(decoded(encoded(kind), RGB, "here"), np.zeros(RGB, np.uint8))
    for kind in ("BMP", "TIFF", "WEBP", "PPM", "TGA", "DDS"):
        with pytest.raises(DataError, match="here: got no picture .*, expected a whole JPEG or PNG"):
            decoded(encoded(kind), RGB, "here")


def test_no_program_is_started_by_a_picture(monkeypatch):
    """Pillow hands PostScript to Ghostscript, where there is one."""
    started = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: started.append(1))
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: started.append(1))
    with pytest.raises(DataError, match="no picture"):
        decoded(EPS, RGB, "here")
    assert not started


def test_enormous_pictures_are_not_decoded(monkeypatch):
    """Not even where the folder says that they should be of this size."""
    monkeypatch.setattr("irleed.data.formats.media.MOST_PIXELS", 100)
    with pytest.raises(DataError, match="here: got 32 x 48 pixels, expected at most 100"):
        decoded(encoded("PNG"), RGB, "here")


def film(path: Path, codec: str = "libx264", size: tuple[int, int] = SIZE, kind: str = "mp4") -> Path:
    with av.open(str(path), "w", format=kind) as container:
        stream = container.add_stream(codec, rate=10)
        stream.height, stream.width, stream.pix_fmt = *size, "yuv420p"  # pyright: ignore[reportAttributeAccessIssue]
        for _ in range(10):
            picture = av.VideoFrame.from_ndarray(np.full((*size, 3), 9, np.uint8), "rgb24")
            container.mux(stream.encode(picture))  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
        container.mux(stream.encode())  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
    return path


def frames(path: Path) -> np.ndarray:
    return Frames([path], np.zeros(1, int), np.zeros(1), np.full(1, 10), 10.0, SIZE).read(np.arange(10))


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        frames(path)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_containers_and_codecs_that_no_format_names_are_refused(tmp_path):
    assert frames(film(tmp_path / "sound.mp4")).shape == (10, *RGB)
    for wrong in (film(tmp_path / "a.mp4", kind="matroska"), film(tmp_path / "b.mp4", "mpeg4")):
        assert "expected a whole MP4 file with a video in H.264, HEVC, AV1 or VP9" in refusal(wrong)


@pytest.mark.parametrize("text", ["ffconcat version 1.0\nfile 'sound.mp4'\n", "#EXTM3U\n#EXTINF:1,\nsound.mp4\n"])
def test_a_video_opens_no_other_file(tmp_path, text):
    """FFmpeg takes a list of files, or of addresses, for a video."""
    film(tmp_path / "sound.mp4")
    (tmp_path / "list.mp4").write_text(text)
    assert "content that cannot be read" in refusal(tmp_path / "list.mp4")


def test_frames_far_larger_than_they_should_be_are_not_decoded(tmp_path):
    assert "content that cannot be read" in refusal(film(tmp_path / "large.mp4", size=(320, 480)))


@pytest.mark.parametrize("box, fields", [(b"stsz", (1, 20_000_000)), (b"elst", (5_000,))])
def test_a_video_claims_no_more_frames_than_it_has_bytes(tmp_path, box, fields):
    """FFmpeg sets memory aside for each: 250 MB for a file of 2 kB."""
    path = film(tmp_path / "claims.mp4")
    content = bytearray(path.read_bytes())
    start = content.index(box)
    patch = b"".join(value.to_bytes(4, "big") for value in fields)
    content[start + 8 : start + 8 + len(patch)] = patch
    path.write_bytes(content)
    assert "frames in" in refusal(path)
