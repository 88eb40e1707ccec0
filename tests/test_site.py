"""The documentation site: its pages are within reach, its reference is complete, the examples print what stands below
them, and it can be built."""

import contextlib
import fcntl
import functools
import http.server
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import jaxmbd
from docs.pages import check_links, notebooks, parts, project, public_names, reference, sources, versions
from tests.printed import same
from tests.view.conftest import browser as browser
from tests.view.conftest import driver as driver

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TAUGHT = sorted([DOCS / "index.md", *DOCS.glob("tutorials/*.md"), *DOCS.glob("explanation/*.md")])
EXAMPLE = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def reached() -> set[Path]:
    """The pages that the index lists, folders included, and those that these list."""
    found: set[Path] = set()
    new = {DOCS / "index.md"}
    while new:
        found |= new
        text = "\n".join(page.read_text(encoding="utf-8") for page in new)
        trees = re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)
        lines = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
        new = {page for line in lines for page in DOCS.glob(f"{line}.md")} - found
    return found


def test_every_page_is_reached_from_the_index() -> None:
    generated = DOCS / "generated"
    pages = {page for page in DOCS.rglob("*.md") if generated not in page.parents}
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
    assert {"jaxmbd.io", "jaxmbd.plot", "jaxmbd.spatial.rotation"} <= set(public_names.modules())


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


def test_a_notebook_is_a_page(tmp_path: Path) -> None:
    """Text, code, what was printed, formulas and pictures; links lead from the page; collapsed sections are closed."""
    text = {"cell_type": "markdown", "metadata": {}, "source": ["# Bar\n", "\n", "See [data](data.py)."]}
    picture = {"output_type": "display_data", "data": {"image/png": "aGVsbG8=", "text/plain": "<Figure>"}}
    formula = {"output_type": "display_data", "data": {"text/latex": "$x$", "text/plain": "x"}}
    slider = {"output_type": "display_data", "data": {notebooks.WIDGET: {}, "text/plain": "interactive"}}
    outputs = [{"output_type": "stream", "text": ["1\n"]}, picture, formula, slider]
    code = {"cell_type": "code", "metadata": {}, "source": "print(1)", "outputs": outputs}
    closed = {"cell_type": "markdown", "metadata": {notebooks.COLLAPSED: True}, "source": "## Solution\n\nIt is 1."}
    stored, page = tmp_path / "in" / "bar.ipynb", tmp_path / "out" / "bar.md"
    stored.parent.mkdir()
    page.parent.mkdir()
    stored.write_text(json.dumps({"cells": [text, closed, code, text]}), encoding="utf-8")
    written = "\n".join(notebooks.lines_of(stored, page))
    assert "{download}`Save this notebook <bar.ipynb>`" in written
    assert "See [data](../in/data.py)." in written
    assert "<details>\n<summary>Solution</summary>\n\n\nIt is 1." in written
    assert "{code-block} python\nprint(1)" in written
    assert "{code-block} text\n1\n" in written
    assert "$$\nx\n$$\n" in written
    assert "*In Jupyter, sliders stand here.*" in written
    assert written.index("sliders stand") < written.index("</details>") < written.rindex("# Bar")
    (saved,) = page.parent.glob("*.png")
    assert saved.read_bytes() == b"hello"
    assert f"{{image}} {saved.name}" in written


def test_pages_of_the_project(tmp_path: Path) -> None:
    """They hold what the files at the top of the repository do, and their links lead to the site's pages."""
    project.write(tmp_path)
    written = {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.md")}
    assert "(/how-to/model-gears.md)" in written["features"]
    assert "| Bodies |" in written["features"]
    assert "## " not in written["features"]
    assert written["changes"].startswith("# Changelog")
    assert f"version = {{{jaxmbd.__version__}}}" in written["cite"]
    links = re.findall(r"\]\(/([^)]+)\)", "".join(written.values()))
    assert all((DOCS / link.partition("#")[0]).exists() for link in links)


def test_versions_are_listed_and_the_newest_release_is_shown(tmp_path: Path) -> None:
    for name in ("main", "0.9.0", "0.10.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text("", encoding="utf-8")
    assert versions.write(tmp_path) == ["0.10.0", "0.9.0", "main"]
    assert json.loads((tmp_path / "versions.json").read_text(encoding="utf-8")) == ["0.10.0", "0.9.0", "main"]
    assert "url=0.10.0/index.html" in (tmp_path / "index.html").read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="holds no builds"):
        versions.write(tmp_path / "main")


def test_lines_of_a_definition() -> None:
    """The address of a public name is that of a line of the page of its file, methods of private bases included."""
    names = {"simulate": "simulate", "Solution.reaction": "Solution.reaction"}
    for name, anchor in names.items():
        found = sources.linkcode_resolve("py", {"module": "jaxmbd", "fullname": name})
        assert found is not None
        assert found.endswith(f".html#{anchor}")
    path = ROOT / "jaxmbd" / "analyses" / "simulation" / "simulate.py"
    lines = [line for line in sources.page_of(path).splitlines() if line.startswith('<span class="line"')]
    text = path.read_text(encoding="utf-8")
    assert len(lines) == len(text.splitlines())
    assert 'id="simulate"' in lines[sources.definitions(text)["simulate"]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without warnings: once for all processes that run tests, since a build writes into `docs`."""
    own = tmp_path_factory.getbasetemp()
    folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with open(folder / "site.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "site" / "built").exists():
            command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going"]
            command += ["-d", str(folder / "site-cache"), str(DOCS), str(folder / "site")]
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
            assert done.returncode == 0, done.stderr
            (folder / "site" / "built").touch()
    return folder / "site"


needs_sphinx = pytest.mark.skipif(find_spec("sphinx") is None, reason="the extra `docs` is not installed")


@pytest.mark.slow
@needs_sphinx
def test_the_site_needs_no_network_and_its_links_hold(site: Path) -> None:
    page = (site / "explanation" / "augmented-system.html").read_text(encoding="utf-8")
    assert "mathjax/tex-chtml.js" in page
    assert (site / "_static" / "mathjax" / "tex-chtml.js").exists()
    loaded = re.compile(r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*"')
    assert [found for page in site.rglob("*.html") for found in loaded.findall(page.read_text(encoding="utf-8"))] == []
    assert list(check_links.broken(site)) == []
    (site / "broken.html").write_text('<a href="index.html#nowhere"></a><a href="none.html"></a>', encoding="utf-8")
    assert [link for _, link in check_links.broken(site)] == ["index.html#nowhere", "none.html"]
    (site / "broken.html").unlink()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Answers requests without a line for each."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server for a folder."""
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
@needs_sphinx
def test_a_version_can_be_chosen(site: Path, browser: Any, tmp_path: Path) -> None:
    """It leads to the same page; a site alone shows no choice."""
    from selenium.webdriver.support.ui import WebDriverWait

    for name in ("main", "0.1.0"):
        (tmp_path / name).symlink_to(site)
    versions.write(tmp_path)
    shown = "const list = document.getElementById('versions'); return list.hidden ? null : list.value"
    choose = "const list = document.getElementById('versions'); list.value = '0.1.0';"
    choose += "list.dispatchEvent(new Event('change'))"
    with served(tmp_path) as address:
        browser.driver.get(f"{address}/main/how-to/install.html")
        wait = WebDriverWait(browser.driver, 20)
        assert wait.until(lambda driver: driver.execute_script(shown)) == "main"
        browser.driver.execute_script(choose)
        wait.until(lambda driver: driver.current_url == f"{address}/0.1.0/how-to/install.html")
    with served(site) as address:
        browser.driver.get(f"{address}/how-to/install.html")
        assert browser.driver.execute_script(shown) is None


FOUND = "return [...document.querySelectorAll('#search-results li a')].map((link) => link.getAttribute('href'))"


@pytest.mark.slow
@needs_sphinx
@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("export C code", "generated/reference/jaxmbd.io.html#jaxmbd.io.export_c"),
        ("sweep plot", "generated/reference/jaxmbd.plot.html"),
        ("simulate", "generated/reference/jaxmbd.html#jaxmbd.simulate"),
        ("redundant constraints", "explanation/redundant-constraints.html"),
    ],
)
def test_search_finds(site: Path, browser: Any, words: str, page: str) -> None:
    """Among the first five, with a server; without one Sphinx's own search finds some pages."""
    from selenium.webdriver.support.ui import WebDriverWait

    query = f"search.html?q={words.replace(' ', '+')}"
    with served(site) as address:
        browser.driver.get(f"{address}/{query}")
        found = WebDriverWait(browser.driver, 20).until(lambda driver: driver.execute_script(FOUND))
        assert [link for link in found[:5] if link.startswith(page)], found[:5]
    browser.driver.get(f"{site.as_uri()}/{query}")
    assert WebDriverWait(browser.driver, 20).until(lambda driver: driver.execute_script(FOUND))
