"""The extension of Sphinx that writes the computed pages, and turns links of all pages into those of the site."""

import shutil
from pathlib import Path
from typing import Any

from docs.pages import gallery, links, parts, reference, sources, validation

WRITERS = (reference, parts, sources, gallery, validation)


def write_pages(app: Any) -> None:
    """Write all computed pages into the folder `generated` of Sphinx's source folder."""
    folder = Path(app.srcdir) / "generated"
    shutil.rmtree(folder, ignore_errors=True)
    for writer in WRITERS:
        writer.write(folder)


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls when it loads the extension."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", sources.rewrite)
    app.connect("doctree-read", links.link_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
