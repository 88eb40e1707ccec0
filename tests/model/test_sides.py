"""Laws of users that hold on which side of a kink or a jump they are."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.extend import AbstractJointForce, AbstractOwnStates, AbstractSided, OwnState, Scalar, as_float


class Relay(AbstractJointForce, AbstractOwnStates, AbstractSided):
    """A force of constant size against `x + T ẋ`."""

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    size: Scalar = eqx.field(converter=as_float)
    lead: Scalar = eqx.field(converter=as_float)
    sides: Float[Array, "1"] = eqx.field(converter=as_float, default_factory=lambda: np.zeros(1))

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        return (OwnState("sides", "1", held=True),)

    @property
    def guard_units(self) -> tuple[str, ...]:
        return ("",)

    def heights(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, "1"]:
        return (coordinate + self.lead * rate)[None]

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        return jnp.where(self.is_above(t, coordinate, rate)[0], -self.size, self.size)

    def potential(self, coordinate: Scalar) -> Scalar:
        return jnp.zeros(())

    def own_rates(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, "1"]:
        return jnp.zeros(1)

    def steady(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, "1"]:
        return jnp.zeros(1)


def relayed(size: object = 5.0, lead: object = 0.0, throw: bool = True) -> mbd.Solution:
    cart = pl.Body("cart", 2.0, 1.0)
    rail = pl.Prismatic("rail", pl.ground.at(), cart.at())
    mechanism = pl.Mechanism([cart], [rail], [Relay("relay", "rail.displacement", size, lead)], coordinates="joint")
    start = mbd.assemble(mechanism, {"rail.displacement": 0.3})
    return mbd.simulate(mechanism, start, np.linspace(0.0, 5.0, 51), throw=throw)


def swinging(ts: np.ndarray, size: float) -> np.ndarray:
    """Parabolas from 0.3 to -0.3 and back."""
    a = size / 2.0
    quarter = np.sqrt(2 * 0.3 / a)
    k, s = np.divmod(ts + quarter, 2 * quarter)
    return np.where(k % 2 == 0, 1, -1) * (0.3 - a / 2 * (s - quarter) ** 2)


@pytest.mark.slow
def test_a_law_that_jumps_keeps_the_order_of_steps() -> None:
    solution = relayed()
    assert solution.events is None
    np.testing.assert_allclose(solution["rail.displacement"], swinging(np.asarray(solution.ts), 5.0), atol=1e-10)
    at = np.array([5.0])
    change = (swinging(at, 5.0 + 1e-5) - swinging(at, 5.0 - 1e-5))[0] / 2e-5
    for mode in (jax.jacfwd, jax.jacrev):
        found = mode(lambda x: relayed(x)["rail.displacement"][-1])(jnp.asarray(5.0))
        np.testing.assert_allclose(found, change, rtol=1e-7)


def test_a_law_that_drives_a_motion_back_from_either_side_is_named() -> None:
    """It would slide on the edge, which is none of its sides."""
    with pytest.raises(mbd.SolveError, match="'relay' changes sides without end"):
        relayed(lead=0.5)
    assert relayed(lead=0.5, throw=False).result == mbd.RESULTS.max_events_reached


@pytest.mark.slow
def test_each_of_several_motions_says_for_itself_that_it_fails() -> None:
    def one(lead: Array) -> tuple[Array, Array]:
        solution = relayed(lead=lead, throw=False)
        return solution["rail.displacement"], solution.result == mbd.RESULTS.max_events_reached

    places, fails = jax.vmap(one)(jnp.array([0.0, 0.5, 0.0]))
    np.testing.assert_array_equal(fails, [False, True, False])
    np.testing.assert_allclose(places[::2], [swinging(np.linspace(0.0, 5.0, 51), 5.0)] * 2, atol=1e-10)
    assert np.isnan(np.asarray(places[1])).any()
