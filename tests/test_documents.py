"""The examples of the README and of the page on analyses run, and give the numbers that stand beside them; the files,
pages and names that all pages mention exist."""

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docs.pages.sources import definitions

STRUT = 0.6  # [m] from the pivot to the end of the rod
ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "docs" / "generated"  # computed while the site is built, which checks the links that lead there
WRITTEN = sorted(page for page in (ROOT / "docs").rglob("*.md") if GENERATED not in page.parents)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *WRITTEN]
FOLDERS = ("jaxmbd", "tests", "docs", "benchmarks", "notebooks", ".ci")
NO_FILES = {"model.py", "_x.py"}  # names that stand for a file
MODULES = {"mbd": "jaxmbd", "jaxmbd": "jaxmbd", "pl": "jaxmbd.planar", "sp": "jaxmbd.spatial"}


def examples(page: str, words: str) -> list[str]:
    """The examples of a page that contain some words."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    return [block for block in blocks if words in block]


def run(*blocks: str) -> dict[str, Any]:
    """What blocks define that run one after another."""
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "example", "exec"), names)
    return names


def written(block: str, expression: str) -> list[float]:
    """The numbers in the comment behind an expression."""
    line = next(line for line in block.splitlines() if line.startswith(expression))
    return [float(number) for number in re.findall(r"-?\d+\.?\d*", line.split("#")[1])]


def test_examples_of_the_readme() -> None:
    (first,), (space,) = examples("README.md", "planar as pl"), examples("README.md", "spatial as sp")
    names = run(first, space)
    motion = names["motion"]
    np.testing.assert_allclose(motion["rod.position"][-1], written(space, 'motion["rod.position"]'), atol=1e-4)
    found = [*motion["rod.omega_world"][-1], *motion.reaction("nod").force[-1]]
    np.testing.assert_allclose(found, written(space, 'motion["rod.omega_world"]'), atol=6e-3)


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs" / "how-to").glob("*.md")))
def test_examples_of_a_how_to_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run one after another, and check their own results."""
    monkeypatch.chdir(tmp_path)
    assert run(*examples(f"docs/how-to/{page}", ""))


def test_a_mechanism_in_space() -> None:
    """The example with the rules of the axes: the rod is where its two angles put it."""
    setting, (block,) = "import jax, jax.numpy as jnp, jaxmbd as mbd", examples("docs/analyses.md", "spatial as sp")
    (moving,) = examples("docs/analyses.md", "ground.moving")
    names = run(setting, block, moving)
    np.testing.assert_allclose(names["mbd"].read(names["shaken"], names["start"], "strut.length"), STRUT, atol=1e-4)
    read, swing, start = names["mbd"].read, names["swing"], names["start"]
    found = [read(swing, start, "nod.angle"), *read(swing, start, "rod.position")]
    np.testing.assert_allclose(found, written(block, "mbd.read(swing"), atol=1e-4)
    np.testing.assert_allclose(found, [0.5, 0.3 * np.cos(0.5), 0.0, -0.3 * np.sin(0.5)], atol=1e-9)
    np.testing.assert_allclose(start["fork.omega_z"], 6.0, atol=1e-9)


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_files_that_a_page_mentions_exist(page: Path) -> None:
    """Each file in backticks, by its name or the end of its path."""
    known = [f"/{path.name}" for path in ROOT.iterdir()]
    known += [f"/{path.relative_to(ROOT)}" for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")]
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    named = set(re.findall(r"`([\w./-]+\.(?:py|c|h|md|csv|json))`", text)) - NO_FILES
    assert [name for name in sorted(named) if not any(path.endswith(f"/{name}") for path in known)] == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        there = page if not target else page.parent / target
        if GENERATED in there.parents:
            continue
        assert there.exists(), f"{target} does not exist"
        if anchor and there.suffix == ".py":
            assert anchor in definitions(there.read_text(encoding="utf-8")), f"{target} defines no {anchor}"
        elif anchor:
            titles = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
            assert anchor in slugs, f"{target}#{anchor}: there are {slugs}"


def exists(start: str, names: list[str]) -> bool:
    """Whether a module has a name, that one the next, and so on; each a module itself or an attribute."""
    found: Any = importlib.import_module(start)
    for name in names:
        try:
            found = getattr(found, name, None) or importlib.import_module(f"{found.__name__}.{name}")
        except (AttributeError, ImportError):
            return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_names_that_a_page_mentions_exist(page: Path) -> None:
    """Each `mbd.…`, `jaxmbd.…`, `pl.…` and `sp.…`, in text and in examples."""
    found = set(re.findall(r"\b(mbd|jaxmbd|pl|sp)\.([A-Za-z][\w.]*\w)", page.read_text(encoding="utf-8")))
    assert [f"{short}.{name}" for short, name in sorted(found) if not exists(MODULES[short], name.split("."))] == []
