"""Hostile HDF5 files: links and data outside, loops, graphs with more paths than can be walked, bombs, odd types."""

import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fuzz import bombs, links, values
from fuzz.case import SECRET, Case

GIGABYTE = 1 << 30


def datasets(file: h5py.File) -> list[str]:
    """The paths of all data sets, of files without loops."""
    found: list[str] = []
    file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
    return found


def groups(file: h5py.File) -> list[str]:
    """The paths of all groups, the root with them."""
    found: list[str] = ["/"]
    file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Group) else None)
    return found


def a_dataset(case: Case, file: h5py.File) -> str:
    """One of them; they are looked for once, before there are loops."""
    found = _known(file)["datasets"]
    there = [name for name in found if isinstance(file.get(name), h5py.Dataset)]
    return case.pick(there or ["made"])


def a_group(case: Case, file: h5py.File) -> h5py.Group:
    """One of the groups."""
    there = [file.get(name) for name in _known(file)["groups"]]
    return case.pick([group for group in there if isinstance(group, h5py.Group)])


KNOWN: dict[str, dict[str, list[str]]] = {}  # of each file, as it was before it was changed


def _known(file: h5py.File) -> dict[str, list[str]]:
    if file.filename not in KNOWN:
        KNOWN[file.filename] = {"datasets": datasets(file), "groups": groups(file)}
    return KNOWN[file.filename]


def replaced(file: h5py.File, name: str) -> np.ndarray:
    """The values of a data set, which is taken out."""
    entry = file.get(name)
    if not isinstance(entry, h5py.Dataset):
        return np.zeros(3)
    plain = entry.size is not None and not entry.is_virtual  # a view of itself ends the process that reads it
    old = entry[()] if plain and entry.size < 1 << 20 and entry.dtype.kind in "iufb" else np.zeros(3)
    del file[name]
    return np.atleast_1d(old)


def external_link(case: Case, file: h5py.File) -> None:
    """A data set or group is a link to a sound one in a file outside."""
    elsewhere = case.outside / "secret.h5"
    name = a_dataset(case, file) if case.chance(0.6) else a_group(case, file).name
    target = str(name).strip("/")
    if not target or target not in file:
        return
    with h5py.File(elsewhere, "a") as other:
        if target not in other:
            file.copy(target, other, target)
        entry = other[target]
        entry.attrs["demonstrator"] = SECRET
    del file[target]
    place = case.pick((str(elsewhere), f"../outside/{elsewhere.name}", "../../outside/secret.h5", "/dev/zero"))
    file[target] = h5py.ExternalLink(place, target)


def raw_elsewhere(case: Case, file: h5py.File) -> None:
    """The values of a data set are the bytes of a file outside."""
    name = a_dataset(case, file)
    old = replaced(file, name)
    place = str(case.outside / case.pick(("secret.bin", "secret.txt")))
    text = case.chance(0.3)
    dtype, shape = ("S8", old.shape[:1]) if text else (old.dtype, old.shape)
    size = max(1, int(np.prod(shape)) * np.dtype(dtype).itemsize)
    pieces = case.pick(([(place, 0, size)], [(place, 8, h5py.h5f.UNLIMITED)], [("/dev/zero", 0, size)]))
    file.create_dataset(name, shape=shape, dtype=dtype, external=pieces)


def virtual(case: Case, file: h5py.File) -> None:
    """A data set is a view of one in a file outside, of itself, or of a file that is not there."""
    name = a_dataset(case, file)
    old = replaced(file, name)
    kind = case.pick(("outside", "outside", "itself", "nowhere", "wide"))
    case.note(kind)
    elsewhere = case.outside / "secret-virtual.h5"
    with h5py.File(elsewhere, "a") as other:
        if "x" not in other:
            other["x"] = np.frombuffer((SECRET * 10_000).encode()[: 8 * 20_000], "f8")
    source = {"itself": ".", "nowhere": "nowhere.h5"}.get(kind, str(elsewhere))
    inner = name if kind == "itself" else "x"
    shape = (10**9,) if kind == "wide" else (int(old.size),)
    layout = h5py.VirtualLayout(shape, old.dtype)
    layout[: int(old.size)] = h5py.VirtualSource(source, inner, shape=(int(old.size),), dtype=old.dtype)
    file.create_virtual_dataset(name, layout, fillvalue=0)


def soft_loop(case: Case, file: h5py.File) -> None:
    """Soft links to each other, to themselves, or to a group above."""
    group = a_group(case, file)
    kind = case.pick(("itself", "each other", "above", "nowhere"))
    name = case.pick(("loop", "obs", "actions", "demo_0", "episode_0", "infos", "x"))
    if name in group:
        del group[name]
    if kind == "each other":
        group[name] = h5py.SoftLink(f"{group.name}/other")
        if "other" not in group:
            group["other"] = h5py.SoftLink(f"{group.name}/{name}")
    else:
        group[name] = h5py.SoftLink({"itself": f"{group.name}/{name}", "above": "/", "nowhere": "/no/where"}[kind])


def group_loop(case: Case, file: h5py.File) -> None:
    """A group that has itself, or the root, in it."""
    group = a_group(case, file)
    name = case.pick(("loop", "self", "obs2"))
    if name not in group:
        group[name] = case.pick((group, file["/"]))


def many_paths(case: Case, file: h5py.File) -> None:
    """A chain of groups with two links from each to the next: 2^30 paths in a few kilobytes."""
    depth = case.pick((20, 30, 60))
    inner = file.create_group("chain-end")
    inner["x"] = np.zeros(3)
    for number in range(depth):
        outer = file.create_group(f"chain-{number}")
        outer["a"] = outer["b"] = inner
        inner = outer
    group = a_group(case, file)
    if "paths" not in group:
        group["paths"] = inner
    for number in range(depth):
        del file[f"chain-{number}"]
    del file["chain-end"]


def deep(case: Case, file: h5py.File) -> None:
    """Groups in groups, deeper than a stack."""
    group = a_group(case, file)
    for _ in range(case.pick((100, 1200, 5000))):
        group = group.require_group("g")
    group["x"] = np.zeros(3)


def bomb(case: Case, file: h5py.File) -> None:
    """A chunk of zeros that was deflated once, twice or three times."""
    name, times = a_dataset(case, file), case.pick((1, 2, 3))
    old = replaced(file, name)
    size = case.size(case.pick((GIGABYTE // 4, GIGABYTE, 3 * GIGABYTE)))
    case.note(f"{name}: {size >> 20} MiB, deflated {times} times")
    row = int(np.prod(old.shape[1:], dtype=int)) or 1
    rows = size // (row * old.dtype.itemsize)
    shape = (rows, *old.shape[1:])
    size = rows * row * old.dtype.itemsize
    data = bombs.zlibbed(size)  # whole blocks: somewhat longer than the chunk
    for _ in range(times - 1):
        data = zlib.compress(data, 9)
    create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    create.set_chunk(shape)
    for _ in range(times):
        create.set_deflate(9)
    space = h5py.h5s.create_simple(shape)
    made = h5py.h5d.create(
        file.id, name.encode(), h5py.h5t.py_create(old.dtype), space, _parents(create=create)[0], _parents()[1]
    )
    made.write_direct_chunk((0,) * len(shape), data)


def _parents(create: Any = None) -> tuple[Any, Any]:
    """Property lists: of creation as it is, and of links, such that groups on the way are made."""
    link = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    link.set_create_intermediate_group(True)
    return create, link


def small_chunks(case: Case, file: h5py.File) -> None:
    """Honest HDF5 that is much when decompressed: zeros in chunks, written by the library."""
    name = a_dataset(case, file)
    old = replaced(file, name)
    rows = case.size(case.pick((1 << 22, 1 << 24)))
    file.create_dataset(
        name,
        data=np.zeros((rows, *old.shape[1:]), old.dtype),
        chunks=(1 << 14, *old.shape[1:]),
        compression=9,
        shuffle=True,
    )


def claimed(case: Case, file: h5py.File) -> None:
    """A shape without the data."""
    name = a_dataset(case, file)
    old = replaced(file, name)
    shape = case.pick(((1 << 40,), (1 << 28, 1 << 28), (0,), (0, 1 << 40), (1 << 28, 3), (3, 0), (1,) * 32, (1 << 27,)))
    case.note(f"{name}: {shape}")
    kind = case.pick(("contiguous", "chunked", "null", "scalar", "resizable"))
    if kind == "null":
        file[name] = h5py.Empty(old.dtype)
    elif kind == "scalar":
        file[name] = old.reshape(-1)[0] if old.size else 0
    elif kind == "contiguous" or 0 in shape or len(shape) > 9:
        file.create_dataset(name, shape=shape, dtype=old.dtype)
    else:
        most = (None,) * len(shape) if kind == "resizable" else None
        file.create_dataset(
            name, shape=shape, dtype=old.dtype, chunks=tuple(min(side, 1000) for side in shape), maxshape=most
        )


def types(case: Case, file: h5py.File) -> None:
    """A data set of another type: text of any length, references, compounds, enumerations, arrays."""
    name = a_dataset(case, file)
    rows = max(1, len(replaced(file, name)))
    kind = case.pick(
        (
            "text",
            "vlen",
            "reference",
            "region",
            "compound",
            "enum",
            "opaque",
            "array",
            "bytes",
            "half",
            "complex",
            "long",
        )
    )
    case.note(f"{name}: {kind}")
    text = values.text_without_zero(case).encode("utf-8", "replace").decode()
    made = {
        "text": lambda: np.array([text] * rows, h5py.string_dtype()),
        "vlen": lambda: np.array([np.arange(n % 3, dtype=float) for n in range(rows)] + [None], object)[:-1],
        "reference": lambda: np.array([file.ref] * rows, h5py.ref_dtype),
        "region": lambda: np.zeros(rows, "f8"),
        "compound": lambda: np.zeros(rows, [("a", "f8"), ("b", "S4")]),
        "enum": lambda: np.zeros(rows, h5py.enum_dtype({"x": 0, "y": 1})),
        "opaque": lambda: np.zeros(rows, h5py.opaque_dtype("V8")),
        "array": lambda: np.zeros(rows, "(3,2)f8"),
        "bytes": lambda: np.array([text.encode()[:1000]] * rows, "S"),
        "half": lambda: np.zeros(rows, "f2"),
        "complex": lambda: np.zeros(rows, "c16"),
        "long": lambda: np.zeros(rows, "g"),
    }[kind]()
    if kind == "vlen":
        lists = file.create_dataset(name, (rows,), h5py.vlen_dtype("f8"))
        for row in range(rows):
            lists[row] = made[row]
    else:
        file[name] = made


def contents(case: Case, file: h5py.File) -> None:
    """A data set with hostile numbers, or another shape or type."""
    name = a_dataset(case, file)
    held = {name: replaced(file, name)}
    case.mutate(held, values.ARRAYS[:3], 1)
    array = held[name]
    file[name] = np.zeros(array.shape, "S8") if array.dtype.kind in "UMmV" else array


def names(case: Case, file: h5py.File) -> None:
    """A group or data set has a hostile name."""
    group = a_group(case, file)
    name = values.text_without_zero(case).encode("utf-8", "replace").decode().replace("/", "_")
    if name in ("", ".", "..") or name in group:
        return
    inside = [key for key in group if group.get(key, getlink=True) is not None]
    if inside and case.chance(0.5):
        group.move(case.pick(inside), name)
    else:
        group[name] = np.zeros(3)


def attributes(case: Case, file: h5py.File) -> None:
    """Attributes that are looked at have hostile values."""
    group = a_group(case, file)
    key = case.pick(
        ("num_samples", "total_steps", "id", "demonstrator", "env_args", "total_episodes", "total", "operator")
    )
    text = values.text_without_zero(case).encode("utf-8", "replace").decode()[:60_000]
    group.attrs[key] = case.pick(
        (-1, 2**63 - 1, np.nan, text, np.zeros(100), h5py.Empty("f8"), "[" * 50_000, 0.5, True)
    )


def filters(case: Case, file: h5py.File) -> None:
    """A filter that is a plug-in: HDF5 would look for a library to load."""
    name = a_dataset(case, file)
    old = replaced(file, name)
    create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    create.set_chunk(old.shape if all(old.shape) else (1,) * old.ndim)
    create.set_filter(case.pick((305, 32001, 32015, 65535)), h5py.h5z.FLAG_OPTIONAL, (1, 2))
    space = h5py.h5s.create_simple(old.shape)
    made = h5py.h5d.create(file.id, name.encode(), h5py.h5t.py_create(old.dtype), space, create, _parents()[1])
    if all(old.shape):
        made.write_direct_chunk((0,) * old.ndim, old.tobytes())


def crowded(case: Case, file: h5py.File) -> None:
    """Thousands of groups."""
    group = a_group(case, file)
    for number in range(case.pick((300, 3000))):
        group.create_group(case.pick(("demo_", "episode_", "")) + str(number + 3))


FILES = (
    external_link, external_link, raw_elsewhere, raw_elsewhere, virtual, virtual, soft_loop, group_loop, many_paths,
    deep, bomb,
    bomb, small_chunks, claimed, claimed, types, types, contents, contents, contents, names, attributes, filters,
    crowded,
)  # fmt: skip


def mutate(case: Case, path: Path) -> None:
    """Apply mutations to a sound file."""
    with h5py.File(path, "r+") as file:
        _known(file)  # before there is what cannot be walked
        case.mutate(file, FILES, 3)


def choices(case: Case) -> None:
    """What a user might choose besides."""
    case.large = case.chance(0.3)
    if case.chance(0.15):
        case.reading = {"demonstrator": case.pick(("demonstrator", "operator", "mask", "episode", "infos/x", "id"))}


def d4rl(case: Case) -> Path:
    """A hostile file of columns."""
    path, parts = case.home / "given.hdf5", values.sample()
    with h5py.File(path, "w") as file:
        for name, key in (("observations", "obs"), ("actions", "action"), ("rewards", "reward")):
            file[name] = np.concatenate([part[key][:-1] if key == "obs" else part[key] for part in parts])
        file["next_observations"] = np.concatenate([part["obs"][1:] for part in parts])
        length = np.cumsum([len(part["action"]) for part in parts])
        file["terminals"] = np.isin(np.arange(length[-1]), length - 1)
        file["infos/qpos"] = np.zeros((length[-1], 2))
    mutate(case, path)
    choices(case)
    if case.chance(0.04):
        links.alone(case, path)
    return path


def robomimic(case: Case) -> Path:
    """A hostile file of groups."""
    path = case.home / "given.hdf5"
    with h5py.File(path, "w") as file:
        for number, part in enumerate(values.sample()):
            group, obs = file.create_group(f"data/demo_{number}"), part["obs"]
            group["actions"], group["obs/state"], group["next_obs/state"] = part["action"], obs[:-1], obs[1:]
            group["obs/joints"] = group["next_obs/joints"] = np.zeros((len(obs) - 1, 2))
            group["dones"], group["rewards"] = np.zeros(len(obs) - 1, int), part["reward"]
            group.attrs["num_samples"] = len(obs) - 1
        file["mask/better_operator_1"] = np.array([b"demo_0", b"demo_2"])
        file["mask/worse_operator_1"] = np.array([b"demo_1"])
    mutate(case, path)
    choices(case)
    return path
