"""Hostile LeRobot folders: Parquet files, pictures in them, videos and the JSON that says where they are."""

import json
import struct
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fuzz import links, pictures, tables, values
from fuzz.case import Case

LENGTHS, FPS, HEIGHT, WIDTH = (5, 4, 3), 10, 16, 24
TOP, WRIST = "observation.images.top", "observation.images.wrist"
CAMERA = {"dtype": "video", "shape": [HEIGHT, WIDTH, 3], "names": ["height", "width", "channels"]}


def film(
    path: Path, height: int = HEIGHT, width: int = WIDTH, frames: int = sum(LENGTHS), codec: str = "mpeg4"
) -> None:
    """A video of grey frames."""
    with av.open(str(path), "w", format="mp4") as container:
        stream: Any = container.add_stream(codec, rate=FPS)
        stream.height, stream.width, stream.pix_fmt = height, width, "yuvj420p" if codec == "mjpeg" else "yuv420p"
        stream.codec_context.thread_count = 1
        for number in range(frames):
            grey = np.full((height, width, 3), 10 * number % 256, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(grey, "rgb24")))
        container.mux(stream.encode())


def columns() -> dict[str, Any]:
    """The frames of a sound folder."""
    rows, episode = sum(LENGTHS), np.repeat(np.arange(3), LENGTHS)
    random = np.random.default_rng(0)
    return {
        "episode_index": episode, "frame_index": np.concatenate([np.arange(n) for n in LENGTHS]),
        "index": np.arange(rows),
        "action": random.normal(size=(rows, 2)), "observation.state": random.normal(size=(rows, 3)),
    }  # fmt: skip


def sound(case: Case, path: Path) -> None:
    """A folder of version 3 with two cameras, one of them in videos."""
    place = path / "videos" / TOP / "chunk-000"
    for folder in (place, path / "meta" / "episodes" / "chunk-000", path / "data" / "chunk-000"):
        folder.mkdir(parents=True)
    (place / "file-000.mp4").write_bytes(case.piece("sound.mp4", film).read_bytes())
    features = {TOP: CAMERA, WRIST: CAMERA | {"dtype": "image"}}
    features |= {
        name: {"dtype": "float32", "shape": list(column.shape[1:] or [1]), "names": None}
        for name, column in columns().items()
    }
    info = {
        "codebase_version": "v3.0",
        "fps": FPS,
        "total_frames": sum(LENGTHS),
        "total_episodes": 3,
        "features": features,
    }
    (path / "meta" / "info.json").write_text(json.dumps(info))
    begin = np.append(0, np.cumsum(LENGTHS)[:-1]) / FPS
    said = {
        "chunk_index": [0] * 3,
        "file_index": [0] * 3,
        "from_timestamp": begin,
        "to_timestamp": begin + np.array(LENGTHS) / FPS,
    }
    about = {
        "episode_index": range(3),
        "operator": ["anna", "ben", "anna"],
        **{f"videos/{TOP}/{name}": column for name, column in said.items()},
    }
    pq.write_table(pa.table(about), path / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    frames = tables.table_of(columns())
    encoded = [
        {"bytes": pictures.sound(HEIGHT, WIDTH, "PNG", row), "path": f"{row}.png"} for row in range(sum(LENGTHS))
    ]
    pq.write_table(frames.append_column(WRIST, pa.array(encoded)), _frames(path), row_group_size=5)


def _frames(path: Path) -> Path:
    return path / "data" / "chunk-000" / "file-000.parquet"


def _about(path: Path) -> Path:
    return path / "meta" / "episodes" / "chunk-000" / "file-000.parquet"


def _video(path: Path) -> Path:
    return path / "videos" / TOP / "chunk-000" / "file-000.mp4"


def images(case: Case, path: Path) -> None:
    """Pictures that are none, in a column of the frames."""
    table, rows = pq.read_table(_frames(path)), sum(LENGTHS)
    found = table.column(WRIST).to_pylist() if WRIST in table.column_names else [{"bytes": b"", "path": ""}] * rows
    for row in case.random.integers(0, len(found), case.whole(1, 4)):
        data = case.pick((None, "a place")) if case.chance(0.1) else pictures.hostile(case, HEIGHT, WIDTH)
        elsewhere = case.pick((str(case.outside / "secret.bin"), "/dev/zero", "http://127.0.0.1:9/x.png"))
        found[int(row)] = (
            {"bytes": None, "path": elsewhere} if isinstance(data, str) else {"bytes": data, "path": "x.png"}
        )
    held = {"table": table}
    tables.put(held, WRIST, pa.array(found))
    pq.write_table(held["table"], _frames(path))
    case.reading = {"obs": (WRIST,)}


def frames(case: Case, path: Path) -> None:
    """A hostile table of frames."""
    held: dict[str, Any] = columns()
    case.mutate(held, tables.COLUMNS, 1)
    target = {"table": tables.table_of(held)}
    if case.chance(0.5):
        case.mutate(
            target, (tables.types, lists_of_frames, tables.gaps, tables.metadata, tables.columns_twice, bomb), 1
        )
    if "file" not in target:
        tables.written(case, target, _frames(path))


def lists_of_frames(case: Case, target: dict[str, Any]) -> None:
    """Vectors of several lengths, or of a million zeros each."""
    width = np.full(len(target["table"]), case.pick((0, 1, 1_000_000)))
    width[:1] = case.pick((0, 2, 1_000_000))
    offsets = pa.array(np.append(0, np.cumsum(width)).astype(np.int32))
    column = pa.ListArray.from_arrays(offsets, pa.array(np.zeros(int(width.sum()), np.float32)))
    tables.put(target, case.pick(("observation.state", "action")), column)


def bomb(case: Case, target: dict[str, Any]) -> None:
    """Millions of frames of nothing, or a long picture over and over."""
    rows = case.size(case.pick((100_000, 5_000_000)))
    zeros = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(rows * 3, np.float32)), 3)
    found = {"episode_index": np.zeros(rows, int), "action": zeros, "observation.state": zeros}
    if case.chance(0.5):
        picture = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([bytes(100_000)]))
        found[WRIST] = pa.StructArray.from_arrays([picture], ["bytes"])
        case.reading = {"obs": (WRIST,)}
    target["table"] = pa.table(found)


def episodes(case: Case, path: Path) -> None:
    """meta/episodes says other places, times and numbers."""
    held = {name: np.array(column) for name, column in pq.read_table(_about(path)).to_pydict().items()}
    if case.chance(0.6):
        name = case.pick([name for name in held if name.startswith("videos/")])
        held[name] = np.full(3, case.pick((-1.0, np.nan, np.inf, 1e300, 0.0, 1e9, -0.05, 5e-324)))
        if "index" in name:
            held[name] = np.full(3, case.pick((-1, 1, 10**9, 2**62)))
        case.note(f"{name} = {held[name][0]}")
    else:
        case.mutate(held, tables.COLUMNS, 1)
    pq.write_table(tables.table_of(held), _about(path))
    case.reading = {"obs": (TOP,)}


def info(case: Case, path: Path) -> None:
    """meta/info.json is hostile."""
    place = path / "meta" / "info.json"
    said = json.loads(place.read_text())
    if case.chance(0.4):
        key = case.pick(("fps", "shape", "names", "version", "data_path", "camera name"))
        case.note(key)
        if key == "fps":
            said["fps"] = case.pick((0, -1, 1e308, 1e-308, 5e-324, "10", True, 10**400, 1e18))
        elif key in ("shape", "names"):
            said["features"][case.pick((TOP, WRIST))][key] = case.pick(
                ([1 << 14, 1 << 14, 3], [3, 3, 3], [0, 0, 3], [-1, 2, 3], [1e9, 1, 3], "hwc", [["a"]] * 3, [True, 2, 3])
            )
        elif key == "camera name":
            name = case.pick(
                ("../../../outside/secret", "/etc", str(case.outside), "a\0b", "x" * 5000, values.name(case))
            )
            said["features"][name] = CAMERA
            case.reading = {"obs": (name,)}
            table = pq.read_table(_about(path))
            renamed = [column.replace(TOP, name.encode("utf-8", "replace").decode()) for column in table.column_names]
            pq.write_table(table.rename_columns(renamed), _about(path))
        else:
            said |= (
                {"codebase_version": case.pick(("v3.999", "v2.1", "", 3))}
                if key == "version"
                else {"data_path": "/etc/passwd"}
            )
        place.write_text(json.dumps(said))
    else:
        values.write_json(case, place, said)
    if not case.reading and case.chance(0.5):
        case.reading = {"obs": (case.pick((TOP, WRIST)),)}


PLAYLISTS = {
    "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2.0,\n{place}\n#EXT-X-ENDLIST\n",
    "concat": "ffconcat version 1.0\nfile '{place}'\nduration 2\n",
    "dash": "<?xml version='1.0'?><MPD><Period><AdaptationSet><Representation id='1'><BaseURL>{place}</BaseURL>"
    "</Representation></AdaptationSet></Period></MPD>",
    "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 9 RTP/AVP 96\n"
    "a=rtpmap:96 H264/90000\n",
}  # files that name other places, which FFmpeg would open
FILMS = {"large": (8176, 8176, 2, "mpeg4"), "many": (HEIGHT, WIDTH, 20_000, "mpeg4"), "size": (32, 24, 12, "mpeg4"),
         "codec": (HEIGHT, WIDTH, sum(LENGTHS), "mjpeg")}  # fmt: skip


def videos(case: Case, path: Path) -> None:
    """A video is another kind of file: a playlist that names other files, enormous frames, other codecs, damage."""
    kind = case.pick((*PLAYLISTS, *FILMS, "reference", "picture", "cut", "bytes"))
    case.note(f"video: {kind}")
    video, case.reading = _video(path), {"obs": (TOP,)}
    content, elsewhere = video.read_bytes(), case.outside / "secret.mp4"
    elsewhere.write_bytes(content)
    relative = "../../../../../outside/secret.mp4"
    outside = case.pick((str(elsewhere), f"file://{elsewhere}", relative, "http://127.0.0.1:9/x", "concat:/etc/passwd"))
    if kind in PLAYLISTS:
        content = PLAYLISTS[kind].format(place=outside).encode()
    elif kind in FILMS:
        content = case.piece(f"{kind}.mp4", lambda made: film(made, *FILMS[kind])).read_bytes()
    elif kind == "reference":
        content = referring(content, outside)
    elif kind == "picture":
        content = pictures.hostile(case, HEIGHT, WIDTH)
    elif kind == "cut":
        content = content[: int(case.random.integers(len(content)))]
    else:
        changed = bytearray(content)
        for at in case.random.integers(0, len(content), case.whole(1, 30)):
            changed[at] = int(case.random.integers(256))
        content = bytes(changed)
    video.write_bytes(content)


def referring(content: bytes, place: str) -> bytes:
    """An MP4 file that says its frames are in another file."""
    old = b"\0\0\0\x0curl \0\0\0\x01"  # flag 1: in this file
    new = b"url \0\0\0\0" + place.encode() + b"\0"
    new = struct.pack(">I", len(new) + 4) + new
    changed = bytearray(content)
    for name in (b"moov", b"trak", b"mdia", b"minf", b"dinf", b"dref"):  # what it is in becomes longer
        at = content.index(name) - 4
        changed[at : at + 4] = struct.pack(">I", struct.unpack_from(">I", changed, at)[0] + len(new) - len(old))
    return bytes(changed).replace(old, new)


def folder(case: Case, path: Path) -> None:
    """The folder is hostile."""
    case.mutate(path, links.FOLDERS)
    if case.chance(0.5):
        case.reading = {"obs": (case.pick((TOP, WRIST)),)}


def video_link(case: Case, path: Path) -> None:
    """A video is a link to one outside, or its folder is."""
    inner = case.pick((_video(path), path / "videos", path / "videos" / TOP))
    target = case.outside / f"moved-{inner.name}"
    inner.rename(target)
    inner.symlink_to(target)
    case.reading = {"obs": (TOP,)}


def lerobot(case: Case) -> Path:
    """A hostile folder."""
    path = case.home / "given"
    sound(case, path)
    case.mutate(
        path, (images, images, frames, frames, episodes, info, info, videos, videos, folder, folder, video_link)
    )
    case.large = case.chance(0.3)
    if case.chance(0.1):
        case.reading["demonstrator"] = case.pick(("operator", "episode", "task", "episode_index"))
    return path


def atari(case: Case) -> Path:
    """A hostile folder of the Atari Grand Challenge."""
    path = case.home / "given"
    for episode, rows in ((1, 4), (2, 3)):
        screens, texts = path / "screens" / "qbert" / str(episode), path / "trajectories" / "qbert"
        screens.mkdir(parents=True)
        texts.mkdir(parents=True, exist_ok=True)
        lines = [f"{t},{10 * t},{10 * t},{int(t == rows - 1)},{t}" for t in range(rows)]
        (texts / f"{episode}.txt").write_text(
            "\n".join(["db traj id : 1", "frame,reward,score,terminal,action", *lines]) + "\n"
        )
        for t in range(rows):
            (screens / f"{t}.png").write_bytes(pictures.sound(8, 6, "PNG", t))
    case.mutate(path, (_screens, _screens, _rows, _rows, _game, folder, folder))
    case.large = case.chance(0.3)
    case.reading = {"obs": (case.pick(("screen", "grey84")),)} if case.chance(0.4) else {}
    return path


def _screens(case: Case, path: Path) -> None:
    """Screens that are other pictures."""
    found = sorted(filter(links.is_small, path.rglob("*.png")))
    for at in case.random.integers(0, len(found), case.whole(1, 3)) if found else ():
        found[int(at)].write_bytes(pictures.hostile(case, 8, 6))


def _rows(case: Case, path: Path) -> None:
    """A hostile table of a game."""
    found = sorted(filter(links.is_small, (path / "trajectories").rglob("*.txt")))
    if not found:
        return
    file = case.pick(found)
    content = [file.read_text()]
    case.mutate(content, (tables.cells, tables.cells, tables.many_rows, tables.marks), 1)
    file.write_bytes(content[0].encode(case.pick(("utf-8", "utf-8", "utf-16")), "surrogatepass"))


def _game(case: Case, path: Path) -> None:
    """The game, or an episode, has a hostile name."""
    name = (
        values.text_without_zero(case)
        .replace("/", "_")
        .encode("utf-8", "surrogatepass")[:200]
        .decode("utf-8", "ignore")
    )
    for kind in ("screens", "trajectories"):
        if name not in ("", ".", ".."):
            (path / kind / "qbert").rename(path / kind / name)
