"""The code in the documentation runs as it stands, and the files it writes are files that load."""

import re
from pathlib import Path

import numpy as np
import pytest

import irleed
from irleed.algorithms.baselines import BehaviourCloning
from irleed.algorithms.tabular.visitation import tabulate

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_blocks(name: str) -> int:
    """Run the Python blocks of a page one after the other, as a reader would; returns their number."""
    page, names = (ROOT / name).read_text(encoding="utf-8"), {"__name__": "page"}
    blocks = list(BLOCK.finditer(page))
    for block in blocks:
        above = "\n" * page.count("\n", 0, block.start(1))  # so that a traceback names the line of the page
        exec(compile(above + block[1], str(ROOT / name), "exec"), names)
    return len(blocks)


NETWORKS = [pytest.param(f"docs/{page}.md", marks=pytest.mark.optax) for page in ("networks", "runs")]


@pytest.mark.parametrize("name", ["README.md", "docs/getting-started.md", *NETWORKS])
def test_code_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_blocks(name) > 0


def test_the_files_of_the_data_page_belong_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_blocks("docs/data.md") > 0
    statistics = tabulate(irleed.load("data.npz"), irleed.load_mdp("mdp.npz")[0])
    assert statistics.episodes.tolist() == [1, 1]


@pytest.mark.optax
def test_the_loop_of_the_evaluation_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    obs = np.random.default_rng(0).normal(size=(21, 4))
    data = irleed.Demonstrations.from_episodes([irleed.Episode(obs, (obs[:-1, 2] > 0).astype(int), True, "anna")])
    irleed.fit(data, algorithm=BehaviourCloning(steps=10), members=1).save("runs/mine")
    assert run_blocks("docs/evaluate.md") > 0


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: str(page.relative_to(ROOT)))
def test_code_on_every_page_compiles(page):
    """Blocks that need files of other programs are not run."""
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        compile(block[1], str(page), "exec")


def test_the_readme_names_the_commands_and_fits_a_screen():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "pip install -e . && irleed demo" in readme and "pip install -e '.[test]' && pytest" in readme
    assert len(readme.splitlines()) < 80
    assert readme.count("patent") == 2, "one note, of two sentences"
    assert (ROOT / "docs" / "images" / "report.png").stat().st_size < 200_000
