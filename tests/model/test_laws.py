"""Laws that parts of all kinds have to keep: each public class has an example, every parameter has its derivative, and
a batch equals a loop."""

import inspect
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from jaxmbd.engine import as_program
from jaxmbd.extend import AbstractController
from tests.model import laws
from tests.model.law_bench import (
    FIRST,
    KINDS,
    OFFSETS,
    SPACES,
    STEP,
    Bench,
    T,
    bench,
    case_of,
    over,
)

DIFFERENCE = 2e-7  # central differences, relative to numbers of size 1 to 100


@pytest.mark.parametrize("space", SPACES)
def test_every_public_part_is_registered(space: str) -> None:
    """A new class has to come with an example here; controllers, whose laws know no markers, have their own tests."""
    module = SPACES[space].space
    apart = {
        module.Body,
        module.Marker,
        module.MovingMarker,
        module.Mechanism,
        module.Frame,
        getattr(module, "Rate", None),
    }
    apart |= {getattr(module, name, None) for name in ("Solid", "Beam", "Shape", "GeneralizedSpeeds")}
    classes = {value for value in vars(module).values() if inspect.isclass(value)}
    public = {x for x in classes if not inspect.isabstract(x) and not issubclass(x, AbstractController)}
    assert public - apart == SPACES[space].registered


class Slopes(NamedTuple):
    """Of one number for each unit, made of all that the equations say of it: its derivatives by every parameter of the
    unit, two ways, `(path, reverse, difference)`."""

    found: dict[str, list[tuple[str, np.ndarray, np.ndarray]]]


# `velocity` holds `C` and `reactions` are made of it; the potential has its slope among the numbers.
WITHOUT = ("C", "reactions", "potential")


BY_NAME = ("readings", "own rates")  # numbers of one part each


def owner(name: str) -> str:
    """The unit of a reading, or of a state of a part."""
    return laws.unit(name.rpartition(".")[0] or name)


def weights(b: Bench) -> dict[str, Any]:
    """A random weight for each number that the equations give."""
    rng = np.random.default_rng(11)
    kept = {key: value for key, value in b.at.items() if key not in WITHOUT}
    return jax.tree.map(lambda x: rng.normal(size=x.shape), kept)


def shares(b: Bench, units: list[str]) -> dict[str, Any]:
    """Which unit each row of the numbers belongs to; a constraint on all coordinates has no bodies."""
    number = {name: k for k, name in enumerate(units)}
    by_row = np.full(len(b.lam), -1)
    for name, rows in b.rows.items():
        by_row[rows] = number[laws.unit(name)]
    by_body = [number[laws.unit(body.name)] for body in b.mechanism.bodies]
    by_speed = np.repeat(by_body, b.width)
    places = {len(by_row): by_row} | {len(by_speed): by_speed}
    kept = {key: value for key, value in b.at.items() if key not in (*WITHOUT, *BY_NAME)}
    found: dict[str, Any] = {key: by_row if key in ("phi", "velocity", "gamma") else by_speed for key in kept}
    assert all(len(x) in places for x in kept.values())
    return found | {key: {name: number[owner(name)] for name in b.at[key]} for key in BY_NAME if key in b.at}


@cache
def slopes(space: str, kind: str) -> Slopes:
    b = bench(space, kind)
    w = weights(b)
    units = list(dict.fromkeys(laws.unit(part.name) for part in b.mechanism.parts()))
    share = shares(b, units)

    def number(arrays: Any, *at: Array) -> Array:
        found = b.function(arrays, *at)
        terms = jax.tree.map(lambda w, x: jnp.sum(w * x), w, {key: found[key] for key in w})
        return sum(jax.tree.leaves(terms), jnp.zeros(()))

    def by_unit(arrays: Any) -> np.ndarray:
        found, total = b(T, b.q, b.v, arrays), np.zeros(len(units))
        for key, weight in w.items():
            if key in BY_NAME:
                for name, x in found[key].items():
                    total[share[key][name]] += np.sum(weight[name] * x)
            else:
                np.add.at(total, share[key], weight * found[key])
        return total

    reverse = jax.jit(jax.grad(as_program(number)))(b.arrays, *map(jnp.asarray, (T, b.q, b.v, b.a)))
    # The leaves of each unit; the k-th number of all of them is changed at once, since no unit feels another.
    index = {id(part): laws.unit(part.name) for part in b.mechanism.parts()}
    paths, tree = jax.tree_util.tree_flatten_with_path(b.arrays)
    owner, labels = [], []
    for path, _ in paths:
        part = getattr(b.mechanism, path[0].name)[path[1].idx]
        owner.append(index[id(part)])
        labels.append(f"{part.name}{jax.tree_util.keystr(path[2:])}")
    held = [leaf for _, leaf in paths]
    leaves = [np.asarray(leaf) for leaf in held]
    counts = dict.fromkeys(units, 0)
    slots: list[list[tuple[int, Any]]] = []
    for i, leaf in enumerate(leaves):
        if labels[i].endswith(".pose") or owner[i] == SPACES[space].gravity.name:  # felt by nobody, by several
            continue
        for place in np.ndindex(leaf.shape):
            k = counts[owner[i]]
            counts[owner[i]] += 1
            if k == len(slots):
                slots.append([])
            slots[k].append((i, place))
    differences = [np.zeros_like(leaf) for leaf in leaves]
    for slot in slots:
        at = []
        for offset in OFFSETS:
            changed = list(held)
            for i, place in slot:
                changed[i] = leaves[i].copy()
                changed[i][place] += offset * STEP
            at.append(by_unit(jax.tree.unflatten(tree, changed)))
        slope = np.tensordot(FIRST, np.stack(at), 1) / STEP
        for i, place in slot:
            differences[i][place] = slope[units.index(owner[i])]
    found: dict[str, list[Any]] = {name: [] for name in units}
    for i, exact in enumerate(jax.tree.leaves(reverse)):
        found[owner[i]].append((labels[i], np.asarray(exact), differences[i]))
    return Slopes(found)


def _slow(kind: str, space: object) -> Any:
    """The derivatives of joints in space by all their parameters take half a minute to compile."""
    return pytest.mark.slow if (kind, space) == ("joints", "spatial") else ()


@pytest.mark.parametrize(
    ("kind", "space", "name"),
    [
        pytest.param(kind, *case.values, id=f"{kind}-{case.id}", marks=_slow(kind, case.values[0]))
        for kind in KINDS
        for case in over(kind)
    ],
)
def test_gradient_with_respect_to_every_parameter(kind: str, space: str, name: str) -> None:
    """Of all rows, forces, slopes and readings together: reverse mode against differences, part by part."""
    found = slopes(space, kind).found[name]
    assert found
    for label, exact, estimate in found:
        np.testing.assert_allclose(exact, estimate, rtol=DIFFERENCE, atol=DIFFERENCE, err_msg=label)


@pytest.mark.parametrize(
    ("space", "kind"),
    [pytest.param(space, kind, marks=_slow(kind, space)) for kind in ("joints", "forces") for space in SPACES],
)
def test_no_parameter_is_dead(space: str, kind: str) -> None:
    """Each number of a part, its markers apart, and each body's inertia, changes something; one said to be idle does
    not."""
    markers = {"a", "b", "at", "on", "from_", "plane", "point", "carrier", "pose"}
    seen = 0
    for name, found in slopes(space, kind).found.items():
        idle = () if name in SPACES[space].globals else case_of(space, name).idle
        for label, exact, _ in found:
            field = label.replace(name, "").replace(" helper", "").split(".")[1].split("[")[0]
            if (("/" not in label or " helper" in label) and field in markers) or field == "pose":
                continue
            seen += 1
            if field in idle:
                np.testing.assert_array_equal(exact, 0.0)
            else:
                assert np.abs(exact).min(initial=np.inf) > 1e-6, label  # an array of none has no number
    assert seen > len(SPACES[space].table(kind))


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("kind", KINDS)
def test_vmap_equals_a_loop(space: str, kind: str) -> None:
    """Three mechanisms with other numbers, states and times: one batch gives what three calls give."""
    b = bench(space, kind)
    scales = (1.0, 1.07, 0.93)
    batch = [jax.tree.map(lambda x, s=s: s * np.asarray(x), (b.arrays, np.asarray(T), b.q, b.v)) for s in scales]
    stacked = jax.tree.map(lambda *x: np.stack(x), *batch)
    kept = ("phi", "C", "velocity") if kind == "joints" else tuple(b.at)  # the rest takes long to compile

    def some(arrays: Any, t: Array, q: Array, v: Array, a: Array) -> dict[str, Any]:
        return {key: value for key, value in b.function(arrays, t, q, v, a).items() if key in kept}

    of = jax.jit(jax.vmap(some, (0, 0, 0, 0, None)))
    mapped = jax.tree.map(np.asarray, of(*stacked, b.a))
    for k, (arrays, *state) in enumerate(batch):
        t, q, v = state
        single = {key: value for key, value in b(t, q, v, arrays).items() if key in kept}
        jax.tree.map(lambda x, y, k=k: np.testing.assert_allclose(x[k], y, rtol=1e-11, atol=1e-11), mapped, single)
