"""The TOML text of a tree, and the lines of its keys."""

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.io.model_file.lines import lines_of
from jaxmbd.io.model_file.schema import PATH, schema_text
from jaxmbd.io.model_file.toml import Section, toml
from tests.io.broken_models import WRONG_VALUES
from tests.io.schema import validator


def random_tree(rng: np.random.Generator, depth: int) -> Any:
    """Tables, lists and values of all kinds."""
    kind = rng.integers(0, 7 if depth else 4)
    if kind == 0:
        return float(rng.normal() * 10.0 ** rng.integers(-300, 300))
    if kind == 1:
        return [True, 3, -0.0, float("inf")][rng.integers(4)]
    if kind == 2:
        return "".join(map(chr, [*rng.integers(1, 300, 4), 0x1F600, 0x7F, 0x22, 0x5C, 0x0A]))
    if kind == 3:
        return rng.normal(size=rng.integers(0, 30)).tolist()
    if kind == 4:
        return [random_tree(rng, depth - 1) for _ in range(rng.integers(0, 4))]
    table = {f"{rng.integers(1000)} k": random_tree(rng, depth - 1) for _ in range(rng.integers(0, 5))}
    return Section(table) if kind == 5 else table


def test_what_is_written_is_read(rng: np.random.Generator) -> None:
    for _ in range(200):
        tree = {"a": random_tree(rng, 4), "b-c": random_tree(rng, 4), "": random_tree(rng, 2)}
        assert tomllib.loads(toml(tree)) == tree


def test_short_values_are_in_one_line_and_long_ones_are_broken() -> None:
    text = toml({"short": {"body": "rod", "at": [1.0, 2.0]}, "long": list(range(100)), "rows": [[0.1] * 30] * 2})
    first, *rest = text.splitlines()
    assert first == 'short = { body = "rod", at = [1.0, 2.0] }'
    assert len(rest) > 5
    assert max(map(len, rest)) <= 110


TEXT = '''
# a comment with [brackets] = "and quotes
top = 1 # here
[a."b.c".d]
"key = 1" = """
[no.table]
""" # after
list = [
    1.5, # one
    { x = 1, y = [
        3,
        { z = '#' },
    ] },
]
dotted.key.here = { "q" = 1979-05-27T07:32:00Z, r.s = 'a"b' }

[[many]]
u = 1
[[many]]
u = \'\'\'
x = 5\'\'\'
w = [[1], [2,
  3]]
[many.inner]
v = -inf
'''

INNER = ("a", "b.c", "d")
LINES = {
    ("top",): 3, INNER: 4, (*INNER, "key = 1"): 5, (*INNER, "list"): 8, (*INNER, "list", 1): 10,
    (*INNER, "list", 1, "y"): 10, (*INNER, "list", 1, "y", 1, "z"): 12, (*INNER, "dotted"): 15,
    (*INNER, "dotted", "key", "here", "r", "s"): 15, ("many", 0): 17, ("many", 0, "u"): 18, ("many", 1, "u"): 20,
    ("many", 1, "w"): 22, ("many", 1, "w", 1): 22, ("many", 1, "inner", "v"): 25,
}  # fmt: skip


@pytest.mark.parametrize("keys", LINES, ids=lambda keys: ".".join(map(str, keys)))
def test_lines_of_keys(keys: tuple[str | int, ...]) -> None:
    found: Any = tomllib.loads(TEXT)
    for key in keys:
        found = found[key]
    assert lines_of(TEXT)[keys] == LINES[keys]


def test_every_key_that_is_written_has_its_line(rng: np.random.Generator) -> None:
    """That in which its own name is, or that of the table around it."""
    for _ in range(50):
        text = toml({"a": random_tree(rng, 4), "b": Section(c=random_tree(rng, 3))})
        lines = text.splitlines()
        for keys, line in lines_of(text).items():
            if isinstance(keys[-1], str):
                assert json.dumps(keys[-1], ensure_ascii=False).strip('"') in lines[line - 1]


def test_the_published_schema_is_that_of_the_classes() -> None:
    assert PATH.read_text(encoding="utf-8") == schema_text(), "run: python -m jaxmbd.io.model_file.schema"


@pytest.mark.parametrize(
    "case", ["version", "space", "entry", "mass is text", "no mass", "misspelt", "name", "type", "no type"]
)
def test_the_schema_finds_faults(case: str) -> None:
    assert not validator().is_valid(tomllib.loads(WRONG_VALUES[case].content.decode()))


def test_the_schema_says_the_unit_of_a_number() -> None:
    definitions = json.loads(schema_text())["$defs"]
    spring = definitions["planar.SpringDamper"]["properties"]
    assert spring["stiffness"]["description"] == "`stiffness` k `[N/m]`"
    assert "[kg]" in definitions["spatial.Body"]["properties"]["mass"]["description"]


@pytest.mark.parametrize("space", ["planar", "spatial"])
def test_a_marker_without_a_position_is_at_the_origin(space: str, tmp_path: Path) -> None:
    inertia = "0.1" if space == "planar" else "[0.1, 0.1, 0.1]"
    text = f"""format = "jaxmbd-model/1"
space = "{space}"
[bodies.rod]
mass = 1.0
inertia = {inertia}
[joints.O]
type = "Revolute"
a = {{ body = "ground" }}
b = {{ body = "rod" }}
"""
    (tmp_path / "m.toml").write_text(text)
    (joint,) = mbd.load(tmp_path / "m.toml").joints
    zeros = np.zeros(2 if space == "planar" else 3)
    for marker in joint.markers:
        np.testing.assert_array_equal(marker.position, zeros)
        assert marker.position.dtype == np.float64
    validator().validate(tomllib.loads(text))
