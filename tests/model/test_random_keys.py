"""Keys of random numbers as parameters of forces, new ones and old ones: a force is what its key draws."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.equations.equations import Equations

TS = np.linspace(0.0, 0.5, 3)
KEYS = (jax.random.key(3), jax.random.PRNGKey(3), jax.random.key(3, impl="rbg"))
START = {"O.angle": 0.3}


class Gust(pl.AbstractForce):
    """A constant force along x that is drawn once, in units of its strength; for both spaces."""

    name: str = eqx.field(static=True)
    at: Any
    key: Any
    strength: Any

    @property
    def markers(self) -> tuple[Any, ...]:
        return (self.at,)

    def wrenches(self, t: Array, frames: Sequence[Any], rates: Sequence[Any]) -> Array:
        draw = 0.0 if self.key is None else jax.random.normal(self.key)
        force = self.strength if self.key is None else self.strength * draw
        return jnp.zeros((1, len(self.at.space.efforts))).at[0, 0].set(force)

    def potential(self, t: Array, frames: Sequence[Any]) -> Array:
        return jnp.zeros(())


def motor(t: Array, angle: Array, rate: Array, parameters: Any) -> Array:
    """A torque that is drawn anew in each tenth of a second."""
    return 0.2 * jax.random.uniform(jax.random.fold_in(parameters, jnp.floor(10 * t).astype(int)))


def swing(space: Any, coordinates: str, *gusts: tuple[Any, Any]) -> Any:
    """A bar on a pin at its upper end, with gusts at its lower end: each with a key and a strength."""
    below = (0.0, -0.5) if space is pl else (0.0, 0.0, -0.5)
    above = tuple(-x for x in below)
    bar = space.Body("bar", 1.0, 0.1 if space is pl else (0.1, 0.1, 0.1), pose=(*below, 0.0) if space is pl else below)
    axis = {} if space is pl else {"axis": "y"}
    pin = space.Revolute("O", space.ground.at(**axis), bar.at(*above, **axis))
    gravity = space.Gravity(9.81) if space is pl else space.Gravity((0.0, 0.0, -9.81))
    forces = [gravity, *(Gust(f"gust {k}", bar.at(*below), *gust) for k, gust in enumerate(gusts))]
    return space.Mechanism([bar], [pin], forces, coordinates=coordinates)


def end(mechanism: Any) -> Array:
    return mbd.simulate(mechanism, mbd.assemble(mechanism, START), TS)["O.angle"][-1]


def drawn(key: Any, strength: Any = 1.0) -> Any:
    return strength * jax.random.normal(key)


@pytest.mark.parametrize("coordinates", ["joint", "absolute"])
@pytest.mark.parametrize("space", [pl, pytest.param(sp, marks=pytest.mark.slow)])
def test_a_force_is_what_its_key_draws(space: Any, coordinates: str) -> None:
    """Two forces of a class, with keys of their own, are stacked."""
    key, other = jax.random.split(KEYS[0])
    found = end(swing(space, coordinates, (key, 1.0), (other, 0.5)))
    expected = end(swing(space, coordinates, (None, drawn(key)), (None, drawn(other, 0.5))))
    assert found == pytest.approx(float(expected), abs=1e-12)
    assert abs(float(end(swing(space, coordinates, (other, 1.0), (key, 0.5)))) - float(found)) > 1e-3


@pytest.mark.parametrize("key", KEYS[1:])
def test_keys_of_other_kinds(key: Any) -> None:
    assert end(swing(pl, "joint", (key, 1.0))) == pytest.approx(float(end(swing(pl, "joint", (None, drawn(key))))))


def of_force(x: Any) -> Array:
    return end(swing(pl, "joint", (None, x)))


def test_a_batch_of_keys() -> None:
    keys = jax.random.split(KEYS[0], 3)
    batch = jax.jit(jax.vmap(lambda key: end(swing(pl, "joint", (key, 1.0)))))(keys)
    np.testing.assert_allclose(batch, [of_force(drawn(key)) for key in keys], atol=1e-12)


@pytest.mark.slow
def test_derivatives_of_a_mechanism_with_a_key() -> None:
    """In both modes, by a number beside the key, and by all numbers of the mechanism."""
    draw = drawn(KEYS[0])
    slope = draw * jax.grad(of_force)(draw)
    of_strength = lambda x: end(swing(pl, "joint", (KEYS[0], x)))  # noqa: E731
    np.testing.assert_allclose(jax.grad(of_strength)(1.0), slope, rtol=1e-9)
    np.testing.assert_allclose(jax.jacfwd(of_strength)(1.0), slope, rtol=1e-9)
    gradient = eqx.filter_grad(end)(swing(pl, "joint", (KEYS[0], jnp.asarray(1.0))))
    np.testing.assert_allclose(gradient["gust 0"].strength, slope, rtol=1e-9)
    assert gradient["gust 0"].key is None


def test_equations_with_a_key_outside_of_jit() -> None:
    mechanism = swing(pl, "absolute", (KEYS[0], 2.0))
    equations, q = Equations(mechanism), mbd.assemble(mechanism, START).q
    expected = Equations(swing(pl, "absolute", (None, drawn(KEYS[0], 2.0))))
    args = (jnp.asarray(0.0), q, jnp.zeros(3))
    np.testing.assert_allclose(equations.force(*args), expected.force(*args), rtol=1e-14)


@pytest.mark.slow
def test_draws_that_change_in_time() -> None:
    """The effort is read from the motion; new keys and old ones draw alike."""
    bar = swing(pl, "joint")
    found = []
    for key in KEYS[:2]:
        mechanism = bar.with_parts([pl.JointForce("motor", "O.angle", motor, key)])
        motion = mbd.simulate(mechanism, mbd.assemble(mechanism, START), TS)
        np.testing.assert_allclose(motion["motor.effort"], [motor(t, t, t, key) for t in jnp.asarray(TS)], rtol=1e-12)
        found.append(motion["O.angle"])
    np.testing.assert_array_equal(*found)


def test_a_model_file_names_what_it_cannot_hold(tmp_path: Any) -> None:
    mechanism = swing(pl, "joint").with_parts([pl.JointForce("motor", "O.angle", motor, KEYS[0])])
    with pytest.raises(mbd.MechanismError, match=r"JointForce 'motor': parameters has the type key<fry>; a model file"):
        mbd.save(mechanism, tmp_path / "a.toml")
