"""Tables are read row by row, whoever wrote them; what is not a table of steps is refused in one line."""

import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from irleed._io import arrays as _arrays
from irleed.data import Demonstrations
from irleed.data.formats import ReadOptions
from irleed.data.formats.tables import FORMAT
from irleed.errors import DataError

PLAYED = """episode,demonstrator,obs_0,obs_1,action,reward,terminated,truncated
a,Zoë,0,0.5,1,1,0,0
a,Zoë,1,1.5,0,2,1,0
a,Zoë,2,2.5,,,,
b,01,3,3.5,1,3,0,0
b,01,4,4.5,0,4,0,1
"""


def written(path, text: str = PLAYED):
    path.write_text(text, encoding="utf-8")
    return path


def steps(**changes) -> dict:
    """Columns of two episodes, the first with its final observation."""
    columns = {
        "episode": [7, 7, 7, 3, 3],
        "obs": [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0], [3.0, 4.0], [4.0, 5.0]],
        "action": [1, 0, None, 1, 0],
    }
    return {name: values for name, values in (columns | changes).items() if values is not None}


def parquet(path, **changes):
    pq.write_table(pa.table(steps(**changes)), path)
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_a_csv_file_is_read_as_it_stands(tmp_path, delimiter, start):
    path = written(tmp_path / "data.csv", start + PLAYED.replace(",", delimiter))
    assert FORMAT.recognises(path)
    data = FORMAT.read(path, ReadOptions())
    np.testing.assert_array_equal(data.obs, [[i, i + 0.5] for i in range(5)])
    np.testing.assert_array_equal(data.action, [1, 0, 1])
    assert data.action.dtype == np.int64
    np.testing.assert_array_equal(data.reward, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(data.terminated, [False, True, False])
    np.testing.assert_array_equal(data.truncated, [False, False, True])
    assert data.names == ("Zoë", "01")


def test_a_parquet_file_is_read_as_it_stands(tmp_path):
    path = parquet(tmp_path / "data.parquet", done=[False, True, None, False, False])
    assert FORMAT.recognises(path)
    data = FORMAT.read(path, ReadOptions())
    np.testing.assert_array_equal(data.obs, steps()["obs"])
    np.testing.assert_array_equal(data.action, [1, 0, 1])
    np.testing.assert_array_equal(data.terminated, [False, True, False])
    assert data.reward is None and data.names == ("data",)


def test_lists_of_fixed_length_and_categories_are_read(tmp_path):
    obs = pa.array(steps()["obs"], pa.list_(pa.float32(), 2))
    action = pa.array([[1.0, 0.5], [0.0, 0.5], None, [1.0, 0.0], [2.0, 2.0]], pa.list_(pa.float64(), 2))
    user = pa.array(["x", "x", "x", "y", "y"]).dictionary_encode()
    data = FORMAT.read(parquet(tmp_path / "data.parquet", obs=obs, action=action, user=user), ReadOptions())
    np.testing.assert_array_equal(data.action, [[1.0, 0.5], [0.0, 0.5], [1.0, 0.0]])
    assert data.obs.dtype == np.float32 and data.names == ("x", "y")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_what_pandas_writes_keeps_whole_actions_whole(tmp_path, suffix):
    frame = pd.DataFrame({"episode": [0, 0, 0], "obs": [5, 6, 7], "action": [2, 0, None], "done": [0, 1, None]})
    path = tmp_path / f"data.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    data = FORMAT.read(path, ReadOptions())
    np.testing.assert_array_equal(data.obs, [5, 6, 7])
    np.testing.assert_array_equal(data.action, [2, 0])
    assert data.action.dtype.kind == "i" and data.terminated.tolist() == [False, True]


def test_fractions_stay_fractions(tmp_path):
    path = written(tmp_path / "data.csv", "episode,obs,action\n0,1,0.5\n0,2,1.0\n0,3,\n")
    np.testing.assert_array_equal(FORMAT.read(path, ReadOptions()).action, [0.5, 1.0])


def test_columns_come_in_the_order_of_their_numbers_then_names(tmp_path):
    many = {f"obs_{i}": [float(i)] * 5 for i in (10, 2, 0)} | {"observation.z": [99.0] * 5}
    parts = {f"action_{i}": [i] * 5 for i in (11, 3)} | {"action.x": [77] * 5}
    path = parquet(tmp_path / "data.parquet", obs=None, action=None, **many, **parts)
    data = FORMAT.read(path, ReadOptions())
    assert data.obs[0].tolist() == [0.0, 2.0, 10.0, 99.0]
    assert data.action[0].tolist() == [3, 11, 77]


def test_observations_and_actions_can_be_chosen(tmp_path, refusal):
    path = parquet(tmp_path / "data.parquet", speed=[1, 2, 3, 4, 5], told=[9, 8, 7, 6, 5])
    data = FORMAT.read(path, ReadOptions(obs=("speed",), action="told"))
    assert data.obs.tolist() == [1, 2, 3, 4, 5] and data.action.tolist() == [9, 8, 6]
    assert "'speed'" in refusal(path, ReadOptions(obs=("height",)))
    assert "'speed'" in refusal(path, ReadOptions(action="height"))


def test_images_are_left_out_and_text_is_not(tmp_path, refusal):
    images = {"observation.image": [{"bytes": b"x"}] * 5, "observation.map": [[[1, 2]]] * 5}
    data = FORMAT.read(parquet(tmp_path / "data.parquet", **images), ReadOptions())
    assert data.obs.shape == (5, 2)
    assert "string" in refusal(written(tmp_path / "text.csv", PLAYED.replace("3.5", "three")))


@pytest.mark.parametrize(
    "flags, terminated",
    [
        ({}, False),
        ({"done": [0, 0, 0, 0, 1]}, True),
        ({"done": [0, 0, 0, 1, 0]}, True),
        ({"terminated": [0, 0, 0, 0, 1], "truncated": [0, 0, 0, 0, 1]}, True),
        ({"truncated": [0, 0, 0, 0, 1], "done": [0, 0, 0, 0, 1]}, False),
        ({"terminated": [0, 0, 0, 0, 0], "done": [0, 0, 0, 0, 1]}, False),
    ],
)
def test_how_an_episode_ended(tmp_path, flags, terminated):
    data = FORMAT.read(parquet(tmp_path / "data.parquet", **flags), ReadOptions())
    assert bool(data.terminated[-1]) is terminated and bool(data.truncated[-1]) is not terminated
    assert bool(data.truncated[1])


def test_who_acted(tmp_path, refusal):
    team, who = {"player": ["p", "p", "p", "q", "q"]}, {"pilot": [1, 1, 1, 2, 2]}
    path = parquet(tmp_path / "data.parquet", **team, **who)
    assert FORMAT.read(path, ReadOptions()).names == ("p", "q")
    assert FORMAT.read(path, ReadOptions("pilot")).names == ("1", "2")
    assert FORMAT.read(path, ReadOptions("episode")).names == ("data",)
    assert "'pilot'" in refusal(path, ReadOptions("height"))
    two = parquet(tmp_path / "two.parquet", user=["u"] * 5, **team)
    assert "'player', 'user'" in refusal(two)
    assert FORMAT.read(two, ReadOptions("episode")).names == ("two",)
    assert FORMAT.read(parquet(tmp_path / "d.parquet", demonstrator=["d"] * 5, **team), ReadOptions()).names == ("d",)
    assert "row 1: got another player" in refusal(parquet(tmp_path / "x.parquet", player=["p", "q", "q", "q", "q"]))


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"episode": [7, 7, 3, 3, 7]}, "row 4: got a second part"),
        ({"episode": [7, 7, None, 3, 3]}, "row 2: got no episode"),
        ({"action": [1, None, None, 1, 0]}, "row 1: got no action"),
        ({"episode": [7, 7, 7, 7, 3], "action": [1, 1, 1, 1, 1]}, "row 4: got an episode of one row"),
        ({"episode": None}, "'obs', 'action'"),
        ({"action": None}, "no 'action'"),
        ({"obs": None}, "only 'episode', 'action'"),
        ({"action_0": [1, 1, 1, 1, 1]}, "'action', 'action_0'"),
        ({"action": ["left", "right", None, "left", "left"]}, "string"),
        ({"obs": [[0.0], [1.0, 2.0], [2.0], [3.0], [4.0]]}, "lists of 2 lengths"),
        ({"obs": pa.array([[]] * 5, pa.list_(pa.float64()))}, "lists of no numbers"),
        ({"obs": [[0.0], [None], [2.0], [3.0], [4.0]]}, "empty entries"),
        ({"obs": [[0.0], [np.nan], [2.0], [3.0], [4.0]]}, "finite"),
        ({"obs": [1, None, 2, 3, 4]}, "row 1: got no observation"),
        ({"obs": [None] * 5}, "type null"),
        ({"obs_0": [1, None, 2, 3, 4]}, "row 1: got gaps"),
        ({"reward": [1.0, None, None, 1.0, 1.0]}, "row 1: got no reward"),
        ({"reward": ["a"] * 5}, "string"),
        ({"reward": [[1.0, 2.0]] * 5}, "shape"),
        ({"terminated": [1, 0, 0, 0, 0]}, "row 0: got an end"),
        ({"terminated": [0, 0, 0, 0, 2]}, "true and false"),
        ({"demonstrator": ["", "", "", "", ""]}, "names"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, changes, said, refusal):
    assert said in refusal(parquet(tmp_path / "data.parquet", **changes))


@pytest.mark.parametrize(
    "text, said",
    [
        (PLAYED.replace("obs_1", "obs_0"), "every name once"),
        (PLAYED.replace("1.5", "nan"), "finite"),
        (PLAYED.replace("1.5", ""), "row 1"),
        (PLAYED + "b,01,5\n", "unreadable"),
        (PLAYED.splitlines()[0] + "\n", "0 rows"),
        ("step,obs,action\n0,1,2\n", "'episode'"),
        ("", "'episode'"),
    ],
)
def test_what_is_wrong_with_a_csv_file_is_said(tmp_path, text, said, refusal):
    assert said in refusal(written(tmp_path / "data.csv", text))


def test_late_fractions_do_not_depend_on_the_first_rows(tmp_path):
    rows = "".join(f"0,{i},1\n" for i in range(200_000))
    data = FORMAT.read(written(tmp_path / "data.csv", f"episode,obs,action\n{rows}0,0.5,1\n"), ReadOptions())
    assert len(data) == 200_000 and data.obs[-1] == 0.5


def test_spaces_around_names_do_not_matter(tmp_path):
    data = FORMAT.read(written(tmp_path / "data.csv", PLAYED.replace(",", ", ")), ReadOptions())
    assert data.names == ("Zoë", "01") and data.obs.shape == (5, 2) and data.action.tolist() == [1, 0, 1]


def test_other_files_are_not_recognised(tmp_path, refusal):
    contents = (
        b"",
        b"PAR1",
        b"PAR1 and no more",
        b"step,obs\n1,2\n",
        b"episode\n1\n",
        b"episode,\0\n",
        b"\xff,episode\n",
    )
    for i, content in enumerate(contents):
        path = tmp_path / str(i)
        path.write_bytes(content)
        assert FORMAT.recognises(path) is (content == b"PAR1")
        refusal(path)
    assert not FORMAT.recognises(tmp_path) and not FORMAT.recognises(tmp_path / "none")
    refusal(tmp_path)
    refusal(tmp_path / "none")


def test_a_header_cut_within_a_letter_is_recognised(tmp_path):
    path = written(tmp_path / "data.csv", "episode," + "é" * 5000)
    assert FORMAT.recognises(path)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_damaged_file_is_read_or_refused(tmp_path, suffix):
    path = tmp_path / f"data.{suffix}"
    content = (written(path) if suffix == "csv" else parquet(path, player=["p", "p", "p", "q", "q"])).read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for trial in range(300):
        at = int(random.integers(len(content)))
        flipped = content[:at] + bytes([content[at] ^ int(random.integers(1, 256))]) + content[at + 1 :]
        path.write_bytes(flipped if trial % 4 else content[:at])
        FORMAT.recognises(path)
        try:
            assert isinstance(FORMAT.read(path, ReadOptions()), Demonstrations)
        except DataError as error:
            assert len(str(error).splitlines()) == 1
            refused += 1
    assert refused > 50


def test_what_a_csv_file_is_called_decompresses_nothing(tmp_path):
    """Arrow would take a file for what its name ends in."""
    (tmp_path / "data.csv.gz").write_text("episode,obs,action\n0,1,0\n0,2,\n")
    assert FORMAT.read(tmp_path / "data.csv.gz", ReadOptions()).transitions == 1


def test_episodes_count_besides_their_numbers(tmp_path, monkeypatch):
    """An episode of two steps takes a kilobyte while data are put together."""
    monkeypatch.setattr(_arrays, "ALWAYS", 1)
    (tmp_path / "data.csv").write_text("episode,obs,action\n" + "".join(f"{i},0,0\n{i},0,\n" for i in range(100)))
    with pytest.raises(DataError, match="--expansion"):
        FORMAT.read(tmp_path / "data.csv", ReadOptions(expansion=50.0))
    assert FORMAT.read(tmp_path / "data.csv", ReadOptions()).episodes == 100


def test_a_csv_file_made_long_without_content_is_refused_unread(tmp_path):
    """Its zero bytes begin behind what is read for the header; Arrow would read gigabytes of them as one value."""
    path = tmp_path / "steps.csv"
    path.write_text("episode,obs_0,action\n" + "0,1,1\n" * 200_000)
    os.truncate(path, 1 << 32)
    with pytest.raises(DataError, match="zero bytes at its end"):
        FORMAT.read(path, ReadOptions())
