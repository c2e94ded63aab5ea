"""The command line's two streams: results on stdout, messages and progress on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable
from rich.text import Text

from tilewright.isa.errors import TilewrightError
from tilewright.runtime.tables import Table, plain_table

#: What a drawn table adds to the text of each column, and once more.
_SPACING = 3
_EDGE = 1
#: The least room that a column of prose is given.
_PROSE_WIDTH = 19


class Terminal:
    """Prints; colours and moving bars only where the stream is a terminal."""

    def __init__(self, *, verbose: bool = False, quiet: bool = False) -> None:
        self.verbose = verbose
        self._quiet = quiet
        self._out = Console(markup=False, highlight=False, emoji=False)
        self._error = Console(stderr=True, markup=False, highlight=False, emoji=False)

    def result(self, text: str = "") -> None:
        """Print a line of the result."""
        if not self._quiet:
            sys.stdout.write(f"{text}\n")

    def table(self, table: Table) -> None:
        """Print a table that belongs to the result."""
        if self._quiet:
            return
        if self._out.is_terminal:
            self._draw(table)
        else:
            sys.stdout.write(f"{plain_table(table)}\n")

    def _draw(self, table: Table) -> None:
        shown = fit_table(table, self._out.width)
        if table.title:
            self._out.print(table.title, soft_wrap=True, style="italic")
        least = _least_width(shown)
        rich = _rich_table(shown)
        if least > self._out.width:
            # The terminal breaks the lines; the library would cut them.
            rich.width = least
        self._out.print(rich, crop=False)
        left_out = table.columns[len(shown.columns) :]
        if left_out:
            self._out.print(f"for want of room without: {', '.join(left_out)}", soft_wrap=True)

    def message(self, text: str) -> None:
        """Print what the user must know besides the result."""
        if self._error.is_terminal:
            # Through the console, so that a moving bar stays below the text.
            self._error.print(text, soft_wrap=True)
        else:
            sys.stderr.write(f"{text}\n")

    def detail(self, text: str) -> None:
        """Print what ``-v`` asks for."""
        if self.verbose:
            self.message(text)

    def error(self, error: TilewrightError) -> None:
        """Print an error in one line, and its hint in another."""
        sys.stderr.write(f"tilewright: {one_line(str(error))}\n")
        if error.hint:
            sys.stderr.write(f"hint: {one_line(error.hint)}\n")

    @contextmanager
    def stage(self, title: str) -> Iterator[Callable[[int, int], None]]:
        """Show that a stage is at work; yields a function that takes steps done and their total."""
        start = time.perf_counter()
        if self._error.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            with Progress(*columns, console=self._error, transient=True) as progress:
                task = progress.add_task(title, total=None)
                yield lambda done, total: progress.update(task, completed=done, total=total)
        else:
            yield lambda done, total: None
        self.detail(f"{title}: {time.perf_counter() - start:.2f} s")


def one_line(text: str) -> str:
    """Join the lines of a text and show control characters as escapes."""
    joined = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in joined)


def fit_table(table: Table, width: int) -> Table:
    """Leave out the last columns that do not fit `width`; what is shown is not cut."""
    while len(table.columns) > 1 and _least_width(table) > width:
        table = replace(
            table, columns=table.columns[:-1], rows=tuple(row[:-1] for row in table.rows)
        )
    return table


def _least_width(table: Table) -> int:
    """Return the columns of a terminal that a drawn table needs at the least."""
    total = 0
    for name, *cells in zip(table.columns, *table.rows, strict=True):
        widest = max(map(cell_len, (name, *cells)))
        total += min(widest, _PROSE_WIDTH) if name in table.prose else widest
    return total + _SPACING * len(table.columns) + _EDGE


def _rich_table(table: Table) -> RichTable:
    rich = RichTable(box=box.SIMPLE_HEAD)
    for name in table.columns:
        rich.add_column(
            Text(name),
            justify="right" if name in table.numbers else "left",
            no_wrap=name not in table.prose,
            overflow="fold",
        )
    for row in table.rows:
        rich.add_row(*map(Text, row))
    return rich
