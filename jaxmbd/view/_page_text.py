"""The text of a page: elements, styles, libraries and scripts, put together to one file without a build."""

import html
import re
from collections.abc import Iterable
from importlib.resources import files

from jaxmbd.scene.pages import page_theme

_PARTS = files("jaxmbd.view") / "page"
_RENDERERS = {2: "plane", 3: "space"}


def page_text(
    title: str,
    dimension: int,
    scripts: Iterable[str],
    data: str,
    panel: str,
    styles: Iterable[str] = (),
    policy: str = "",
) -> str:
    """The text of a page for mechanisms in the plane or in space.

    `scripts`: names of its scripts in their order, `"{renderer}"` for the picture; `data`: elements that hold data;
    `panel`: what is beside the picture; `styles`: names of further style sheets; `policy`: what it may reach, besides
    nothing.
    """
    renderer = _RENDERERS[dimension]
    libraries = ["uplot.min"] + (["three.min"] if renderer == "space" else [])
    fields = {
        "title": html.escape(title or "mechanism"),
        "policy": policy,
        "styles": read_part("libraries/uplot.min.css")
        + page_theme()
        + "".join(read_part(f"{name}.css") for name in ("page", *styles)),
        "libraries": "\n".join(read_part(f"libraries/{name}.js") for name in libraries),
        "scripts": "\n".join(read_part(f"{name.format(renderer=renderer)}.js") for name in scripts),
        "panel": panel,
        "data": data,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda field: fields[field[1]], read_part("page.html"))


def read_part(name: str) -> str:
    """The text of a file of the page."""
    return _PARTS.joinpath(*name.split("/")).read_text(encoding="utf-8")
