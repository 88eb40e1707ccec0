"""Pages with the source text of the files that other pages link, so that a link to a function leads to its lines.

A page links a function as `[words](../jaxmbd/equations/saddle_point.py#SaddlePoint.solve)`. Where the repository is
browsed, that is a link to the file; on the site `rewrite` makes it one to the lines.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
LINK = re.compile(r"\]\(([./\w]+\.py)(?:#([\w.]+))?\)")


def write(folder: Path) -> None:
    """Write a page for each file that a page links, with a label at each function, class and method."""
    target = folder / "sources"
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted({path for page in DOCS.rglob("*.md") for path, _ in links_of(page)}):
        (target / f"{_slug(path)}.md").write_text(page_of(path), encoding="utf-8")


def links_of(page: Path) -> Iterator[tuple[Path, str]]:
    """The files of the repository that a page links, with the name of a function or class, or an empty one."""
    for target, name in LINK.findall(page.read_text(encoding="utf-8")):
        yield (page.parent / target).resolve(), name


def page_of(path: Path) -> str:
    """The page of one file: its lines in pieces, each of which begins where something is defined."""
    text = path.read_text(encoding="utf-8")
    lines, starts = text.splitlines(), {0: ""} | {line: name for name, line in definitions(text).items()}
    page = ["---", "orphan: true", "---", f"# {path.relative_to(ROOT)}", "", f"({label(path)})="]
    for start, end in zip(sorted(starts), [*sorted(starts)[1:], len(lines)], strict=True):
        piece = "\n".join(lines[start:end]).rstrip()
        heading = [f"({label(path, starts[start])})="] if start else []
        page += [*heading, f"``````{{code-block}} python\n:lineno-start: {start + 1}\n\n{piece}\n``````", ""]
    return "\n".join(page)


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


def label(path: Path, name: str = "") -> str:
    """The label of a file, or of something that it defines. Labels have no capitals: `Name` becomes `_name`."""
    small = re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)
    return f"source-{_slug(path)}-{small.replace('.', '-')}"


def _slug(path: Path) -> str:
    return "-".join(path.relative_to(ROOT).with_suffix("").parts)


def rewrite(app: Any, docname: str, source: list[str]) -> None:
    """Turn links to files of the package into links to labels; called by Sphinx with the text of each page."""
    folder = (Path(app.srcdir) / docname).parent

    def to_label(found: re.Match[str]) -> str:
        return f"](#{label((folder / found[1]).resolve(), found[2] or '')})"

    source[0] = LINK.sub(to_label, source[0])
