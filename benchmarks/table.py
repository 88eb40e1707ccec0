"""Tables, for the terminal and for Markdown, from one description."""

from collections.abc import Sequence
from dataclasses import dataclass

import rich.table
from rich.markup import escape


@dataclass(frozen=True)
class Table:
    """A title, column heads, rows of text and notes below. The first column is flush left; `**x**` is bold."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


def for_terminal(table: Table) -> rich.table.Table:
    """The table as rich draws it."""
    caption = escape("\n".join(table.notes)) or None
    made = rich.table.Table(title=escape(table.title), title_justify="left", caption=caption, caption_justify="left")
    for k, head in enumerate(table.heads):
        made.add_column(escape(head), justify="right" if k else "left")
    for row in table.rows:
        made.add_row(*(bold(escape(cell)) for cell in row))
    return made


def for_markdown(table: Table) -> str:
    """The table as Markdown, its notes as a paragraph below."""
    lines = [list(table.heads), ["---", *["---:"] * (len(table.heads) - 1)], *table.rows]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return text + ("\n\n" + " ".join(table.notes) if table.notes else "")


def bold(text: str) -> str:
    """Markdown's bold as rich's."""
    return f"[bold]{text[2:-2]}[/bold]" if text.startswith("**") and text.endswith("**") else text


def figures(value: float | None, count: int = 3) -> str:
    """A number with so many figures, without an exponent where it is of ordinary size; a dash for None."""
    if value is None:
        return "–"
    if value == 0 or not 1e-3 <= abs(value) < 1e7:
        return f"{value:.{count - 1}e}"
    rounded = float(f"{value:.{count - 1}e}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (count - 1) else f"{rounded:.{count}g}"
