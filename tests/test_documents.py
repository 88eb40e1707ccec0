"""The examples of the README and of the page on analyses run, and give the numbers that stand beside them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

STRUT = 0.6  # [m] from the pivot to the end of the rod
ROOT = Path(__file__).parents[1]


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


@pytest.mark.slow
def test_examples_of_the_readme() -> None:
    (first,), (space,) = examples("README.md", "planar as pl"), examples("README.md", "spatial as sp")
    names = run(first, space)
    motion = names["motion"]
    np.testing.assert_allclose(motion["rod.position"][-1], written(space, 'motion["rod.position"]'), atol=1e-4)
    found = [*motion["rod.omega_world"][-1], *motion.reaction("nod").force[-1]]
    np.testing.assert_allclose(found, written(space, 'motion["rod.omega_world"]'), atol=6e-3)


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
