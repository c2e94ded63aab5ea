"""Results go to stdout, everything else to stderr, and neither depends on colour."""

import pytest

from tilewright.isa.errors import InputError
from tilewright.runtime.tables import Table, plain_table
from tilewright.terminal import Terminal, one_line

TABLE = Table(
    columns=("layer", "cycles"),
    numbers=("cycles",),
    rows=(("stem", "1,000"), ("a longer name", "7")),
)


def test_a_plain_table_is_aligned() -> None:
    assert plain_table(TABLE).splitlines() == [
        "layer          cycles",
        "stem            1,000",
        "a longer name       7",
    ]


def test_streams(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    terminal.result("result")
    terminal.table(TABLE)
    terminal.message("message")
    terminal.detail("detail")
    with terminal.stage("stage") as progress:
        progress(1, 2)
    streams = capsys.readouterr()
    assert streams.out == f"result\n{plain_table(TABLE)}\n"
    assert streams.err == "message\n"


def test_details_are_shown_where_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(verbose=True)
    terminal.detail("detail")
    with terminal.stage("stage"):
        pass
    first, second = capsys.readouterr().err.splitlines()
    assert first == "detail"
    assert second.startswith("stage: ")
    assert second.endswith(" s")


def test_a_quiet_terminal_has_no_results(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(quiet=True)
    terminal.result("result")
    terminal.table(TABLE)
    terminal.message("message")
    assert capsys.readouterr() == ("", "message\n")


def test_a_terminal_gets_a_drawn_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    Terminal().table(TABLE)
    out = capsys.readouterr().out
    assert "───" in out
    assert "a longer name" in out


WIDE = Table(
    columns=("layer", "cycles", "share", "longest wait"),
    numbers=("cycles", "share"),
    rows=(("a/very/long/name/of/a/layer", "1,000", "12.0%", "gemm for load 1,000"),),
)


@pytest.mark.parametrize(
    ("width", "columns"), [(71, 4), (70, 4), (69, 3), (48, 3), (47, 2), (20, 1), (3, 1)]
)
def test_trailing_columns_go_before_a_name_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, columns: int
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    Terminal().table(WIDE)
    head, _, note = capsys.readouterr().out.partition("for want of room without: ")
    (cells,) = WIDE.rows
    assert [cell in head for cell in cells] == [index < columns for index in range(4)]
    assert note.strip() == ", ".join(WIDE.columns[columns:])


def test_prose_is_wrapped_before_it_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "50")
    reason = "the kernel pads by more than a load can make"
    Terminal().table(Table(columns=("node", "why"), rows=(("stem", reason),), prose=("why",)))
    out = capsys.readouterr().out
    assert reason not in out
    assert all(word in out for word in reason.split())


def test_a_name_is_no_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    Terminal().table(Table(columns=("[red]layer[/red]",), rows=(("[bold]:smile:",),)))
    out = capsys.readouterr().out
    assert "[red]layer[/red]" in out
    assert "[bold]:smile:" in out


def test_an_error_is_one_line_and_its_hint_another(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().error(InputError("two\nlines of \x1b[31mred", hint="try\tthis"))
    assert capsys.readouterr().err == ("tilewright: two lines of \\x1b[31mred\nhint: try this\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("plain", "plain"), ("naïve 数", "naïve 数"), ("a\0b", "a\\x00b"), ("\ud800", "\\ud800")],
)
def test_control_characters_are_shown(text: str, expected: str) -> None:
    assert one_line(text) == expected
