"""Folders of the Atari Grand Challenge: screens and text belong together, and what does not fit is named."""

import pickle

import numpy as np
import pytest
from PIL import Image

from irleed.data import ReadOptions, lazy, load
from irleed.data.formats.atari_grand_challenge import FORMAT
from irleed.data.lazy import LazyRows

HEAD = ("db traj id : 35", "frame,reward,score,terminal,action")
SIZE = (6, 5)  # rows and columns of a screen


def screen(episode: int, frame: int) -> np.ndarray:
    return np.random.default_rng([episode, frame]).integers(0, 256, (*SIZE, 3), np.uint8)


def folder(path, episodes=((2, 5), (11, 4)), first=0, game="qbert", head=HEAD, **change):
    """A folder as it is published: episode and number of rows each; screens start at `first`."""
    for episode, rows in episodes:
        screens, texts = path / "screens" / game / str(episode), path / "trajectories" / game
        screens.mkdir(parents=True, exist_ok=True)
        texts.mkdir(parents=True, exist_ok=True)
        lines = [f"{t},{10 * t},{score},{int(t == rows - 1)}, {t % 3}" for t, score in enumerate(range(rows))]
        for line, text in change.get("lines", {}).items():
            lines[line] = text
        (texts / f"{episode}.txt").write_text("\n".join([*head, *lines]) + "\n")
        for t in range(first, rows):
            Image.fromarray(screen(episode, t)).save(screens / f"{t}.png")
    return path


def test_every_screen_meets_its_action(tmp_path):
    path = folder(tmp_path)
    data = FORMAT.read(path, ReadOptions())
    assert FORMAT.recognises(path)
    assert data.names == ("qbert 2", "qbert 11") and data.length.tolist() == [4, 3]
    assert data.obs.dtype == np.uint8 and data.obs.shape == (9, *SIZE, 3)
    expected = [screen(2, t) for t in range(5)] + [screen(11, t) for t in range(4)]
    np.testing.assert_array_equal(data.obs, expected)
    assert data.action.tolist() == [0, 1, 2, 0, 0, 1, 2]
    assert data.terminated.tolist() == [False] * 3 + [True] + [False] * 2 + [True]


def test_a_reward_belongs_to_the_action_before_it(tmp_path):
    """Row t is written when screen t is reached: what it earned was earned by the action of row t - 1."""
    assert FORMAT.read(folder(tmp_path), ReadOptions()).reward.tolist() == [10, 20, 30, 40, 10, 20, 30]


def test_screens_may_start_at_one_and_texts_without_a_line_on_top(tmp_path):
    data = FORMAT.read(folder(tmp_path, first=1, head=HEAD[1:]), ReadOptions())
    assert data.length.tolist() == [3, 2] and data.action.tolist() == [1, 2, 0, 1, 2]
    np.testing.assert_array_equal(data.obs[0], screen(2, 1))


def test_flags_as_words_and_an_episode_that_was_given_up(tmp_path):
    data = FORMAT.read(
        folder(tmp_path, episodes=((3, 3),), lines={0: "0,0,0,False,17", 2: "2,0,0,False,1"}), ReadOptions()
    )
    assert data.truncated.tolist() == [False, True] and data.action.tolist() == [17, 1]


def test_small_and_grey_and_one_who_plays_all(tmp_path):
    data = FORMAT.read(folder(tmp_path), ReadOptions("game", obs=("grey84",)))
    assert data.names == ("qbert",) and data.obs.shape == (9, 84, 84) and data.obs.dtype == np.uint8
    first = screen(2, 0)[:1, :1]
    assert abs(float(data.obs[0, 0, 0]) - float(np.array(Image.fromarray(first).convert("L"))[0, 0])) <= 1


def test_one_of_several_games_is_named_by_its_folder(tmp_path, refusal):
    folder(tmp_path)
    folder(tmp_path, game="revenge", episodes=((1, 3),))
    assert "games 'qbert', 'revenge'" in refusal(tmp_path)
    for part in ("screens", "trajectories"):
        assert load(tmp_path / part / "revenge").names == ("revenge 1",)


def test_many_screens_stay_on_disk(tmp_path, monkeypatch):
    path = folder(tmp_path)
    read_at_once = FORMAT.read(path, ReadOptions()).obs
    monkeypatch.setattr(lazy, "LARGE", 1)
    obs = FORMAT.read(path, ReadOptions()).obs
    assert isinstance(obs, LazyRows)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(obs))[[8, 0, 8]], np.asarray(read_at_once)[[8, 0, 8]])


@pytest.mark.parametrize(
    "lines, said",
    [
        ({1: "1,0,0,0"}, "line 4: got 4 values, expected 5"),
        ({1: "1,0,0,0,fire"}, "no table of numbers"),
        ({1: "1,0,0,0,18"}, "line 4: got '1,0,0,0,18'"),
        ({1: "1,0,0,0,nan"}, "line 4"),
        ({1: "inf,0,0,0,-inf"}, "line 4"),
        ({1: "1,0,0,2,1"}, "terminal 0 or 1"),
        ({1: "1,0,0,1,1"}, "terminal at frame 1"),
        ({1: "3,0,0,0,1"}, "frames one after the other"),
        ({0: "0,0,0,0,-1"}, "line 3"),
    ],
)
def test_what_does_not_fit_in_a_text_is_named(tmp_path, refusal, lines, said):
    assert said in refusal(folder(tmp_path, episodes=((3, 4),), lines=lines))


def test_what_is_missing_is_named(tmp_path, refusal):
    path = folder(tmp_path / "gap")
    (path / "screens/qbert/2/2.png").unlink()
    assert "no 2.png" in refusal(path)
    for file in (path / "screens/qbert/2").iterdir():
        file.unlink()
    assert "screens of 0 of 5 frames" in refusal(path)
    (path / "screens/qbert/2").rmdir()
    assert "unreadable folder" in refusal(path)
    path = folder(tmp_path / "head", head=("frame,reward",))
    assert "columns 'frame', 'reward'" in refusal(path)
    (tmp_path / "none" / "screens").mkdir(parents=True)
    (tmp_path / "none" / "trajectories" / "qbert").mkdir(parents=True)
    assert "no files" in refusal(tmp_path / "none")
    assert "no 'player'" in refusal(folder(tmp_path / "who"), demonstrator="player")
    for choice in ({"obs": ("colour",)}, {"obs": ("screen", "grey84")}, {"action": "score"}):
        assert "choose from these" in refusal(tmp_path / "who", **choice)


def test_pictures_that_are_none_or_of_another_size_are_named(tmp_path, refusal):
    path = folder(tmp_path)
    (path / "screens/qbert/11/1.png").write_bytes(b"no picture")
    assert "11/1.png: got no picture" in refusal(path)
    Image.fromarray(np.zeros((2, 2, 3), np.uint8)).save(path / "screens/qbert/11/1.png")
    assert "shape (2, 2, 3)" in refusal(path)
