"""The workflows of GitHub: what they use is pinned, and they try what pyproject.toml promises."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def jobs(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())["jobs"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_and_pins_what_it_uses(path: Path) -> None:
    """Jobs that publish say so themselves."""
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] > 0
        needed = job.get("needs", [])
        assert set([needed] if isinstance(needed, str) else needed) <= set(workflow["jobs"])
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+(\.\d+)*", step.get("uses", "a/b@v1"))
            used = set(re.findall(r"(?<![-\w])make ([a-z]+)", step.get("run", ""))) - {"docs"}
            assert used <= set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_all_promised_versions_of_python_are_tried() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    promised = [name.split(" :: ")[-1] for name in classifiers if re.search(r"Python :: 3\.\d+$", name)]
    assert jobs("tests.yml")["tests"]["strategy"]["matrix"]["python"] == promised
    assert jobs("release.yml")["try"]["strategy"]["matrix"]["python"] == promised


def test_the_hook_builds_with_the_oldest_jax_allowed() -> None:
    """XLA takes a library that was made for an older version of its interface, but not the reverse."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (allowed,) = (name for name in project["project"]["dependencies"] if name.startswith("jax>="))
    hook = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    assert f"jax=={re.findall(r'[0-9.]+', allowed)[0]}.*" in hook["dependencies"]
