"""The report in a browser: no error, no request, no script of others, in every theme and width, with and without JS."""

import shutil

import pytest

from irleed.report.page import report

playwright = pytest.importorskip("playwright.sync_api")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
PAGES = "gridworld", "networks", "control", "sweep", "hopper", "all", "hostile"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as engine:
        started = engine.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def addresses(runs, hostile, tmp_path_factory):
    """The addresses of pages, by name."""
    place = tmp_path_factory.mktemp("pages")
    folders = {name: [folder] for name, folder in runs.items()}
    folders |= {"all": list(runs.values()), "hostile": [hostile[0]]}
    return {name: report(paths, place / f"{name}.html").as_uri() for name, paths in folders.items()}


class Opened:
    """A page, and what happened while it was open."""

    def __init__(self, browser, address: str, **settings):
        self.context = browser.new_context(**settings)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_without_an_error_and_asks_for_nothing(browser, addresses, name):
    with Opened(browser, addresses[name]) as opened:
        page = opened.page
        page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        for target in page.locator("svg [data-tip]").all()[:5]:
            target.hover(force=True)
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        assert opened.said == []
        # Pictures in the page itself are read as data; nothing is read from anywhere else.
        assert [url for url in opened.asked if not url.startswith("data:")] == [addresses[name]]


def test_names_that_are_html_are_shown_as_text_and_do_nothing(browser, addresses, hostile):
    with Opened(browser, addresses["hostile"]) as opened:
        shown = opened.page.inner_text("body")
        for name in hostile[1]:
            assert name in shown
        assert opened.page.locator("img, [onerror], [onload], [onmouseover]").count() == 0
        opened.page.locator("svg [data-tip]").first.hover(force=True)
        assert hostile[1][0].split()[0] in opened.page.inner_text("body")
        assert opened.said == []


@pytest.mark.parametrize("name", PAGES)
def test_no_width_scrolls_sideways(browser, addresses, name):
    with Opened(browser, addresses[name]) as opened:
        opened.page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        for width in (375, 768, 1280):
            opened.page.set_viewport_size({"width": width, "height": 800})
            assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


def test_light_and_dark_by_the_system_and_by_the_button(browser, addresses):
    def ground(page):
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    with Opened(browser, addresses["networks"], color_scheme="light") as opened:
        light = ground(opened.page)
        opened.page.get_by_role("button", name="Dark theme").click()
        dark = ground(opened.page)
    with Opened(browser, addresses["networks"], color_scheme="dark") as opened:
        assert ground(opened.page) == dark != light
        opened.page.get_by_role("button", name="Light theme").click()
        assert ground(opened.page) == light
        opened.page.emulate_media(media="print")
        assert ground(opened.page) == "rgb(255, 255, 255)"


def test_what_moves_can_be_hidden_and_stands_still_on_paper_and_where_asked(browser, filmed, tmp_path):
    with Opened(browser, report([filmed()], tmp_path / "film.html").as_uri()) as opened:
        page = opened.page

        def shown():
            return [page.locator(f".film .{kind}").is_visible() for kind in ("moving", "still")]

        assert shown() == [True, False] and opened.said == []
        page.emulate_media(reduced_motion="reduce")
        assert shown() == [False, True]
        page.emulate_media(reduced_motion="no-preference", media="print")
        assert shown() == [False, True]
        page.emulate_media(media="screen")
        page.get_by_text("A film of the policy").click()
        assert shown() == [False, False]


def test_tables_sort_by_keyboard(browser, addresses):
    with Opened(browser, addresses["networks"]) as opened:
        table = opened.page.locator("#run-who table").first
        button = table.get_by_role("button", name="transitions")
        button.focus()
        opened.page.keyboard.press("Enter")
        head = table.locator("thead th", has_text="transitions")
        assert head.get_attribute("aria-sort") == "ascending"
        values = table.locator("tbody tr td:nth-child(6)").evaluate_all("cells => cells.map(c => +c.dataset.value)")
        assert values == sorted(values) and len(values) == 4
        opened.page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == "descending"


def test_everything_can_be_read_without_javascript(browser, addresses):
    with Opened(browser, addresses["networks"], java_script_enabled=False) as opened:
        shown = opened.page.inner_text("main")
        for text in (
            "The demonstrators",
            "do not overlap",
            "Reproduce and cite",
            "irleed fit",
            "demonstrator 3",
        ):
            assert text in shown
        assert opened.page.locator("button").count() == 0, "nothing that does not work is offered"
        assert opened.said == []


def test_the_first_key_skips_to_the_content(browser, addresses):
    with Opened(browser, addresses["gridworld"]) as opened:
        opened.page.keyboard.press("Tab")
        assert opened.page.evaluate("document.activeElement.textContent") == "Skip to the content"
        assert opened.page.locator(".skip").bounding_box()["x"] >= 0
        opened.page.keyboard.press("Enter")
        assert opened.page.evaluate("document.activeElement.id") == "content"


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(browser, addresses, name):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with Opened(browser, addresses[name]) as opened:
        # What is long is more of the same: every kind of table is among the first.
        opened.page.evaluate("[...document.querySelectorAll('details')].slice(0, 6).forEach(part => part.open = true)")
        for theme in ("light", "dark"):
            opened.page.emulate_media(color_scheme=theme)
            found = axe.run(opened.page).response["violations"]
            assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found if rule["impact"] != "minor"] == [], theme
