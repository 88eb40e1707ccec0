"""Where a page is shown: in the notebook that runs, or else in the browser."""

import html
import tempfile
import warnings
import webbrowser
from pathlib import Path

from jaxmbd.progress import notebook


def show_html(text: str, height: int) -> None:
    """Show a page below the cell of a notebook, `height` [px] high, or from a temporary file in the browser."""
    ipython = notebook()
    if ipython is not None:
        ipython.display.display({"text/html": embedded(text, height), "text/plain": "a page of jaxmbd"}, raw=True)
        return
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", prefix="jaxmbd-", suffix=".html", delete=False
    ) as file:  # the browser reads it later
        file.write(text)
    path = Path(file.name)
    if not webbrowser.open(path.as_uri()):
        warnings.warn(f"No browser could be started; the page is {path}", stacklevel=3)


def embedded(text: str, height: int) -> str:
    """A frame with a page of its own, which may run its scripts but reach nothing of the notebook."""
    size = f'width="100%" height="{height:d}" style="border:0"'
    return f'<iframe sandbox="allow-scripts" {size} srcdoc="{html.escape(text)}"></iframe>'
