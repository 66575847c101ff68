"""`irleed doctor` tells what is there and what is missing, and notices what comes out wrong."""

import dataclasses
import json
from importlib.metadata import metadata

import pytest

from irleed.algorithms.base import update_on
from irleed.algorithms.tabular.irleed import negative_log_likelihood
from irleed.cli import doctor, main

pytestmark = pytest.mark.optax


def test_on_a_sound_machine_everything_is_right(capsys):
    main(["doctor", "--json", "--thorough"])
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] and [test["wrong"] for test in found["tests"]] == [None] * 4
    assert found["versions"]["irleed"] and found["versions"]["jaxlib"] and found["devices"]
    assert set(found["extras"]) == set(metadata("irleed").get_all("Provides-Extra") or ())
    assert found["extras"]["test"] == [], "the tests run"
    assert all(folder["writable"] for folder in found["folders"].values())


def test_what_comes_out_wrong_is_status_one(capsys, monkeypatch):
    def broken(*given) -> None:
        raise RuntimeError("no [such] device")

    monkeypatch.setattr(doctor, "negative_log_likelihood", broken)
    monkeypatch.setattr(doctor, "ENOUGH", 1.01)  # more than all
    with pytest.raises(SystemExit) as ended:
        main(["doctor"])
    shown = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 1
    assert "wrong: RuntimeError: no [such] device" in shown, "and what it says is not taken for markup"
    assert "wrong: direct is better, right in" in shown
    assert "fit" not in shown.partition("self-test")[2], "whole fits are made where they are asked for"


@pytest.mark.parametrize("share", [0.999, 1.001])
def test_a_likelihood_that_is_off_by_little_is_noticed(monkeypatch, share):
    def scaled(*given):
        return share * negative_log_likelihood(*given)

    monkeypatch.setattr(doctor, "negative_log_likelihood", scaled)
    assert (doctor.likelihood() or "").startswith("off by")


def test_training_that_goes_nowhere_or_astray_is_noticed(monkeypatch):
    monkeypatch.setattr(doctor, "update_on", lambda learner, state, batch: (state, None))
    assert "right in" in (doctor.training() or "")
    monkeypatch.setattr(doctor, "update_on", lambda learner, state, batch: update_on(learner, state, blamed(batch)))
    assert (doctor.training() or "").startswith("astray is better")


def blamed(batch):
    """What one did is the other's."""
    return dataclasses.replace(batch, demonstrator=1 - batch.demonstrator)


def test_extras_are_followed_to_what_they_need(tmp_path, monkeypatch):
    """Too old is missing as well; what others need on other systems, or always, is not counted."""
    lines = [
        "numpy>=1; extra == 'met'",
        "numpy>=999; extra == 'old'",
        "nowhere-to-be-found; extra == 'old'",
        "never-asked-for; extra == 'old' and sys_platform == 'nowhere'",
        "always-needed",
        "probe-of-irleed[met,old]; extra == 'all'",
    ]
    (tmp_path / "probe_of_irleed-1.0.dist-info").mkdir()
    head = "Metadata-Version: 2.1\nName: probe-of-irleed\nVersion: 1.0\n"
    text = head + "".join(f"Requires-Dist: {line}\n" for line in lines)
    (tmp_path / "probe_of_irleed-1.0.dist-info" / "METADATA").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert doctor.missing("met", "probe-of-irleed") == []
    assert doctor.missing("all", "probe-of-irleed") == ["nowhere-to-be-found", "numpy>=999"]


def test_a_folder_that_is_not_there_cannot_be_written_to(tmp_path):
    assert doctor._writable(tmp_path)["writable"] and not doctor._writable(tmp_path / "gone")["writable"]
