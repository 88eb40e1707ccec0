"""The index of the search: what Pagefind finds is a section of a page, or a name of the reference."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging

_NOT_READ = (nodes.raw, nodes.comment, nodes.section, addnodes.desc, addnodes.toctree)


@dataclass(frozen=True)
class Record:
    """Something that can be found: its address, its title, the title of its page, and its words."""

    address: str
    title: str
    page: str
    text: str


def records(app: Any) -> Iterator[Record]:
    """What the pages of the site hold, by sections and names."""
    for page in sorted(app.env.found_docs):
        title = app.env.titles[page].astext()
        for anchor, heading, node in _entries(app.env.get_doctree(page)):
            shown = "" if heading == title else title
            yield Record(f"{app.builder.get_target_uri(page)}#{anchor}", heading, shown, _text(node))


def _entries(document: Any) -> Iterator[tuple[str, str, Any]]:
    """The sections and names of a page: their anchors, titles and nodes."""
    for node in document.findall(lambda node: isinstance(node, nodes.section | addnodes.desc)):
        if isinstance(node, nodes.section):
            yield node["ids"][0], node[0].astext(), node
        elif node[0]["ids"]:
            yield node[0]["ids"][0], node[0]["fullname"], node[1]


def _text(node: Any) -> str:
    """The text of a node, without that of sections and names inside of it, which are found on their own."""
    if isinstance(node, nodes.Text | nodes.title):
        return node.astext()
    parts = [_text(child) for child in node.children if not isinstance(child, _NOT_READ)]
    return ("" if isinstance(node, nodes.TextElement) else "\n").join(parts)


def write(app: Any, exception: Exception | None) -> None:
    """Write the index into the site; called by Sphinx when all pages are written."""
    if exception or app.builder.name != "html":
        return
    if find_spec("pagefind") is None:
        logging.getLogger(__name__).warning("no index for the search: pip install 'pagefind[bin]'")
    else:
        asyncio.run(_index(list(records(app)), Path(app.outdir) / "pagefind"))


async def _index(found: list[Record], folder: Path) -> None:
    from pagefind.index import IndexConfig, PagefindIndex

    async with PagefindIndex(config=IndexConfig(output_path=str(folder))) as index:
        for record in found:
            words = record.title.replace(".", " ").replace("_", " ")
            await index.add_custom_record(
                url=record.address,
                content=f"{words}. {record.text} {record.page}",
                language="en",
                meta={"title": record.title, "page": record.page},
            )
