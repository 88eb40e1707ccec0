"""What all pages for a browser share."""

from importlib.resources import files


def page_theme() -> str:
    """The style sheet of colours, light or dark as the browser prefers: `--paper`, `--ink`, `--grey`, `--pale`, ..."""
    return files("jaxmbd.scene").joinpath("theme.css").read_text(encoding="utf-8")
