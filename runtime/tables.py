"""Tables of text, and their plain form."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text under named columns, the most important columns first."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    #: Columns that are aligned right.
    numbers: tuple[str, ...] = ()
    #: Columns of prose, which may take several lines where there is little room.
    prose: tuple[str, ...] = ()
    title: str = ""


def plain_table(table: Table) -> str:
    """Lay a table out with spaces."""
    widths = [max(map(len, column)) for column in zip(table.columns, *table.rows, strict=True)]
    lines = [table.title] if table.title else []
    for row in (table.columns, *table.rows):
        cells = [
            cell.rjust(width) if name in table.numbers else cell.ljust(width)
            for name, cell, width in zip(table.columns, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
