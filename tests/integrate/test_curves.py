"""Tables over other variables than time are curves: no step ends at their samples. Tables of time keep theirs.

Which is which shows in what a law calls with the time, wherever the part holds the table.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.integrate.solvers.switching import switches_of
from tests.marks import in_both_coordinates

EXACT = 1e-12  # of equal motions, whose laws are written in two ways
HIGH = 1e-10  # of a motion at high accuracy, and of its derivatives
SPEEDS, TORQUES = jnp.array([0.0, 1.0, 2.0, 3.0, 50.0]), jnp.array([10.0, 9.0, 7.0, 4.0, 0.0])
LENGTHS, PULLS = jnp.array([0.5, 1.0, 1.5, 2.0]), jnp.array([0.0, 0.0, 8.0, 24.0])
KNOTS, LOADS = jnp.array([0.5, 1.1, 2.3]), jnp.array([0.0, 6.0, -2.0])
TS = np.linspace(0.0, 3.0, 7)


def rotor(space: Any, forces: Any, coordinates: str, drivers: Any = ()) -> Any:
    body = space.Body("r", 1.0, 2.0 if space is pl else (1.0, 1.0, 2.0))
    pin = space.Revolute("O", space.ground.at(), body.at())
    return space.Mechanism([body], [pin], forces, drivers, coordinates=coordinates)


def times_of(mechanism: Any) -> list[float]:
    """The switching times of a mechanism, sorted."""
    found = switches_of(mechanism, None)
    return [] if found is None else sorted(np.concatenate([found.jumps, found.kinks]).tolist())


def moved(mechanism: Any, **options: Any) -> mbd.Solution:
    return mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 0.0}), TS, **options)


# --- curves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [pl, pytest.param(sp, marks=pytest.mark.slow)])
@in_both_coordinates("joint")
def test_a_torque_over_speed_moves_like_the_formula(space: Any, coordinates: str) -> None:
    """The same engine and the same steps, which no switching time shortens."""
    laws = {
        "table": (lambda t, angle, rate, curve: curve(rate), mbd.Table(SPEEDS, TORQUES)),
        "formula": (lambda t, angle, rate, curve: jnp.interp(rate, *curve), (SPEEDS, TORQUES)),
    }
    motions = {}
    for name, law in laws.items():
        mechanism = rotor(space, [space.JointForce("motor", "O.angle", *law)], coordinates)
        assert times_of(mechanism) == []
        motions[name] = moved(mechanism)
    table, formula = motions["table"], motions["formula"]
    assert int(table.stats["num_steps"]) == int(formula.stats["num_steps"])
    assert table.engine == formula.engine
    np.testing.assert_allclose(table.q, formula.q, atol=EXACT)
    assert 7.0 < float(table["O.angle_rate"][-1]) < 9.0


def test_derivatives_by_the_samples_of_a_curve() -> None:
    """By its values and by its abscissae, those of `jnp.interp`."""

    def end(curve: Any, law: Any) -> Array:
        mechanism = rotor(pl, [pl.JointForce("motor", "O.angle", law, parameters=curve)], "joint")
        return moved(mechanism)["O.angle_rate"][-1]

    of_table, of_formula = (
        jax.grad(end)((SPEEDS, TORQUES), law)
        for law in (
            lambda t, angle, rate, curve: mbd.Table(*curve)(rate),
            lambda t, angle, rate, curve: jnp.interp(rate, *curve),
        )
    )
    for slope, true in zip(of_table, of_formula, strict=True):
        np.testing.assert_allclose(slope, true, atol=1e-9)
    assert abs(float(of_table[0][2])) > 0.01
    assert abs(float(of_table[1][1])) > 0.01


class Band(pl.AbstractForce):
    """An elastic band, whose pull is a curve over its length, times a factor that is a table of time."""

    name: str = eqx.field(static=True)
    ends: Any
    curve: Any
    factor: Any

    @property
    def markers(self) -> tuple[Any, ...]:
        return self.ends

    @eqx.filter_jit
    def strength(self, t: Array, length: Array) -> Array:
        return self.factor(t) * self.curve(length)

    def wrenches(self, t: Array, frames: Sequence[Any], rates: Sequence[Any]) -> Float[Array, "2 efforts"]:
        a, b = frames
        d = b.position - a.position
        length = jnp.sqrt(d @ d)
        on_b = jnp.zeros(len(self.ends[0].space.efforts)).at[: len(d)].set(-self.strength(t, length) * d / length)
        return jnp.stack([-on_b, on_b])

    def potential(self, t: Array, frames: Sequence[Any]) -> Array:
        return jnp.zeros(())


@pytest.mark.parametrize("space", [pl, pytest.param(sp, marks=pytest.mark.slow)])
def test_a_users_class_with_a_curve_and_a_table_of_time(space: Any) -> None:
    """A mass of 4 kg on a band in its linear part, `16 (l − 1)`, stretched more by a factor from `t = 0.5 s` on."""
    body = space.Body("b", 4.0, 1.0 if space is pl else (1.0, 1.0, 1.0))
    rail = space.Prismatic("rail", space.ground.at() if space is pl else space.ground.at(axis="x"), body.at()
                           if space is pl else body.at(axis="x"))  # fmt: skip
    band = Band(
        "band", (space.ground.at(-1.2), body.at()), mbd.Table(LENGTHS, PULLS), mbd.Table([0.5, 0.6], [1.0, 2.0], 0)
    )
    mechanism = space.Mechanism([body], [rail], [band], coordinates="joint")
    assert times_of(mechanism) == [0.5, 0.6]
    assert times_of(eqx.tree_at(lambda m: m["band"].factor, mechanism, lambda t: 1.0 + 0.0 * t)) == []

    def place(switch: Array) -> Array:
        other = eqx.tree_at(lambda m: m["band"].factor.times, mechanism, jnp.stack([switch - 0.1, switch]))
        start = mbd.assemble(other, {"rail.displacement": 0.1})
        return mbd.simulate(other, start, [0.0, 0.7], accuracy="high")["rail.displacement"][-1]

    # x = l − 1: 4 ẍ = −16 x, and from the switch on −32 x
    def exact(switch: Array) -> Array:
        x, v = 0.3 * jnp.cos(2 * switch), -0.6 * jnp.sin(2 * switch)
        omega, since = jnp.sqrt(8.0), 0.7 - switch
        return x * jnp.cos(omega * since) + v / omega * jnp.sin(omega * since) - 0.2

    value, slope = jax.value_and_grad(place)(jnp.array(0.4))
    true, its = jax.value_and_grad(exact)(jnp.array(0.4))
    np.testing.assert_allclose([value, slope], [true, its], atol=HIGH)
    assert abs(float(its)) > 0.1


class Cam(eqx.Module):
    """A prescribed motion: a table of time, a curve over the angle of a shaft at constant speed, or both."""

    profile: mbd.Table
    slow: bool = eqx.field(static=True)

    def __call__(self, t: Array) -> Array:
        return self.profile(t) if self.slow else self.profile(jnp.mod(5.0 * t, 3.0))


@pytest.mark.parametrize("space", [pl, pytest.param(sp, marks=pytest.mark.slow)])
def test_the_motion_of_a_driver(space: Any) -> None:
    for slow, times in ((True, KNOTS.tolist()), (False, [])):
        driver = space.Driver("d", "O.angle", Cam(mbd.Table(KNOTS, LOADS), slow), "speed")
        mechanism = rotor(space, [], "joint", [driver])
        assert times_of(mechanism) == times
        motion = moved(mechanism)
        at = TS if slow else np.mod(5 * TS, 3.0)
        np.testing.assert_allclose(motion["O.angle_rate"], np.interp(at, KNOTS, LOADS), atol=1e-6)


def test_couplings_take_curves_and_generalized_forces_either() -> None:
    body, slider = pl.Body("r", 1.0, 2.0), pl.Body("s", 1.0, 1.0)
    joints = [pl.Revolute("O", pl.ground.at(), body.at()), pl.Prismatic("P", pl.ground.at(), slider.at())]

    def law(t: Array, q: Array, v: Array, curve: mbd.Table) -> Array:
        return jnp.stack([curve(v[0]), curve(t)])

    forces = [pl.GeneralizedForce("push", law, mbd.Table(KNOTS, LOADS))]
    assert times_of(pl.Mechanism([body, slider], joints, forces, coordinates="joint")) == KNOTS.tolist()
    constraint = pl.GlobalConstraint("c", lambda t, q, curve: q[1] - curve(q[0]), mbd.Table(KNOTS, LOADS))
    assert times_of(pl.Mechanism([body, slider], [*joints, constraint], coordinates="joint")) == []
    feather = pl.Constraint("f", lambda t, frames, p: frames[1].position[0] - p(t), pl.ground.at(), slider.at(),
                            mbd.Piecewise([1.3], [0.0, lambda t: (t - 1.3) ** 3], order=3))  # fmt: skip
    found = switches_of(pl.Mechanism([body, slider], [*joints, feather], coordinates="joint"), None)
    assert found is not None
    assert (found.jumps.tolist(), found.kinks.tolist()) == ([], [1.3])


# --- tables of time inside other functions --------------------------------------------------------------


RAMP = rotor(pl, [pl.JointForce("motor", "O.angle", mbd.Piecewise([0.2], [0.0, mbd.Table(KNOTS, LOADS)]))], "joint")


def test_a_table_that_is_a_piece_has_its_times_too() -> None:
    """`2 ω̇ = τ(t)`: zero until 0.2 s, then the table, whose kinks would be lost inside a step."""
    assert times_of(RAMP) == [0.2, *KNOTS.tolist()]
    area = 0.5 * (0.6 * 6.0 + 1.2 * 4.0) - 2.0 * 0.7
    np.testing.assert_allclose(moved(RAMP, accuracy="high")["O.angle_rate"][-1], area / 2, atol=HIGH)


@pytest.mark.slow
def test_the_times_of_a_table_that_is_a_piece_have_derivatives() -> None:
    def rate(knots: Array) -> Array:
        other = eqx.tree_at(lambda m: m["motor"].force.pieces[1].times, RAMP, knots)
        return moved(other, accuracy="high")["O.angle_rate"][-1]

    np.testing.assert_allclose(jax.grad(rate)(KNOTS), [-1.5, 0.5, 2.0], atol=HIGH)


@pytest.mark.slow
def test_the_kink_of_a_moving_marker_is_a_jump_of_a_dampers_force() -> None:
    """`ẍ = c (ẏ − ẋ)` with `ẏ` from 0 to 1 at `t_s`: `ẋ = 1 − e^(−c (t − t_s))`."""
    body = pl.Body("b", 1.0, 1.0)
    rail = pl.Prismatic("rail", pl.ground.at(), body.at())

    def place(switch: Array) -> Array:
        road = mbd.Table(jnp.stack([switch, switch + 10.0]), [[0.0, 0.0], [10.0, 0.0]])
        damper = pl.SpringDamper("damper", pl.ground.moving(road), body.at(3.0), 0.0, damping=2.0)
        mechanism = pl.Mechanism([body], [rail], [damper], coordinates="joint")
        start = mbd.assemble(mechanism, {"rail.displacement": 0.0})
        return mbd.simulate(mechanism, start, [0.0, 1.0], accuracy="high")["rail.displacement"][-1]

    value, slope = jax.value_and_grad(place)(jnp.array(0.3))
    since = 1.0 - 0.3
    np.testing.assert_allclose(value, since - (1 - np.exp(-2 * since)) / 2, atol=HIGH)
    np.testing.assert_allclose(slope, -(1 - np.exp(-2 * since)), atol=HIGH)
