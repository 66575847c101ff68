"""Figures: drawn from any sensible input, written whole, and without a trace in matplotlib's global state."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.image import imread

from irleed.errors import ConfigError
from irleed.experiments import published_gridworld
from irleed.report import figures
from irleed.report import figures as style


@pytest.fixture(autouse=True)
def settings_untouched():
    before = dict(matplotlib.rcParams)
    yield
    assert dict(matplotlib.rcParams) == before


def curve(mean, half_width=0.05):
    mean = np.asarray(mean, float)
    return figures.Curve(mean, mean - half_width, mean + half_width)


def maps(cells, count=4):
    generator = np.random.default_rng(0)
    return {f"map {i}": generator.random(cells) for i in range(count)}


def cell_texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_saved_files_are_whole_and_of_the_stated_size(tmp_path):
    figure = figures.gridworld_maps(7, 7, maps(49))
    png, pdf = style.save(figure, tmp_path / "a.b")  # a dot is no suffix
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.b.pdf", "a.b.png"]
    assert pdf.read_bytes()[:5] == b"%PDF-" and pdf.stat().st_size > 1000
    width, height = figure.get_size_inches()
    assert imread(png).shape[:2] == (int(height * 200), int(width * 200))
    assert width == pytest.approx(style.COLUMN)


def test_same_arrays_same_bytes(tmp_path):
    def files(path):
        figure = figures.expertise_bars(["a", "b"], np.array([0.5, 2.0]), np.array([0.4, 1.0]), np.array([0.7, 3.0]))
        return [written.read_bytes() for written in style.save(figure, path)]

    assert files(tmp_path / "x") == files(str(tmp_path / "x"))


def test_failed_save_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    figure = figures.gridworld_maps(2, 2, maps(4, 1))
    old = [path.read_bytes() for path in style.save(figure, tmp_path / "x")]

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="no space"):
        style.save(figures.gridworld_maps(3, 3, maps(9, 1)), tmp_path / "x")
    assert [(tmp_path / f"x.{kind}").read_bytes() for kind in ("png", "pdf")] == old
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("rows,columns,count", [(7, 7, 4), (4, 12, 3), (1, 40, 1), (40, 1, 5)])
def test_maps_of_any_shape_and_number(tmp_path, rows, columns, count):
    figure = figures.gridworld_maps(rows, columns, maps(rows * columns, count))
    drawn = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert len(drawn) == count
    for image in drawn:
        assert image.shape == (rows, columns)
        assert (image.min(), image.max()) == (0, 1)
    style.save(figure, tmp_path / "maps")


def test_constant_and_missing_cells_of_a_map(tmp_path):
    values = {"constant": np.ones(4), "hole": np.array([1.0, np.nan, 3.0, 2.0]), "empty": np.full(4, np.nan)}
    figure = figures.gridworld_maps(2, 2, values)
    constant, hole, empty = (np.ma.filled(axes.images[0].get_array(), np.nan).ravel() for axes in figure.axes[:3])
    np.testing.assert_array_equal(constant, 0)
    np.testing.assert_array_equal(hole, [0, np.nan, 1, 0.5])
    assert np.isnan(empty).all()
    style.save(figure, tmp_path / "maps")


def test_published_improvement_is_the_papers(tmp_path):
    published = published_gridworld()
    assert published.irl.shape == (11, 11)
    assert np.isinf(published.accuracy[-1])
    assert 100 * published.improvement.mean() == pytest.approx(30.3, abs=0.05)
    assert published.demonstrators.mean() == pytest.approx(0.944, abs=5e-4)
    figure = figures.improvement(
        published.max_precision,
        published.accuracy,
        published.irl,
        published.irleed,
        level=5.0,
        curves={"IRL": curve(published.irl[-1]), "IRLEED": curve(published.irleed[-1])},
        demonstrators=published.demonstrators[-1],
    )
    style.save(figure, tmp_path / "improvement")
    texts = cell_texts(figure)
    assert len(texts) == 121
    assert texts[10 * 11 + 3] == "111"  # largest beta 5, lambda 3.5
    left, right = figure.axes[:2]
    assert [label.get_text() for label in left.get_xticklabels()][-2:] == ["10", "∞"]
    assert [line.get_label() for line in right.lines] == ["demonstrators", "IRL", "IRLEED"]
    assert right.lines[0].get_linestyle() == "--"


def test_cells_that_were_not_run_and_baselines_that_earn_nothing(tmp_path):
    baseline = np.array([[np.nan, 0.5], [0.0, 0.4]])
    ours = np.array([[0.9, 0.25], [0.3, 0.4]])
    figure = figures.improvement(
        np.array([1.0, 5.0]),
        np.array([2.0, np.inf]),
        baseline,
        ours,
        level=1.0,
        curves={"irleed": curve([np.nan, 0.5])},
    )
    style.save(figure, tmp_path / "some")
    assert cell_texts(figure) == ["·", "−50", "·", "0"]


def test_nothing_run_yet(tmp_path):
    nothing = np.full((1, 2), np.nan)
    figure = figures.improvement(np.array([1.0]), np.array([2.0, 4.0]), nothing, nothing, level=1.0, curves={})
    style.save(figure, tmp_path / "none")


def test_level_must_be_a_row():
    cells = np.ones((1, 1))
    with pytest.raises(ConfigError, match="got 3.0, expected one of 1"):
        figures.improvement(np.array([1.0]), np.array([2.0]), cells, cells, level=3.0, curves={})


def test_most_precise_demonstrator_on_top_and_names_taken_literally(tmp_path):
    precision = np.array([0.5, 4.0, 1.0])
    figure = figures.expertise_bars(["low", "$high$ " + "x" * 40, "middle"], precision, precision / 2, precision * 2)
    style.save(figure, tmp_path / "bars")
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[:2] == ["low", "middle"]
    assert labels[2].startswith("$high$ xx")
    assert len(labels[2]) == figures.LONGEST_NAME
    assert figure.axes[0].get_xscale() == "log"


def test_intervals_without_end_are_cut_at_the_edge(tmp_path):
    precision = np.array([0.0, 1.0, 2.0])
    figure = figures.expertise_bars(["a", "b", "c"], precision, np.array([0.0, 0.0, 1.0]), np.array([1e9, np.inf, 3.0]))
    style.save(figure, tmp_path / "bars")
    left, right = figure.axes[0].get_xlim()
    assert 0 < left < 1
    assert 2 < right < 1000


def test_thousands_of_demonstrators_fit_a_file(tmp_path):
    precision = np.linspace(0.1, 10, 2000)
    figure = figures.expertise_bars([str(i) for i in range(2000)], precision, precision / 2, precision * 2)
    style.save(figure, tmp_path / "bars")
    assert figure.get_size_inches()[1] < 30


def test_pyplot_is_never_imported():
    program = "import sys, irleed.report.figures; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
