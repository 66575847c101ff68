"""A run that was stopped goes on as if it never had been: the same answer and the same state, bit for bit."""

import hashlib
import json
import os
import shutil
import signal
import threading

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from irleed._io import files as _files
from irleed._io.files import LOCK, locked
from irleed.algorithms.baselines.bc import BehaviourCloning
from irleed.algorithms.baselines.sqil import Sqil
from irleed.cli import interrupt, main
from irleed.data import Demonstrations, Episode, save
from irleed.data.transitions import Transitions, stack
from irleed.envs.jax import CartPole
from irleed.errors import ConfigError, DataError
from irleed.fit.networks import fit_networks
from irleed.rollout import DeviceBackend, HostBackend, backends
from irleed.runs import logging as logs
from irleed.runs.checkpoint import Checkpointer, Stopped, handled
from irleed.runs.directory import RUN, fingerprint, open_run
from irleed.runs.reader import read_run

pytestmark = pytest.mark.optax

AGENT = Sqil(hidden=(8,), steps=50, batch_size=4, buffer_size=30, learning_starts=10)


def poles(seed: int = 0) -> Demonstrations:
    generator = np.random.default_rng(seed)
    shown = [(generator.normal(size=(9, 4)).astype(np.float32), generator.integers(0, 2, 8)) for _ in range(4)]
    return Demonstrations.from_episodes(
        [Episode(obs, action, True, "ab"[n % 2], np.ones(8)) for n, (obs, action) in enumerate(shown)]
    )


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.npz"
    save(poles(), path)
    return path


def last_state(folder) -> dict[str, bytes]:
    """Every array of the last checkpoint."""
    path = max((folder / "checkpoints").glob("[0-9]*.safetensors"))
    return {name: array.tobytes() for name, array in load_file(path).items()}


def stopping(checkpointer: Checkpointer, after: int):
    """Asks for a stop once so many steps are done."""

    def progress(done: int, total: int, **figures: float) -> None:
        checkpointer.stop = checkpointer.stop or done >= after

    return progress


@pytest.mark.parametrize("kind", ["host", "device"])
def test_agents_go_on(kind, tmp_path, monkeypatch):
    """With an environment on the host, which cannot be kept, too: parts begin episodes of their own there."""
    monkeypatch.setattr(backends, "LEAST_PART", 20)  # parts of 20, 20 and 10 steps
    keys = jax.random.split(jax.random.key(0), 2)
    data = stack([Transitions.from_demonstrations(poles(seed)) for seed in (0, 1)])
    backend = HostBackend("CartPole-v1") if kind == "host" else DeviceBackend(CartPole())
    alone, losses = backend.learn(AGENT, keys, data, 2)
    whole, _ = backend.learn(AGENT, keys, data, 2, None, Checkpointer(tmp_path / "whole", "", every=0.0))
    backend.close()
    for after in (1, 30):  # each in a new backend, as in a new process
        backend = HostBackend("CartPole-v1") if kind == "host" else DeviceBackend(CartPole())
        checkpointer = Checkpointer(tmp_path / "parts", "", every=1e9)
        with pytest.raises(Stopped):
            backend.learn(AGENT, keys, data, 2, stopping(checkpointer, after), checkpointer)
        backend.close()
    backend = HostBackend("CartPole-v1") if kind == "host" else DeviceBackend(CartPole())
    told = []
    progress = lambda done, total, **figures: told.append((done, *figures))  # noqa: E731
    parts, same_losses = backend.learn(AGENT, keys, data, 2, progress, Checkpointer(tmp_path / "parts", ""))
    backend.close()
    assert told[0] == ((40,) if kind == "host" else (30,)) and told[-1] == (50, "loss")
    for other in (alone, parts):
        leaves = zip(jax.tree.leaves(whole), jax.tree.leaves(other), strict=True)
        assert all(np.asarray(one).tobytes() == np.asarray(same).tobytes() for one, same in leaves)
    for (step, loss), (same_step, same_loss) in zip(losses, same_losses, strict=True):
        assert step == same_step and loss.tobytes() == same_loss.tobytes() and np.isfinite(loss).all()
    assert last_state(tmp_path / "whole") == last_state(tmp_path / "parts")
    assert len(whole.replay.added) == 2 and whole.replay.added.tolist() == [50, 50], "a cut leaves no step out"


def test_steps_beside_a_cut_are_whole(monkeypatch):
    """Between the last step of a part and the first of the next no episode ends, and none is made up of two."""
    monkeypatch.setattr(backends, "LEAST_PART", 4)
    backend = HostBackend("CartPole-v1")
    agent = Sqil(hidden=(8,), steps=12, batch_size=4, buffer_size=12, learning_starts=11)
    data = stack([Transitions.from_demonstrations(poles())])
    state, _ = backend.learn(agent, jax.random.split(jax.random.key(0), 1), data, 2)
    backend.close()
    seen = jax.tree.map(lambda leaf: np.asarray(leaf)[0], state.replay.ring)
    assert not (seen.terminated | seen.truncated).any(), "a pole stands longer than four steps"
    within = np.arange(11) % 4 != 3
    np.testing.assert_array_equal(seen.next_obs[:-1][within], seen.obs[1:][within])
    assert not np.any(np.all(seen.next_obs[:-1][~within] == seen.obs[1:][~within], -1))
    assert np.abs(seen.obs[[0, 4, 8]]).max() <= 0.05, "new episodes"
    assert len(np.unique(seen.obs[[0, 4, 8]], axis=0)) == 3, "each its own"


def test_a_fit_goes_on(tmp_path):
    """Offline; losses from before the stop are in its history, and its seconds count."""
    algorithm = BehaviourCloning(hidden=(8,), steps=21, batch_size=8)
    whole = fit_networks(poles(), algorithm, members=2)
    checkpointer = Checkpointer(tmp_path, "mine", every=1e9)
    with pytest.raises(Stopped, match="after step 8 of 21"):
        fit_networks(poles(), algorithm, members=2, progress=stopping(checkpointer, 8), checkpointer=checkpointer)
    again = Checkpointer(tmp_path, "mine")
    parts = fit_networks(poles(), algorithm, members=2, checkpointer=again)
    assert again.earlier > 0 and parts.seconds > again.earlier
    assert parts.history == whole.history and len(parts.history) == 21
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        np.testing.assert_array_equal(one, other)


SHORT = ("--algorithm", "bc", "--steps", 20, "--members", 2)


def call(*arguments: object) -> None:
    main([str(argument) for argument in arguments])


def answer(folder) -> tuple[object, ...]:
    found = json.loads((folder / "fit.json").read_text())
    return (folder / "policy.safetensors").read_bytes(), found["expertise"], found["history"], last_state(folder)


@pytest.fixture(scope="module")
def finished(file, tmp_path_factory):
    """The folder of a run that nobody stopped."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    with jax.numpy_dtype_promotion("standard"):
        call("fit", file, *SHORT, "--out", folder)
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    """The same run, to be spoilt."""
    return shutil.copytree(finished, tmp_path / "run")


def test_the_run_directory(finished):
    assert {path.name for path in finished.iterdir()} >= {"run.json", "history.jsonl", "checkpoints", "fit.json"}
    record = json.loads((finished / "run.json").read_text())
    assert record["format"] == "irleed-run" and record["version"] == 1 and set(record["versions"]) >= {"irleed", "jax"}
    assert record["config"]["algorithm"] == "BehaviourCloning" and record["config"]["seed"] == 0
    assert record["data"] == fingerprint(poles())
    lines = [json.loads(line) for line in (finished / "history.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 21)) and all(line["loss"] > 0 for line in lines)


STOPS = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


@pytest.mark.parametrize("number", STOPS, ids=str)
def test_a_signal_stops_a_run_that_resume_ends(file, finished, tmp_path, monkeypatch, capsys, number):
    add = logs.History.add

    def interrupted(self, step, figures):
        add(self, step, figures)
        if step == 7:
            signal.raise_signal(number)

    before = signal.getsignal(number)
    with monkeypatch.context() as patched:
        patched.setattr(logs.History, "add", interrupted)
        with pytest.raises(SystemExit) as ended:
            call("fit", file, *SHORT, "--out", tmp_path / "run")
    said = capsys.readouterr().err
    assert ended.value.code == 130 and signal.getsignal(number) == before
    assert "stopping at the next checkpoint" in said and "stopped after step 7 of 20" in said and "--resume" in said
    assert not (tmp_path / "run" / "fit.json").exists()
    call("fit", file, *SHORT, "--out", tmp_path / "run", "--resume")
    assert answer(tmp_path / "run") == answer(finished)
    assert len((tmp_path / "run" / "history.jsonl").read_text().splitlines()) == 20


def test_a_second_signal_stops_at_once(file, tmp_path, monkeypatch, capsys):
    def twice(self, step, figures):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(logs.History, "add", twice)
    with pytest.raises(SystemExit) as ended:
        call("fit", file, *SHORT, "--out", tmp_path / "run")
    assert ended.value.code == 130 and "irleed: interrupted" in capsys.readouterr().err


def test_a_finished_run_tells_its_answer_again(file, finished, copied, capsys):
    (copied / "fit.json").unlink()
    call("fit", file, *SHORT, "--out", copied, "--resume")
    assert "fit: 20/20, 0 s\n" in capsys.readouterr().err and answer(copied) == answer(finished)


def test_a_damaged_last_checkpoint_costs_what_came_after_the_one_before(file, finished, tmp_path, capsys):
    call("fit", file, *SHORT, "--out", tmp_path / "run", "--checkpoint-every", 0)
    with (tmp_path / "run" / "checkpoints" / "000000020.safetensors").open("r+b") as stream:
        stream.truncate(1000)
    capsys.readouterr()
    call("fit", file, *SHORT, "--out", tmp_path / "run", "--resume")
    assert "000000020.safetensors: cannot be read" in (said := capsys.readouterr().err) and "after step 19" in said
    assert answer(tmp_path / "run") == answer(finished)


def refused(capsys, *arguments: object) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        call("fit", *arguments)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.startswith("irleed: ") and said.count("\n") == 1
    return said


def test_another_run_is_refused_by_what_differs(file, copied, tmp_path, capsys):
    before = answer(copied)
    same = refused(capsys, file, *SHORT, "--out", copied)
    assert "got a run of these settings" in same and "add --resume" in same
    for more in ((), ("--resume",)):
        seed = refused(capsys, file, *SHORT, "--seed", 1, "--out", copied, *more)
        assert "started with other settings or data: got seed 0, expected seed 1; choose another --out" in seed
    steps = refused(capsys, file, *SHORT[:2], "--steps", 30, "--members", 2, "--out", copied, "--resume")
    assert "got algorithm.steps 20, expected algorithm.steps 30" in steps
    save(poles(1), tmp_path / "other.npz")
    data = refused(capsys, tmp_path / "other.npz", *SHORT, "--out", copied, "--resume")
    assert f"got data {fingerprint(poles())[:8]}..., expected data {fingerprint(poles(1))[:8]}..." in data
    assert answer(copied) == before


def test_the_same_data_elsewhere_are_the_same(file, copied, tmp_path, capsys):
    moved = shutil.copy(file, tmp_path / "moved.npz")
    call("fit", moved, *SHORT, "--out", copied, "--resume")


def test_folders_that_are_no_runs(file, copied, tmp_path, capsys):
    record = json.loads((copied / RUN).read_text())

    def told(content: str) -> str:
        (copied / RUN).write_text(content)
        return refused(capsys, file, *SHORT, "--out", copied, "--resume")

    assert "does not match its checksum" in told(json.dumps(record | {"version": 2}))
    del record["checksum"]  # as runs of older versions
    assert "got 2, expected at most 1; install a newer irleed" in told(json.dumps(record | {"version": 2}))
    for content in ("{}", '{"format": "irleed-run"}', json.dumps({**record, "config": 3})):
        assert "expected the settings of a run; copy it again" in told(content)
    for content in ("", "{", "[]", "[" * 100_000):
        assert "expected a whole JSON file; copy" in told(content) or "expected a JSON object; copy" in told(content)
    edited = {**record, "config": record["config"] | {"seed": 5}}
    assert "got seed 5, expected seed 0" in told(json.dumps(edited))
    (copied / RUN).write_text(json.dumps(edited))
    as_edited = refused(capsys, file, *SHORT, "--seed", 5, "--out", copied, "--resume")
    assert "got another fingerprint, expected a checkpoint of this run" in as_edited
    (copied / RUN).unlink()
    for more in ((), ("--resume",)):  # half-copied
        assert "and no run.json, expected a run" in refused(capsys, file, *SHORT, "--out", copied, *more)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_text("x")
    assert "got cat.png, and no run.json" in refused(capsys, file, *SHORT, "--out", tmp_path / "photos", "--resume")
    (tmp_path / "file").write_text("x")
    assert "output folder" in refused(capsys, file, *SHORT, "--out", tmp_path / "file", "--resume")


def test_settings_that_need_a_folder_or_make_no_sense(file, tmp_path, capsys):
    for setting in (("--resume",), ("--checkpoint-every", 3), ("--log", "wandb")):
        assert f"{setting[0]}: got no --out" in refused(capsys, file, *SHORT, *setting)
    for setting in (-1, "nan"):
        every = refused(capsys, file, *SHORT, "--out", tmp_path / "run", "--checkpoint-every", setting)
        assert "--checkpoint-every: got " in every and "expected 0 or more" in every
    assert not (tmp_path / "run").exists()


def test_a_disk_that_is_full_and_a_folder_that_is_gone(file, finished, tmp_path, monkeypatch, capsys):
    add, folder = logs.History.add, tmp_path / "run"

    def failing(self, step, figures):
        add(self, step, figures)
        if step == 5:
            raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(logs.History, "add", failing)
        said = refused_after(capsys, file, *SHORT, "--out", folder, "--checkpoint-every", 0)
    assert "No space left on device" in said and "continue with --resume" in said
    call("fit", file, *SHORT, "--out", folder, "--resume")
    assert answer(folder) == answer(finished)

    def removing(self, step, figures):
        if step == 5:
            shutil.rmtree(tmp_path / "other")

    monkeypatch.setattr(logs.History, "add", removing)
    said = refused_after(capsys, file, *SHORT, "--out", tmp_path / "other", "--checkpoint-every", 0)
    assert "No such file or directory" in said


def refused_after(capsys, *arguments: object) -> str:
    """One line more, after those of progress."""
    with pytest.raises(SystemExit) as ended:
        call("fit", *arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_a_run_goes_on_with_other_versions_and_says_so(tmp_path):
    with open_run(tmp_path, {"a": 1}, "data", resume=True) as run:
        assert run.notes == ()
    record = json.loads((tmp_path / RUN).read_text())
    del record["checksum"]
    record["versions"]["jax"] = "0.0.1"
    (tmp_path / RUN).write_text(json.dumps(record))
    with open_run(tmp_path, {"a": 1}, "data", resume=True) as run:
        (note,) = run.notes
    assert "started with jax 0.0.1" in note
    other = open_run(tmp_path, {"a": 2, "b": "x"}, "data", resume=True)
    with pytest.raises(ConfigError, match="got a 1, b None, expected a 2, b x"), other:
        pass


def test_what_a_kill_left_before_the_run_began_is_no_run(tmp_path):
    (tmp_path / ".irleed-0123abcd-run.json.part").write_text("{")
    with open_run(tmp_path, {}, "data", resume=True):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [RUN]


def test_a_fit_in_an_mdp_is_a_run_too(tmp_path, capsys):
    """It takes seconds: to go on with it is to do it again."""
    data = tmp_path / "data.npz"
    call("simulate", "--env", "FrozenLake-v1", "--out", data, "--demonstrators", 2, "--demonstrations", 3)
    fit = (data, "--env", "FrozenLake-v1", "--algorithm", "maxent", "--out", tmp_path / "run")
    with jax.numpy_dtype_promotion("strict"):
        call("fit", *fit)
        first = (tmp_path / "run" / "policy.safetensors").read_bytes()
        call("fit", *fit, "--resume")
    assert (tmp_path / "run" / "policy.safetensors").read_bytes() == first
    assert "add --resume" in refused(capsys, *fit)
    assert "got endless False, expected endless True" in refused(capsys, *fit, "--endless", "--resume")
    assert "got data " in refused(capsys, *fit, "--discount", 0.9, "--resume"), "the MDP is another one"
    assert "no such setting in an MDP" in refused(capsys, *fit, "--checkpoint-every", 3)


def left(folder) -> list[str]:
    """Temporary files and locks anywhere in a folder."""
    return [path.name for path in folder.rglob(".*")]


@pytest.mark.parametrize("number", STOPS, ids=str)
@pytest.mark.parametrize("at", ["expertise.png", "fit.json"])
def test_a_signal_in_the_last_writes(file, finished, tmp_path, monkeypatch, capsys, number, at):
    """It ends as Ctrl-C does: nothing is half written, and the answer, which is written last, is not there."""
    run, replaced = tmp_path / "run", os.replace

    def interrupted(source, target):
        if target.name == at:
            signal.raise_signal(number)
        replaced(source, target)

    before = signal.getsignal(number)
    with monkeypatch.context() as patched:
        patched.setattr(_files.os, "replace", interrupted)
        with pytest.raises(SystemExit) as ended:
            call("fit", file, *SHORT, "--out", run)
    assert ended.value.code == 130 and signal.getsignal(number) == before
    assert capsys.readouterr().err.endswith("irleed: interrupted\n")
    assert left(run) == [] and not (run / "fit.json").exists() and (run / "policy.safetensors").exists()
    with pytest.raises(DataError, match="has not finished: no fit.json in it.*--resume"):
        read_run(run)
    call("fit", file, *SHORT, "--out", run, "--resume")
    assert answer(run) == answer(finished) and left(run) == []


def test_a_signal_that_is_ignored_stays_ignored(monkeypatch):
    """As SIGHUP is in a process that was started with nohup."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with handled(interrupt):
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_commands_run_in_threads_too(file, finished, capsys):
    """Where there can be no handlers."""
    thread = threading.Thread(target=call, args=("report", finished, "--out", finished.parent / "page.html"))
    thread.start()
    thread.join()
    assert "wrote" in capsys.readouterr().out


def test_a_second_process_is_refused_while_the_first_lives(file, copied, capsys):
    """Resuming, too; and it removes nothing that the first is writing."""
    (copied / ".irleed-0123abcd-fit.json.part").write_text("half")
    with locked(copied / LOCK, "run"):
        said = refused(capsys, file, *SHORT, "--out", copied, "--resume")
        assert f"got process {os.getpid()} on " in said and (copied / ".irleed-0123abcd-fit.json.part").exists()
    call("fit", file, *SHORT, "--out", copied, "--resume")
    assert left(copied) == []


def test_the_run_is_locked_until_all_is_written(file, tmp_path, monkeypatch):
    """Also while baselines are fitted."""
    seen, replaced = [], os.replace

    def looking(source, target):
        seen.append((target.parent.name, target.name, (tmp_path / "run" / LOCK).exists()))
        replaced(source, target)

    monkeypatch.setattr(_files.os, "replace", looking)
    call("fit", file, *SHORT, "--out", tmp_path / "run", "--baselines")
    assert all(held for _, _, held in seen) and ("ileed", "fit.json", True) in seen
    for folder, last in (("run", ["fit.json", "report.html"]), ("ileed", ["fit.json"])):
        written = [name for place, name, _ in seen if place == folder]
        assert written[-len(last) :] == last, "the answer comes last, and then the page about it"
    assert left(tmp_path / "run") == []


def test_the_answer_names_the_files_that_are_read_with_it(finished):
    """By their SHA-256; and the data by their fingerprint."""
    found = json.loads((finished / "fit.json").read_text())
    names = {"policy.safetensors", "data.json", "departures.json", "history.jsonl"}
    assert found["files"] == {name: hashlib.sha256((finished / name).read_bytes()).hexdigest() for name in names}
    assert found["fingerprint"] == fingerprint(poles())
