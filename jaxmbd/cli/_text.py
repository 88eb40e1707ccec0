"""Tables and long lines on the terminal."""

import re
import textwrap
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxmbd.errors import printable

_LEAST_WIDTH, _LARGEST_WIDTH = 80, 120  # columns of text
_FIRM = "\N{NO-BREAK SPACE}"  # in place of a space within an item of a list


def show_table(
    console: Console, title: str, words: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str | float]]
) -> None:
    """Print a table of `rows`: `words` are the headings of text columns, `numbers` of columns with six digits."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for k, heading in enumerate((*words, *numbers)):
        table.add_column(Text(printable(heading)), justify="left" if k < len(words) else "right", no_wrap=k == 0)
    for row in rows:
        table.add_row(
            *(Text(printable(cell) if isinstance(cell, str) else f"{cell + 0.0:.6g}") for cell in row)
        )  # no "-0"
    console.print(Text(printable(title), "bold"), table, sep="\n")


def wrapped(console: Console, text: str) -> str:
    """Wrap lines at the width of the terminal, at least 80 and at most 120 columns: a sentence between words, a list
    between its items, with further lines indented."""
    width = min(max(console.width, _LEAST_WIDTH), _LARGEST_WIDTH)
    lines = []
    for line in printable(text).splitlines():
        title, colon, items = line.partition(": ")
        is_list = bool(colon) and not line.endswith(".")
        if is_list:
            items = re.sub(r"\([^)]*\)", lambda found: found[0].replace(" ", _FIRM), items)
            line = title + colon + re.sub(r"(?<!,) ", _FIRM, items)
        indent = "  " if is_list or line.startswith("- ") else ""
        lines += textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(_FIRM, " ")
