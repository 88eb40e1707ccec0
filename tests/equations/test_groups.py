"""Parts of one type are stacked, and everything comes back in the order in which they were declared."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.model.mechanism.groups import group_parts
from tests.model import laws_planar
from tests.model.law_bench import EXACT, SPACES, T, bench, values


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("kind", ["joints", "forces"])
def test_equal_types_are_one_group(space: str, kind: str) -> None:
    """A case on two bodies and the same case on the ground are stacked, in the order they are declared in."""
    mechanism = bench(space, kind).mechanism
    index = {body.name: i for i, body in enumerate(mechanism.bodies)} | {"ground": len(mechanism.bodies)}
    for name in SPACES[space].table(kind):
        parts: list[Any] = [*mechanism.constraints(), *mechanism.forces]
        mine = [p for p in parts if p.name in (name, f"{name} on ground") and getattr(p, "markers", ())]
        if name == "Driver of a body" or not mine:
            continue
        (group,) = group_parts(mine, mechanism)
        assert group.members == (0, 1)
        assert [list(row) for row in group.incidence] == [[index[m.body] for m in p.markers] for p in mine]


def test_groups_keep_the_order_of_declaration() -> None:
    """Types that alternate give two groups; rows, blocks and reactions come back in the order of the parts."""
    rng = np.random.default_rng(2)
    bodies = [pl.Body(f"b{i}", 1.0, 0.1, rng.normal(size=3)) for i in range(5)]
    joints = [
        pl.Revolute("p0", pl.ground.at(0.1, 0.2), bodies[0].at(0.3, 0.1)),
        pl.Rod("r0", bodies[0].at(), bodies[1].at(0.2), 0.7),
        pl.Revolute("p1", bodies[1].at(0.1), bodies[2].at(0.3, 0.1)),
        pl.GlobalConstraint("g", laws_planar.fixed_bodies, jnp.asarray(0.6)),
        pl.Rod("r1", bodies[2].at(), bodies[3].at(0.2), 0.9),
        pl.Weld("w", bodies[3].at(0.1), bodies[4].at()),
    ]
    mechanism = pl.Mechanism(bodies, joints)
    equations = mbd.Equations(mechanism)
    assert [group.members for group in equations.parts.joints] == [(0, 2), (1, 3), (4,)]
    q, t = jnp.concatenate([b.pose for b in bodies]), jnp.asarray(0.0)
    expected = [
        j.residual(t, q)
        if isinstance(j, pl.GlobalConstraint)
        else j.residual(t, equations.at(t, q).near(j.markers).frames)
        for j in joints
    ]
    phi, C, slope = jax.jit(
        lambda x: (equations.position(t, x), equations.jacobian(t, x), jax.jacfwd(equations.position, 1)(t, x))
    )(q)
    np.testing.assert_allclose(phi, np.concatenate(expected), atol=EXACT)
    np.testing.assert_allclose(C, slope, atol=EXACT)


def renamed(part: Any) -> Any:
    """A copy of a part under another name."""
    twin = object.__new__(type(part))
    for field in part.__dataclass_fields__:
        value = getattr(part, field)
        object.__setattr__(twin, field, f"{value} again" if field == "name" else value)
    return twin


def test_a_stack_of_equal_parts_is_their_sum() -> None:
    """Every force twice, on the same bodies: twice the force and energy, and no more groups than before."""
    b = bench("planar", "forces")
    again = tuple(map(renamed, b.mechanism.forces))
    double = pl.Mechanism(b.mechanism.bodies, b.mechanism.joints, (*b.mechanism.forces, *again), floating=True)
    single, twice = mbd.Equations(b.mechanism), mbd.Equations(double)
    at = eqx.filter_jit(values)("forces", double, *map(jnp.asarray, (T, b.q, b.v, b.a, b.lam)))
    np.testing.assert_allclose(at["force"], 2 * b.at["force"], rtol=1e-13, atol=1e-12)
    np.testing.assert_allclose(at["potential"], 2 * b.at["potential"], rtol=1e-13)
    assert len(single.parts.forces) == len(twice.parts.forces)
    assert len(single.parts.coordinate_forces) == len(twice.parts.coordinate_forces)
