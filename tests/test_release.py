"""What is said of a release in several places is the same in all, and files that other programs read are valid."""

import re
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONDA_NAMES = {"matplotlib": "matplotlib-base"}  # without the toolkits of windows, as pip installs it


def requirements(lines: list[str], pattern: str) -> dict[str, str]:
    """Versions by the names of packages."""
    found = (re.fullmatch(pattern, line) for line in lines)
    return {match[1].lower(): match[2].replace(" ", "") for match in found if match}


def recipe() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8"))


def citation() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_all_name_the_same_release() -> None:
    """The version and its day: pyproject.toml, CITATION.cff, the newest in CHANGELOG.md, the recipe for conda."""
    version, released = PROJECT["version"], citation()["date-released"]
    released = released if isinstance(released, date) else date.fromisoformat(released)
    assert citation()["version"] == version
    assert recipe()["context"]["version"] == version
    headings = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert next(x for x in headings if x[0] != "Unreleased") == (version, released.isoformat())


def test_a_citation_names_what_the_package_does() -> None:
    """Zenodo makes the record of a DOI from it: type, title, authors, description, licence, keywords."""
    found = citation()
    assert found["cff-version"] == "1.2.0"
    assert found["type"] == "software"
    assert found["license"] == PROJECT["license"]
    assert found["keywords"] == PROJECT["keywords"]
    assert all(found[name] for name in ("title", "abstract", "authors", "message"))
    assert not (ROOT / ".zenodo.json").exists()  # which would be taken in its place


def test_conda_installs_what_pip_installs() -> None:
    """The same packages, in the same versions."""
    pip = requirements(PROJECT["dependencies"], r"([\w-]+)(.*)")
    conda = requirements(recipe()["requirements"]["run"], r"(\S+) ?(.*)")
    assert conda.pop("python") == ">=${{python_min}}"
    assert conda == {CONDA_NAMES.get(name, name): version for name, version in pip.items()}
    (hatchling,) = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert hatchling in [line.replace(" ", "") for line in recipe()["requirements"]["host"]]


def test_the_recipe_for_conda_names_files_that_exist() -> None:
    found = recipe()
    assert found["about"]["license"] == PROJECT["license"]
    assert found["about"]["summary"] == PROJECT["description"]
    licences = {path.relative_to(ROOT).as_posix() for name in PROJECT["license-files"] for path in ROOT.glob(name)}
    assert set(found["about"]["license_file"]) == licences
    assert found["build"]["python"]["entry_points"] == [f"{k} = {v}" for k, v in PROJECT["scripts"].items()]


def test_wheels_are_built_with_the_jax_of_the_hook() -> None:
    """In two ways: in an environment of the build's own, and in that of `make wheels`."""
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    (jax,) = (x for x in hook["wheel"]["hooks"]["custom"]["dependencies"] if x.startswith("jax="))
    assert jax in PROJECT["optional-dependencies"]["wheels"]
