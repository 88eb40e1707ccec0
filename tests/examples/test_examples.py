"""The example mechanisms by name: complete, and those that no other test runs, against what is known of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import examples
from jaxmbd.model.mechanism.quantities import channel_units


def test_every_example_is_complete() -> None:
    assert {"pendulum", "four-bars", "andrews", "car-axis", "hanging-chain", "bricard", "governor"} < set(
        examples.names()
    )
    for name, entry in examples.entries().items():
        made = examples.get(name)
        assert (made.name, made.description, made.source) == (name, entry.description, entry.source)
        assert made.description.endswith("."), name
        assert made.duration > 0, name
        known = channel_units(made.mechanism)
        assert made.outputs, name
        assert set(made.outputs) <= set(known), name
        for place in made.inputs:
            assert place in known, (name, place)


def test_examples_are_found_by_name_and_take_arguments() -> None:
    assert examples.get("slider_crank").name == "slider-crank"
    assert len(examples.get("four-bars", 3).mechanism.bodies) == 7
    assert len(examples.get("hanging-chain", n=4).mechanism.bodies) == 4
    with pytest.raises(mbd.MechanismError, match=r"no example named 'four-barz'\. Did you mean 'four-bars'\?"):
        examples.get("four-barz")
    with pytest.raises(mbd.MechanismError, match="no version of Andrews' mechanism named 'iftomm'"):
        examples.andrews("iftomm")


def test_gradients_reach_the_start_and_the_numbers_of_an_example() -> None:
    """Of a spring's tension at the start: by its stiffness the stretch, by the body's height the stiffness."""
    example = examples.car_axis()

    def tension(stiffness: jax.Array, height: jax.Array) -> jax.Array:
        some = eqx.tree_at(
            lambda e: (e.mechanism["left spring"].stiffness, e.fixed["body.y"]), example, (stiffness, height)
        )
        state = some.state(check=False)
        left = mbd.Equations(some.mechanism).at(state.t, state.q).near([some.mechanism["left"].at])
        force = some.mechanism["left spring"]
        return force.tension(state.t, jnp.linalg.norm(left.frames[0].position), jnp.zeros(()))

    value, slopes = jax.jit(jax.value_and_grad(tension, (0, 1)))(jnp.asarray(3.0), jnp.asarray(0.6))
    np.testing.assert_allclose([value, *slopes], [0.3, 0.1, 3.0], atol=1e-9)


def test_the_hanging_chain_starts_closed_and_symmetric() -> None:
    example = examples.hanging_chain(4)
    state = example.state()
    angles = [float(state[f"link{k}.theta"]) for k in range(1, 5)]
    np.testing.assert_allclose(angles, -np.array(angles[::-1]), atol=1e-9)
    assert float(np.sum(np.cos(angles))) * 1.5 / 4 == pytest.approx(1.0, abs=1e-9)


@pytest.mark.slow
def test_the_five_bar_moves_its_pen_as_both_motors_say() -> None:
    """Where the circles about the ends of crank and rocker meet."""
    solution = examples.five_bar().simulate(np.linspace(0.0, 0.1, 5))
    t = np.asarray(solution.ts)
    crank, rocker = 1.0 + 4 * np.pi * t, 1.9 + 0.2 * np.sin(12 * np.pi * t)
    a = 0.1 * np.stack([np.cos(crank), np.sin(crank)], axis=1)
    b = np.array([0.35, 0.0]) + 0.2 * np.stack([np.cos(rocker), np.sin(rocker)], axis=1)
    gap = np.linalg.norm(b - a, axis=1, keepdims=True)
    across = np.stack([-(b - a)[:, 1], (b - a)[:, 0]], axis=1) / gap
    pen = (a + b) / 2 + across * np.sqrt(0.25**2 - gap**2 / 4)
    np.testing.assert_allclose(solution["pen"], pen, atol=1e-8)


@pytest.mark.slow
def test_the_disc_rolls_in_its_circle() -> None:
    example = examples.rolling_disc()
    solution = example.simulate(np.linspace(0.0, example.duration / 2, 5))
    circle = -float(example.mechanism["disc"].pose[1])
    np.testing.assert_allclose(solution["disc.z"], 0.2 * np.sin(np.radians(65.0)), atol=1e-7)
    np.testing.assert_allclose(np.hypot(solution["disc.x"], solution["disc.y"]), circle, atol=1e-6)
    np.testing.assert_allclose(solution["disc.y"][-1], circle, atol=1e-6)


@pytest.mark.slow
def test_the_stewart_platform_starts_where_its_path_does() -> None:
    state = examples.stewart_platform().state()
    place, turned = examples.platform_path(jnp.asarray(0.0))
    np.testing.assert_allclose(state.q[:3], place, atol=1e-9)
    np.testing.assert_allclose(np.abs(np.dot(state.q[3:7], turned)), 1.0, atol=1e-12)


@pytest.mark.slow
def test_the_suspension_comes_to_rest_on_its_tyre() -> None:
    """The tyre carries the weight of all five bodies: 290 kg."""
    solution = examples.suspension().simulate([0.0, 3.0])
    read = {name: float(value[-1]) for name, value in solution.read(["wheel.y", "tyre.length", "tyre.tension"]).items()}
    lifted = -read["tyre.tension"] * (read["wheel.y"] + 0.15) / read["tyre.length"]
    assert lifted == pytest.approx(290 * 9.81, rel=2e-3)
