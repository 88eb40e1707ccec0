"""Tables and long lines on the terminal."""

import textwrap
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

_LEAST_WIDTH, _LARGEST_WIDTH = 80, 120  # columns of text


def show_table(
    console: Console, title: str, words: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str | float]]
) -> None:
    """Print a table of `rows`: `words` are the headings of text columns, `numbers` of columns with six digits."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for k, heading in enumerate((*words, *numbers)):
        table.add_column(Text(heading), justify="left" if k < len(words) else "right", no_wrap=k == 0)
    for row in rows:
        table.add_row(*(Text(cell if isinstance(cell, str) else f"{cell + 0.0:.6g}") for cell in row))  # no "-0"
    console.print(Text(title, "bold"), table, sep="\n")


def wrapped(console: Console, text: str) -> str:
    """Wrap lines at the width of the terminal, at least 80 and at most 120 columns; the further lines of a list are
    indented, those of a sentence are not."""
    width = min(max(console.width, _LEAST_WIDTH), _LARGEST_WIDTH)
    lines = []
    for line in text.splitlines():
        indent = "" if line.endswith(".") and not line.startswith("- ") else "  "
        lines += textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)
