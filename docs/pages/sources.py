"""Pages with the source text of files, to whose lines other pages link: those of the reference to what they describe,
and others by `[words](../jaxmbd/equations/saddle_point.py#SaddlePoint.solve)`. Where the repository is browsed, that is
a link to the file; on the site `rewrite` and `resolve` make it one to the lines. Sphinx only copies these pages: to
read and frame them as its own would take it as long as all the others.
"""

import ast
import html
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from docs.pages.public_names import modules
from docs.pages.reference import function_of, members_of

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
LINK = re.compile(r"\]\(([./\w-]+\.py)(?:#([\w.]+))?\)")
SCHEME = "source:"  # of links that are marked; conf.py tells MyST of it
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{path}</title>
<link rel="icon" href="../_static/logo.svg">
<link rel="stylesheet" href="style.css">
<h1><a href="../index.html">jaxmbd</a> {path}</h1>
<pre class="highlight">
{lines}</pre>
</html>
"""
STYLE = """body { margin: 1rem; font-family: sans-serif; background: Canvas; color: CanvasText }
h1 { font-size: 1.1rem }
pre { overflow-x: auto; counter-reset: line; line-height: 1.4 }
.line::before { counter-increment: line; content: counter(line); display: inline-block; width: 3em; opacity: 0.5 }
.line:target { background: color-mix(in srgb, #e69f00 25%, transparent) }
"""


def write(folder: Path) -> None:
    """Write a page for each file that a page links, and for each that defines what the reference describes."""
    target = folder / "site" / "sources"
    target.mkdir(parents=True, exist_ok=True)
    linked = {path for page in DOCS.rglob("*.md") for path, _ in links_of(page)}
    for path in sorted(linked | set(_described())):
        (target / f"{_slug(path)}.html").write_text(page_of(path), encoding="utf-8")
    light, dark = (HtmlFormatter(style=style).get_style_defs(".highlight") for style in ("default", "github-dark"))
    style = f"{STYLE}{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n.highlight {{ background: none }}\n"
    (target / "style.css").write_text(style, encoding="utf-8")


def links_of(page: Path) -> Iterator[tuple[Path, str]]:
    """The files of the repository that a page links, with the name of a function or class, or an empty one."""
    for target, name in LINK.findall(page.read_text(encoding="utf-8")):
        yield (page.parent / target).resolve(), name


def _described() -> Iterator[Path]:
    """The files that define the public names and their members."""
    for name in (name for names in modules().values() for name in names):
        members = members_of(name.value) if isinstance(name.value, type) else ()
        for value in (name.value, *(member for _, _, member in members)):
            if (place := place_of(value)) is not None:
                yield place[0]


def place_of(value: Any) -> tuple[Path, str] | None:
    """The file in which a function, a class or a member is defined, and its name there; None for other values."""
    defined = value if isinstance(value, type) else function_of(value)
    file = inspect.getsourcefile(defined) if inspect.isroutine(defined) or isinstance(defined, type) else None
    if file is None or ROOT not in Path(file).parents:
        return None
    path, name = Path(file), defined.__qualname__
    return (path, name) if name in definitions_of(path) else None


@cache
def definitions_of(path: Path) -> dict[str, int]:
    """The `definitions` of a file."""
    return definitions(path.read_text(encoding="utf-8"))


def page_of(path: Path) -> str:
    """The page of one file: its lines, where those that begin a definition have its name as their anchor."""
    text = path.read_text(encoding="utf-8")
    anchors = {line: f' id="{name}"' for name, line in definitions(text).items()}
    lines = highlight(text, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)).splitlines()
    marked = [f'<span class="line"{anchors.get(index, "")}>{line}</span>\n' for index, line in enumerate(lines)]
    return PAGE.format(path=html.escape(str(path.relative_to(ROOT))), lines="".join(marked))


def definitions(text: str) -> dict[str, int]:
    """The functions, classes and methods of a file, with the index of the line on which each begins."""
    found: dict[str, int] = {}

    def enter(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                found[prefix + node.name] = first - 1
                enter(node.body if isinstance(node, ast.ClassDef) else [], f"{prefix}{node.name}.")

    enter(ast.parse(text).body, "")
    return found


def address(path: Path, name: str = "") -> str:
    """The address of a file's page, or of a definition in it, from the root of the site."""
    return f"sources/{_slug(path)}.html" + (f"#{name}" if name else "")


def _slug(path: Path) -> str:
    return "-".join(path.relative_to(ROOT).with_suffix("").parts)


def rewrite(app: Any, docname: str, source: list[str]) -> None:
    """Mark the links to files of the repository; called by Sphinx with the text of each page."""
    folder = (Path(app.srcdir) / docname).parent

    def marked(found: re.Match[str]) -> str:
        return f"]({SCHEME}{address((folder / found[1]).resolve(), found[2] or '')})"

    source[0] = LINK.sub(marked, source[0])


def resolve(app: Any, doctree: Any) -> None:
    """Lead the links that were marked to their pages; called by Sphinx with each page that it has read."""
    up = "../" * app.env.docname.count("/")
    for link in doctree.findall(nodes.reference):
        if link.get("refuri", "").startswith(SCHEME):
            link["refuri"] = up + link["refuri"].removeprefix(SCHEME)
            link["internal"] = True


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """The address of the lines that define a name of the reference, from its page; called by Sphinx for each."""
    try:
        value = resolve_name(f"{info['module']}:{info['fullname']}")
    except (AttributeError, ImportError):
        return None
    place = place_of(value)
    return None if place is None else f"../../{address(*place)}"
