"""Text of unknown origin does nothing but be read, wherever it is shown."""

import csv
import io
import subprocess

import pytest
from rich.console import Console

from irleed._io import text as _text
from irleed._io.text import cell, csv_cell, escaped, markdown, name, one_line, printable, shell, visible
from irleed.errors import IrleedError

NASTY = ("\x1b[2J\x1b]0;title\x07", "a\nb\r\tc", "gpj.\u202eexe", "\x00", "x\u2028y", "\udcff", "zero\u200bwidth")


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_nothing_that_cannot_be_seen_gets_through(text):
    for shown in (escaped(text), printable(text), one_line(text), name(text), cell(text).plain, markdown(text)):
        assert shown.isprintable()
    assert str(IrleedError(text, got=text, expected=text, remedy=text)).isprintable(), (
        "messages are one line whatever they name"
    )
    assert shell(["irleed", text]).isprintable()


def test_printable_text_stays_as_it_is():
    for text in ("anna", "Ünïcodé 名前 🤖", "C:\\data\\x.npz", "it's"):
        assert escaped(text) == printable(text) == one_line(text) == name(text) == visible(text) == text


def test_long_names_are_short_and_stay_different():
    """Ten million characters are shown as a hundred; names with the same beginning are still told apart."""
    first, second = "a" * 10_000_000, "a" * 9_999_999 + "b"
    assert len(name(first)) == len(name(second)) == _text.LONGEST_NAME and name(first) != name(second)
    assert len(one_line(first)) == _text.LONGEST_LINE
    assert len(str(IrleedError(first, got=first, expected=first, remedy=first))) < 10_000


def test_errors_are_told_in_their_own_words():
    assert one_line(OSError(28, "No space left on device")) == "No space left on device"
    assert one_line(ValueError()) == "ValueError" and one_line(ValueError("a\n  b")) == "a b"


def test_terminals_show_names_without_markup_or_pictures(capsys):
    Console(force_terminal=False).print(cell("[red]:x:[/red] [link=http://a]b[/link]"))
    assert capsys.readouterr().out == "[red]:x:[/red] [link=http://a]b[/link]\n"


@pytest.mark.parametrize("text", ["=cmd|'/C calc'!A0", "+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1"])
def test_formulas_are_text_in_csv(text):
    assert csv_cell(text) == f"'{text}"
    written = io.StringIO()
    csv.writer(written).writerow([csv_cell(text)])
    assert next(csv.reader(io.StringIO(written.getvalue(), newline="")))[0][1:] == text, "the name is still in there"


@pytest.mark.parametrize("value", ["anna", "a=b", "", -1.5, 3, None, True])
def test_other_cells_stay_as_they_are(value):
    assert csv_cell(value) is value


def test_text_in_markdown_is_one_line_without_markup():
    assert markdown("a\n# b [c](d) `e` <f>") == "a \\# b \\[c\\](d) \\`e\\` &lt;f&gt;"
    assert markdown("- a") == "&#45; a" and markdown("12. a") == "&#49;2. a" and markdown("1.5") == "1.5"
    assert markdown("http://a www.b $c$") == "http\\://a www\\.b \\$c\\$"


@pytest.mark.parametrize("text", ["plain", "two words", "$(id); `id`", "it's", "line\nbreak", "\x1b\\'é\udcff", "~"])
def test_commands_are_copied_as_one_line_and_mean_the_same(text):
    command = shell(["printf", "%s", text])
    found = subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout
    assert found == text.encode(errors="surrogateescape") and "\n" not in command


def test_html_keeps_lines_and_spaces_and_nothing_hidden():
    assert visible("a\n\tb\u202fc \u200d") == "a\n\tb\u202fc \u200d"
    assert visible("\x1b[0m \u202e \u2066 \u200b \ufeff \x85") == "\ufffd[0m \ufffd \ufffd \ufffd \ufffd \ufffd"
