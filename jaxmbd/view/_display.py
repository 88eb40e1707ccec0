"""Where a page is shown: in the notebook that runs, or else in the browser."""

import html
import os
import sys
import tempfile
import warnings
import webbrowser
from pathlib import Path
from typing import Any


def show_html(text: str, height: int) -> None:
    """Show a page below the cell of a notebook, `height` [px] high, or from a temporary file in the browser."""
    ipython: Any = sys.modules.get("IPython")
    if ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None:
        ipython.display.display({"text/html": embedded(text, height), "text/plain": "a page of jaxmbd"}, raw=True)
        return
    handle, name = tempfile.mkstemp(prefix="jaxmbd-", suffix=".html")
    os.close(handle)
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    open_in_browser(path)


def open_in_browser(path: Path) -> None:
    """Open a file in the browser; warn, with its path, if none can be started."""
    if not webbrowser.open(path.resolve().as_uri()):
        warnings.warn(f"No browser could be started; the page is {path}", stacklevel=3)


def embedded(text: str, height: int) -> str:
    """A frame with a page of its own, which may run its scripts but reach nothing of the notebook."""
    size = f'width="100%" height="{height:d}" style="border:0"'
    return f'<iframe sandbox="allow-scripts" {size} srcdoc="{html.escape(text)}"></iframe>'
