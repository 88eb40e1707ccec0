"""The documentation site: its pages are within reach, its reference is complete, the examples print what stands below
them, and it can be built."""

import contextlib
import io
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from docs.pages import parts, public_names, reference
from tests.printed import same

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TAUGHT = sorted([*DOCS.glob("tutorials/*.md"), *DOCS.glob("explanation/*.md")])
EXAMPLE = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def reached() -> set[Path]:
    """The pages that the index lists, folders included."""
    trees = re.findall(r"```\{toctree\}\n(.*?)```", (DOCS / "index.md").read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    return {page for line in lines for page in DOCS.glob(f"{line}.md")}


def test_every_page_is_reached_from_the_index() -> None:
    generated = DOCS / "generated"
    pages = {page for page in DOCS.rglob("*.md") if generated not in page.parents} - {DOCS / "index.md"}
    assert sorted(pages - reached()) == []
    assert len(pages) > 20


def test_every_public_name_is_in_the_reference(tmp_path: Path) -> None:
    """In the signature of its own page, or in the link to the page where it is documented."""
    reference.write(tmp_path)
    missing = []
    for module, names in public_names.modules().items():
        page = (tmp_path / "reference" / f"{module}.md").read_text(encoding="utf-8")
        documented = set(re.findall(r"^:{4,5}\{py:(?:class|function|data)\} (\w+)", page, re.MULTILINE))
        linked = set(re.findall(r"^- (?:\{py:obj\}`|\[`)([\w.]+)", page, re.MULTILINE))
        missing += [name.path for name in names if name.name not in documented and name.path not in linked]
    assert missing == []
    assert "jaxmbd.spatial.rotation" in public_names.modules()


def test_a_member_and_an_example_of_the_reference() -> None:
    (solution,) = (name for name in public_names.modules()["jaxmbd"] if name.name == "Solution")
    page = reference.page_of("jaxmbd", [solution])
    assert "::::{py:method} reaction(name, body=None, frame='world')" in page
    assert "::::{py:property} lam" in page
    (get,) = (name for name in public_names.modules()["jaxmbd.examples"] if name.name == "get")
    example = '```pycon\n>>> solution = mbd.examples.get("pendulum").simulate(np.linspace(0.0, 1.0, 11))\n```'
    assert example in reference.page_of("jaxmbd.examples", [get])
    (sphere,) = (name for name in public_names.modules()["jaxmbd.spatial"] if name.name == "sphere")
    assert "```pycon\n>>> print(f" in reference.page_of("jaxmbd.spatial", [sphere])


def test_tables_of_parts_list_both_spaces() -> None:
    rows = {tuple(row.split("|")[1:4]) for row in parts.table("model.joint", with_coordinates=True)}
    both = [(" `Gear` ", " [plane](#jaxmbd.planar.Gear) ", " [space](#jaxmbd.spatial.Gear) ")]
    assert set(both) | {(" `Screw` ", " – ", " [space](#jaxmbd.spatial.Screw) ")} <= rows


@pytest.mark.parametrize(
    ("printed", "written", "expected"),
    [
        ("x 1.23 m", "x 1.24 m", True), ("x 1.23 m", "x 1.27 m", False), ("rank 11", "rank 12", False),
        ("3e-06 m", "4e-06 m", True), ("3e-06 m", "3e-05 m", False), ("True", "False", False),
    ],
)  # fmt: skip
def test_comparison_of_outputs(printed: str, written: str, expected: bool) -> None:
    assert same(printed, written) is expected


@pytest.mark.slow
@pytest.mark.parametrize("page", TAUGHT, ids=lambda page: page.stem)
def test_examples_print_what_stands_below_them(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    examples = EXAMPLE.findall(page.read_text(encoding="utf-8"))
    assert any(written for _, written in examples)
    for code, written in examples:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, page.name, "exec"), names)
        assert same(output.getvalue(), written), output.getvalue()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("sphinx") is None, reason="the extra `docs` is not installed")
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going", "-d", str(tmp_path / "cache")]
    done = subprocess.run([*command, str(DOCS), str(tmp_path / "site")], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "explanation" / "augmented-system.html").read_text(encoding="utf-8")
    assert "mathjax/tex-chtml.js" in page
    assert (tmp_path / "site" / "_static" / "mathjax" / "tex-chtml.js").exists()
    loaded = re.compile(r'<(?:script|link|img)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*"')
    pages = (tmp_path / "site").rglob("*.html")
    assert [found for page in pages for found in loaded.findall(page.read_text(encoding="utf-8"))] == []
