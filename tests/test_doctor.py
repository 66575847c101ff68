"""`irleed doctor` tells what is there and what is missing, and notices fits that come out wrong."""

import json
from importlib.metadata import metadata

import pytest

from irleed import doctor
from irleed.cli import main

pytestmark = [pytest.mark.optax, pytest.mark.usefixtures("compiled_quickly")]


def test_on_a_sound_machine_everything_is_right(capsys):
    main(["doctor", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] and [test["wrong"] for test in found["tests"]] == [None, None]
    assert found["versions"]["irleed"] and found["versions"]["jaxlib"] and found["devices"]
    assert set(found["extras"]) == set(metadata("irleed").get_all("Provides-Extra") or ())
    assert found["extras"]["test"] == [], "the tests run"
    assert all(folder["writable"] for folder in found["folders"].values())


def test_a_fit_that_comes_out_wrong_is_status_one(capsys, monkeypatch):
    def broken() -> str | None:
        raise RuntimeError("no [such] device")

    monkeypatch.setattr(doctor, "tabular_fit", broken)
    monkeypatch.setattr(doctor, "ENOUGH", 1.01)  # more than all
    with pytest.raises(SystemExit) as ended:
        main(["doctor"])
    shown = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 1
    assert "wrong: RuntimeError: no [such] device" in shown, "and what it says is not taken for markup"
    assert "wrong: ('direct', 'astray'), right in" in shown


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
