"""The notebooks as pages, with their stored outputs: nothing runs while the site is built.

A cell of text stands as it is, since both are Markdown; code and what it printed are blocks, pictures are files. Where
a notebook has a section that Jupyter shows collapsed, so does the page.
"""

import base64
import json
import re
import shutil
from collections.abc import Iterator
from os.path import relpath
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
NOTEBOOKS = DOCS.parent / "notebooks"
COLLAPSED = "jp-MarkdownHeadingCollapsed"  # how JupyterLab stores it, in the cell of the heading
WIDGET = "application/vnd.jupyter.widget-view+json"
_LINK = re.compile(r"\]\(((?!https?:|#)[^)#]+)\)")
_NOTEBOOK = re.compile(r"\]\(([./\w-]+\.ipynb)\)")
_PICTURES = {"image/png": "png", "image/gif": "gif", "image/jpeg": "jpg"}


def write(folder: Path) -> None:
    """Write a page for each notebook, its pictures, and a copy of it to be saved."""
    for path in sorted(NOTEBOOKS.rglob("*.ipynb")):
        page = folder / "notebooks" / path.relative_to(NOTEBOOKS).with_suffix(".md")
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("\n".join(lines_of(path, page)), encoding="utf-8")
        shutil.copyfile(path, page.with_suffix(".ipynb"))


def lines_of(path: Path, page: Path) -> Iterator[str]:
    """The page of one notebook, whose pictures are saved beside it."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    save = f"{{download}}`Save this notebook <{page.stem}.ipynb>` and run it in Jupyter.\n"
    depth = 0  # of the heading of a section that is collapsed
    for index, cell in enumerate(notebook["cells"]):
        text = _LINK.sub(lambda found: f"]({relpath(path.parent / found[1], page.parent)})", "".join(cell["source"]))
        heading = re.match(r"(#+) +(.*)\n?", text) if cell["cell_type"] == "markdown" else None
        if depth and heading and len(heading[1]) <= depth:
            yield "</details>\n"
            depth = 0
        if heading and cell["metadata"].get(COLLAPSED):
            yield f"<details>\n<summary>{heading[2]}</summary>\n"
            depth, text = len(heading[1]), text[heading.end() :]
        if cell["cell_type"] == "markdown":
            title, _, rest = text.partition("\n")
            yield f"{text}\n" if index else f"{title}\n\n{save}\n{rest}\n"
        elif text.strip():
            yield _block("python", text)
            for number, output in enumerate(cell["outputs"]):
                yield _shown(output, page, f"{page.stem}-{index}-{number}")
    if depth:
        yield "</details>\n"


def _shown(output: dict[str, Any], page: Path, name: str) -> str:
    """What a cell has printed, drawn or returned."""
    if output["output_type"] == "stream":
        return _block("text", "".join(output["text"]))
    data = {kind: "".join(text) if isinstance(text, list) else text for kind, text in output["data"].items()}
    for kind, suffix in _PICTURES.items():
        if kind in data:
            page.with_name(f"{name}.{suffix}").write_bytes(base64.b64decode(data[kind]))
            return f"```{{image}} {name}.{suffix}\n:alt: {_words(data)}\n:loading: lazy\n```\n"
    if WIDGET in data:
        return "*In Jupyter, sliders stand here.*\n"
    if "text/latex" in data:  # on lines of its own, which may be wider than a telephone
        return f"$$\n{data['text/latex'].strip().strip('$')}\n$$\n"
    if "text/markdown" in data:
        return f"{data['text/markdown']}\n"
    if "text/html" in data:
        return f"```{{raw}} html\n{data['text/html']}\n```\n"
    text = data["text/plain"]
    return _block("text", text) if text.strip() else ""


def _words(data: dict[str, str]) -> str:
    """What stands for a picture: its size, as Jupyter says it."""
    return data.get("text/plain", "").strip("<>").splitlines()[0]


def _block(language: str, text: str) -> str:
    return f"``````{{code-block}} {language}\n{text.rstrip()}\n``````\n"


def rewrite(app: Any, docname: str, source: list[str]) -> None:
    """Turn links to notebooks into links to their pages; called by Sphinx with the text of each page."""
    folder = (Path(app.srcdir) / docname).parent

    def to_page(found: re.Match[str]) -> str:
        target = (folder / found[1]).resolve()
        return f"](/generated/notebooks/{target.relative_to(NOTEBOOKS).with_suffix('.md')})"

    source[0] = _NOTEBOOK.sub(to_page, source[0])
