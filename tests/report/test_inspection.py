"""The page about a data set: whole, inert, and with the numbers of the summary."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from irleed.cli import main
from irleed.data import Demonstrations, Episode, save, summarise
from irleed.report.inspection import page

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>'


class Tree(HTMLParser):
    """Elements in order, with their attributes; complains about tags that do not match."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


def data(kind: str) -> Demonstrations:
    """Discrete or continuous actions, with or without rewards, or images."""
    random = np.random.default_rng(0)
    shape = (6, 6) if kind == "images" else (3,)
    return Demonstrations.from_episodes(
        [
            Episode(
                random.normal(size=(n + 1, *shape)),
                random.normal(size=(n, 2)) if kind == "continuous" else random.integers(0, 3, n),
                n % 2 == 0,
                who,
                None if kind == "images" else random.normal(size=n),
            )
            for n, who in ((4, "ann"), (7, HOSTILE), (30, "ann"))
        ]
    )


@pytest.mark.parametrize("kind", ["discrete", "continuous", "images"])
def test_a_page_is_whole_and_draws_what_there_is(kind):
    summary = summarise(data(kind))
    tree = Tree(text := page(summary, "a file"))
    plots = {"discrete": 3, "continuous": 4, "images": 2}[kind]  # lengths, returns if any, actions
    assert tree.count("svg") == plots and tree.count("figure") == plots
    assert "41 transitions in 3 episodes by 2 demonstrators" in text
    assert all(attributes.get("aria-label") for tag, attributes in tree.elements if tag == "svg")
    ids = [attributes["id"] for _, attributes in tree.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    links = [attributes["href"] for tag, attributes in tree.elements if tag == "a"]
    assert links and all(link and link[1:] in ids for link in links)


def test_names_are_text_and_nothing_is_fetched_or_run():
    text = page(summarise(data("discrete")), HOSTILE)
    tree = Tree(text)
    assert tree.count("script") == tree.count("img") == tree.count("link") == 0
    assert not any(name.startswith("on") for _, attributes in tree.elements for name in attributes)
    assert not re.search(r"(src|href)=\"(?!#)", text) and "url(" not in text
    assert "&lt;script&gt;alert(1)" in text and "default-src &#x27;none&#x27;" in text


def test_bars_are_as_tall_as_what_they_count():
    summary = summarise(data("discrete"))
    tree = Tree(page(summary, "a file"))
    heights = [float(a["height"] or 0) for tag, a in tree.elements if tag == "rect"]
    counts = [
        *summary["length"]["histogram"]["counts"],
        *summary["returns"]["histogram"]["counts"],
        *summary["action"]["histogram"].values(),
    ]
    assert len(heights) == len(counts)
    actions = list(summary["action"]["histogram"].values())
    np.testing.assert_allclose(np.array(heights[-3:]) / max(heights[-3:]), np.array(actions) / max(actions), atol=0.01)


def test_a_data_set_where_nothing_varies_has_a_page():
    """One step, one action, one return: every histogram is a single bar."""
    one = Demonstrations.from_episodes([Episode(np.zeros((2, 1)), np.zeros((1, 1)), True, "ann", [1e9])])
    assert Tree(page(summarise(one), "one")).count("rect") == 3


def test_many_actions_are_a_table_and_none_are_odd():
    many = Demonstrations.from_episodes([Episode(np.arange(301.0), np.arange(300), True, "ann")])
    tree = Tree(page(summarise(many), "many"))
    assert tree.count("svg") == 1


def test_the_command_writes_the_page_beside_what_it_prints(tmp_path, capsys):
    save(data("continuous"), tmp_path / "data.npz")
    main(["inspect", str(tmp_path / "data.npz"), "--html", str(tmp_path / "page.html")])
    printed = capsys.readouterr().out
    assert "action 1: " in printed and "length: 4 " in printed and f"wrote {tmp_path / 'page.html'}" in printed
    assert "irleed inspect: " in (tmp_path / "page.html").read_text(encoding="utf-8")
    main(["inspect", str(tmp_path / "data.npz"), "--html", str(tmp_path / "page.html"), "--json"])
    assert json.loads(capsys.readouterr().out)["episodes"] == 3


def test_a_place_that_cannot_be_written_is_one_line(tmp_path, capsys):
    save(data("discrete"), tmp_path / "data.npz")
    with pytest.raises(SystemExit) as caught:
        main(["inspect", str(tmp_path / "data.npz"), "--html", str(tmp_path / "none" / "page.html")])
    message = capsys.readouterr().err
    assert caught.value.code == 2 and len(message.splitlines()) == 1 and "--html" in message
