"""The page of a mechanism that is explored: the scripts of all pages, and those that ask Python by a connection."""

import html

from jaxmbd.view._page_text import page_text, read_part

_SCRIPTS = (
    "numbers", "motion", "axes", "theme", "{renderer}", "overlay", "curves", "picking", "live_curves", "live_panel",
    "live",
)  # fmt: skip
IN_FRAME = "frame"  # the connection of a page in a notebook: the window around its frame


def live_page(title: str, dimension: int, connection: str = IN_FRAME, policy: str = "") -> str:
    """The text of the page. `connection`: the path of its socket on the server that it comes from, or `IN_FRAME`;
    `policy`: what it may connect to."""
    data = f'<script id="connection" type="text/plain">{html.escape(connection)}</script>'
    return page_text(title, dimension, _SCRIPTS, data, read_part("live_panel.html"), ["live"], policy)
