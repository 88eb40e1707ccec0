"""A hidden force is found, with what else is unknown, by an angle alone and with a reaction."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import identification as ident
from tests.identification import hybrids


def trained(reaction: bool) -> mbd.Fit:
    """By multiple shooting from a line of 100 N/m, then by whole records from there."""
    ts = np.linspace(0.0, 0.8, 161)
    starts = ((0.2, 0.0), (2.9, 0.0), (1.3, -8.0), (1.3, 10.0))
    experiments = [hybrids.record(*start, ts, k, reaction) for k, start in enumerate(starts)]
    free = hybrids.free(hybrids.untrained(12))
    cut = ident.Problem(hybrids.slider_crank, experiments, free, segments=8, continuity=0.1)
    begun = mbd.fit(cut, steps=80, tolerance=0.05, progress=False)
    whole = ident.Problem(hybrids.slider_crank, experiments, free).starting_at(begun.parameters)
    # The angle alone leaves a longer tail of steps that change the law by less than the noise.
    return mbd.fit(whole, steps=150, tolerance=5e-3 if reaction else 0.02, progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("reaction", [False, True], ids=["angle", "angle and reaction"])
def test_a_hidden_spring_is_found_with_payload_and_friction(reaction: bool) -> None:
    result = trained(reaction)
    places = ident.visited(result, "rail.displacement")["rail.displacement"]
    xs = jnp.linspace(places.min(), places.max(), 200)
    assert places.max() - places.min() > 0.18
    force = lambda m: jax.vmap(lambda x: m["spring"].force(0.0, x, 0.0))(xs)  # noqa: E731
    found, true = np.asarray(force(result.mechanism)), np.asarray(hybrids.hidden_force(xs))
    largest = np.abs(true).max()
    assert np.abs(found - true).max() < 0.02 * largest
    band = 2 * ident.standard_errors_of(result, force)
    assert np.mean(np.abs(found - true) <= band) > 0.8
    assert np.median(band) < 0.02 * largest
    interval = result.interval(0.95)
    for name, value in (("payload", hybrids.PAYLOAD), ("friction", hybrids.FRICTION)):
        lower, upper = interval[name]
        assert lower < value < upper
        assert upper - lower < 0.15 * value
    unseen = hybrids.record(0.6, 5.0, np.linspace(0.0, 1.6, 161), 9, reaction, estimate=False)
    prediction = ident.predict(result, unseen, progress=False)
    inside = ident.visited(prediction, "rail.displacement")["rail.displacement"]
    assert places.min() <= inside.min()
    assert inside.max() <= places.max()
    errors = prediction.rms()[0]
    assert errors["O.angle"] < 3 * hybrids.ANGLE_NOISE
    if reaction:
        assert errors["B.fx"] < 1.2 * hybrids.REACTION_NOISE
