"""The code in the documentation runs as it stands, and the files it writes are files that load."""

import re
from pathlib import Path

import pytest

from irleed.algorithms.tabular.visitation import tabulate
from irleed.data import load
from irleed.envs.mdp import load_mdp

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
    statistics = tabulate(load("data.npz"), load_mdp("mdp.npz")[0])
    assert statistics.episodes.tolist() == [1, 1]
