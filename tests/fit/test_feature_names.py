"""Names of features: from lists, files and known environments; wrong ones are refused in one line."""

import json

import pytest

from irleed.errors import ConfigError, DataError
from irleed.fit.feature_names import feature_names


def test_names_come_from_a_list_or_a_file(tmp_path):
    names = ("cart position", "angle")
    (tmp_path / "names.json").write_text(json.dumps(names))
    (tmp_path / "names.txt").write_text("cart position\nangle\n")
    for given in (list(names), tmp_path / "names.json", str(tmp_path / "names.txt")):
        assert feature_names(given, None, (2,)) == names


def test_classic_environments_are_known():
    assert feature_names(None, "CartPole-v1", (4,))[3] == "pole angular velocity"
    assert feature_names(None, "MountainCarContinuous-v0", (2,)) == ("position", "velocity")
    assert feature_names(None, "CartPole-v1", (5,)) == ()  # another observation under that name
    assert feature_names(None, object(), (4,)) == feature_names(None, None, (4,)) == ()
    assert feature_names(["a", "b", "c", "d"], "CartPole-v1", (2, 2)) == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a"], "1 names"),
        (["a", " "], "an empty name"),
        ('["a", 3]', "an empty name, or none"),
        (["a", "a"], "'a' twice"),
        ('{"a": 1}', "a JSON object"),
        ('["a", ', "names as UTF-8 text"),
        (b"\xff\xfe", "names as UTF-8 text"),
    ],
)
def test_wrong_names_are_refused(tmp_path, given, said):
    if isinstance(given, str | bytes):
        path = tmp_path / "names.json"
        path.write_bytes(given if isinstance(given, bytes) else given.encode())
        given = path
    with pytest.raises(ConfigError, match="--feature-names") as error:
        feature_names(given, None, (2,))
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        feature_names(tmp_path / "none.txt", None, (2,))


def test_what_a_terminal_would_act_on_is_escaped():
    assert feature_names(["a\x1b[31m", "b"], None, (2,)) == ("a\\x1b[31m", "b")
