"""The examples in the docstrings of public names run, and print what stands below them."""

import contextlib
import doctest
import inspect
import io
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib import pyplot as plt

import jaxmbd as mbd
from docs.pages import public_names, reference
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from tests.printed import same

NAMES = {"jax": jax, "jnp": jnp, "np": np, "mbd": mbd, "pl": pl, "sp": sp}
FIT = "jaxmbd.identification.fit"  # the examples of the module, and pictures of fits, go on from its example
FITTED = {"jaxmbd.plot.fit", "jaxmbd.plot.fit_report"}
LONG = ("identification.", "optimal_design.", "plot.", "symbolic.", "linearize", "equilibrium", "inverse_dynamics")
LONG += ("assembly_modes", "time_scales", "Event", "Integration", "io.save", "planar.Beam")
SLOW = tuple(f"jaxmbd.{name}" for name in LONG)
# Functions that need no example: each of `examples` is one, and files of other programs are not at hand.
WITHOUT = {"jaxmbd.io.read_model", "jaxmbd.spatial.rotation.axis_numbers"}


def documented() -> dict[str, Any]:
    """The public functions and classes, with their documented members, by the path under which they are documented."""
    found: dict[str, Any] = {}
    for names in public_names.modules().values():
        for name in names:
            if name.is_module or name.documented in found or not callable(name.value):
                continue
            found[name.documented] = name.value
            if isinstance(name.value, type):
                keys = [key for _, key, _ in reference.members_of(name.value)]
                found |= {f"{name.documented}.{key}": getattr(name.value, key) for key in keys}
    return found


ALL = documented()
EXAMPLES = {path: text for path, value in ALL.items() if ">>>" in (text := inspect.getdoc(value) or "")}


def checked(path: str, names: dict[str, Any]) -> int:
    """Run the examples of a docstring with these names, and compare their outputs; the number of those."""
    count = 0
    for example in doctest.DocTestParser().get_examples(EXAMPLES[path], path):
        if doctest.SKIP in example.options:
            continue
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(example.source, path, "single"), names)
        assert same(output.getvalue(), example.want), f"{example.source}{output.getvalue()}"
        count += bool(example.want)
    return count


@pytest.fixture(scope="module")
def fitted() -> Callable[[], dict[str, Any]]:
    names: dict[str, Any] = {}

    def run() -> dict[str, Any]:
        if not names:
            names.update(NAMES)
            assert checked(FIT, names)
        return dict(names)

    return run


def case(path: str) -> Any:
    return pytest.param(path, marks=[pytest.mark.slow] * path.startswith(SLOW), id=path.removeprefix("jaxmbd."))


@pytest.mark.parametrize("path", [case(path) for path in EXAMPLES])
def test_examples_of_a_docstring(
    path: str, fitted: Callable[[], dict[str, Any]], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    is_of_a_fit = path in FITTED or path.startswith("jaxmbd.identification.")
    checked(path, fitted() if is_of_a_fit else dict(NAMES))
    plt.close("all")


def test_public_functions_have_examples() -> None:
    functions = {path for path, value in ALL.items() if callable(value) and not isinstance(value, type)}
    top = {path for path in functions if path.rpartition(".")[0] in public_names.modules()}
    ours = {path for path in top if not path.startswith("jaxmbd.examples.")} - WITHOUT
    assert sorted(ours - set(EXAMPLES)) == []
    assert len(ours) > 80


def test_a_wrong_output_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXAMPLES, "wrong", ">>> print(1.25)\n1.35\n")
    with pytest.raises(AssertionError, match=r"print\(1.25\)"):
        checked("wrong", dict(NAMES))
