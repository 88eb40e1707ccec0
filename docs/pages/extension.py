"""The extension of Sphinx that writes the computed pages, and turns links of all pages into those of the site."""

import shutil
from pathlib import Path
from typing import Any

from docs.pages import first_example, gallery, links, notebooks, parts, project, reference, search, sources, validation

# At last the files that the others link.
WRITERS = (reference, parts, first_example, gallery, notebooks, validation, project, sources)


def write_pages(app: Any, config: Any) -> None:
    """Write all computed pages into the folder `generated` of Sphinx's source folder."""
    folder = Path(app.srcdir) / "generated"
    shutil.rmtree(folder, ignore_errors=True)
    for writer in WRITERS:
        writer.write(folder)


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls when it loads the extension."""
    app.connect("config-inited", write_pages, priority=100)  # before Sphinx looks for `html_extra_path`
    app.connect("source-read", notebooks.rewrite)
    app.connect("source-read", sources.rewrite)
    app.connect("doctree-read", links.link_names)
    app.connect("doctree-read", sources.resolve)
    app.connect("build-finished", search.write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
