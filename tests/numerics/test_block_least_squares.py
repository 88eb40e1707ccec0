"""The linear algebra of a step, and the search: against dense matrices, and on functions with known minima."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from jaxmbd.numerics import stepwise_search as levenberg_marquardt
from jaxmbd.numerics.block_least_squares import Block, Linearised, Step
from jaxmbd.numerics.stepwise_search import SearchState, search

P, S = 3, 2  # shared unknowns, and own ones of each segment


def linearised(stacks: tuple[tuple[int, int], ...], seed: int = 0) -> tuple[Linearised, np.ndarray, np.ndarray]:
    """Random rows for stacks of `(experiments, segments)`, and the same as one dense matrix and vector."""
    draws = np.random.default_rng(seed)
    n = P + S * sum(count * segments for count, segments in stacks)
    matrix, right, blocks, at = [], [], [], P
    for count, segments in stacks:
        lanes = count * segments
        rows = draws.normal(size=(lanes, 9, S + P + 1))
        own_priors = np.zeros((lanes, 2 if segments == 1 else 0, S + P + 1))
        own_priors[..., :S], own_priors[..., -1] = draws.normal(size=S), draws.normal()
        links = draws.normal(size=(lanes, S, 2 * S + P + 1))
        links[segments - 1 :: segments] = 0.0
        for k in range(lanes):
            for part in (rows[k], own_priors[k]):
                dense = np.zeros((len(part), n))
                dense[:, :P], dense[:, at + S * k : at + S * (k + 1)] = part[:, S:-1], part[:, :S]
                matrix.append(dense)
                right.append(part[:, -1])
            if segments > 1 and links[k].any():
                dense = np.zeros((S, n))
                dense[:, :P] = links[k, :, 2 * S : -1]
                dense[:, at + S * k : at + S * (k + 2)] = links[k, :, : 2 * S]
                matrix.append(dense)
                right.append(links[k, :, -1])
        at += S * lanes
        if segments == 1:
            blocks.append(Block(rows, own_priors, None, 1, S))
        else:
            wide = np.concatenate([rows[..., :S], np.zeros((lanes, 9, S)), rows[..., S:]], axis=2)
            blocks.append(Block(wide, np.zeros((lanes, 0, wide.shape[2])), links, segments, S))
    priors = draws.normal(size=(2, P + 1))
    dense = np.zeros((2, n))
    dense[:, :P] = priors[:, :-1]
    whole = Linearised(tuple(blocks), priors)
    return whole, np.concatenate([*matrix, dense]), np.concatenate([*right, priors[:, -1]])


def shaped(flat: np.ndarray, stacks: tuple[tuple[int, int], ...]) -> Step:
    own, at = [], P
    for count, segments in stacks:
        size = S * count * segments
        own.append(flat[at : at + size].reshape(-1, S))
        at += size
    return Step(flat[:P], tuple(own))


@pytest.mark.parametrize("stacks", [((4, 1),), ((1, 5),), ((3, 4),), ((2, 1), (2, 3))])
def test_blocks_give_the_step_of_the_dense_problem(stacks: tuple[tuple[int, int], ...]) -> None:
    at, J, r = linearised(stacks)
    n = J.shape[1]
    draws = np.random.default_rng(1)
    assert at.loss == pytest.approx(0.5 * r @ r, rel=1e-12)
    np.testing.assert_allclose(at.gradient().flat(), J.T @ r, rtol=1e-10, atol=1e-12)
    scale, damping = draws.uniform(0.5, 2.0, size=n), 0.3
    for fixed in (np.zeros(n, bool), draws.uniform(size=n) < 0.3):
        damped = np.concatenate([J * ~fixed, np.diag(np.where(fixed, 1.0, np.sqrt(damping) * scale))])
        expected = np.linalg.lstsq(damped, -np.concatenate([r, np.zeros(n)]), rcond=None)[0]
        step = at.solved(damping, shaped(scale, stacks), shaped(fixed, stacks))
        np.testing.assert_allclose(step.flat(), expected, atol=1e-10)
        assert not step.flat()[fixed].any()
        loss = 0.5 * np.sum((J @ expected + r) ** 2)
        assert at.predicted(step) == pytest.approx(loss, rel=1e-10)


@pytest.mark.parametrize("stacks", [((4, 1),), ((2, 1), (2, 3))])
def test_two_jacobians_give_second_derivatives(stacks: tuple[tuple[int, int], ...]) -> None:
    """Of quadratic residuals, whose Jacobian changes by `H x` along a step `x`."""
    at, J, _ = linearised(stacks)
    before, J_before, _ = linearised(stacks, seed=1)
    x, n = np.random.default_rng(2).normal(size=J.shape[1]), J.shape[1]
    second, ones = (J - J_before) @ x, np.ones(n)
    expected = np.linalg.lstsq(np.concatenate([J, np.eye(n)]), -np.concatenate([second, 0 * x]), rcond=None)[0]
    bent = at.bent(before, shaped(x, stacks))
    assert bent.loss == pytest.approx(0.5 * second @ second)
    np.testing.assert_allclose(
        bent.solved(1.0, shaped(ones, stacks), shaped(ones < 0, stacks)).flat(), expected, atol=1e-9
    )


def test_segments_that_join_are_functions_of_the_first_ones() -> None:
    """With a standard deviation of its own for each number of a state: the loss after a step, where every segment ends
    at the start of the next one."""
    (block,), priors = (at := linearised(((2, 4),))[0]).stacks, at.priors
    assert block.links is not None
    draws, links, deviations = np.random.default_rng(1), block.links.copy(), np.array([0.1, 4.0])
    links[..., S : 2 * S], links[..., -1] = np.diag(-1 / deviations), 0.0
    links[3::4] = 0.0
    at = Linearised((dataclasses.replace(block, links=links),), priors)
    shared, chains = draws.normal(size=P), []
    for k in (0, 4):
        own = [draws.normal(size=S)]
        for j in range(3):
            link = links[k + j]
            own.append(deviations * (link[:, :S] @ own[-1] + link[:, 2 * S : -1] @ shared))
        chains.append(own)
    whole, first = np.concatenate(chains), np.stack([own[0] for own in chains])
    expected = at.predicted(Step(shared, (whole,)))
    assert at.condensed().predicted(Step(shared, (first,))) == pytest.approx(expected, rel=1e-10)


def test_scale_leaves_conditions_between_segments_out() -> None:
    at, J, _ = linearised(((2, 3),))
    np.testing.assert_allclose(at.norms().flat(), np.linalg.norm(J[_measured_rows(2, 3)], axis=0), rtol=1e-10)


def _measured_rows(count: int, segments: int) -> np.ndarray:
    """True for the rows of measurements and priors in the dense matrix."""
    one = np.concatenate([*([np.repeat([True, False], [9, S])] * (segments - 1)), np.repeat(True, 9)])
    return np.concatenate([*([one] * count), np.repeat(True, 2)])


# --- the search -----------------------------------------------------------------------------------------


def rosenbrock(x: np.ndarray) -> Linearised:
    """Residuals `10 (x₂ − x₁²)` and `1 − x₁`, as rows of shared unknowns."""
    rows = np.array([[-20 * x[0], 10.0, 10 * (x[1] - x[0] ** 2)], [-1.0, 0.0, 1 - x[0]]])
    return Linearised((), rows)


def run(
    start: list[float], lower: float = -np.inf, upper: float = np.inf,
    of: Callable[[np.ndarray], Linearised | None] = rosenbrock, tolerance: float = 1e-8,
) -> tuple[SearchState, str]:  # fmt: skip
    state, n = SearchState(np.array(start)), len(start)
    generator = search(state, np.full(n, lower), np.full(n, upper), Step(np.zeros(n), ()), 2, 200, tolerance)
    asked = next(generator)
    try:
        while True:
            assert (asked >= lower).all()
            assert (asked <= upper).all()
            asked = generator.send(of(asked))
    except StopIteration as stop:
        return state, stop.value.outcome


@pytest.mark.parametrize("large", [1e160, np.inf, np.nan])
def test_rows_too_large_for_their_squares_are_not_finite(large: float) -> None:
    """Such are the derivatives at the end of a long chaotic motion."""
    rows = np.ones((1, 4, S + P + 1))
    priors = np.ones((2, P + 1))
    assert Linearised((Block(rows, rows[:, :0], None, 1, S),), priors).is_finite
    rows[0, 1, 2] = large
    assert not Linearised((Block(rows, rows[:, :0], None, 1, S),), priors).is_finite


def test_search_finds_the_end_of_a_curved_valley() -> None:
    state, outcome = run([-1.2, 1.0])
    assert outcome == "converged"
    np.testing.assert_allclose(state.u, [1.0, 1.0], atol=1e-7)
    assert len(state.history) < 60


def valley(x: np.ndarray) -> Linearised:
    """Two products that are known much better than the first factor."""
    rows = [
        [1e4 * x[1], 1e4 * x[0], 0.0, 1e4 * (x[0] * x[1] - 1)],
        [1e4 * x[2], 0.0, 1e4 * x[0], 1e4 * (x[0] * x[2] - 2)],
        [0.3, 0.0, 0.0, 0.3 * (x[0] - 3)],
    ]
    return Linearised((), np.array(rows))


@pytest.mark.parametrize(("cosine", "outcome"), [(levenberg_marquardt._SAME_WAY, "converged"), (2.0, "steps used up")])
def test_steps_bend_along_a_narrow_valley(cosine: float, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Straight ones need more than twice as many."""
    monkeypatch.setattr(levenberg_marquardt, "_SAME_WAY", cosine)
    state, found = run([1.0, 1.0, 1.0], of=valley)
    assert found == outcome
    if outcome == "converged":
        np.testing.assert_allclose(state.u, [3.0, 1 / 3, 2 / 3], rtol=1e-3)
        assert len(state.history) < 100


def test_search_stops_at_bounds() -> None:
    """With x ≤ 0.5 the minimum is x₁ = 1/2, x₂ = 1/4; with x ≥ 1.5 it is where x₂ = x₁² still, at x₁ = 1.5."""
    state, outcome = run([-1.2, 0.3], upper=0.5)
    assert outcome == "converged"
    np.testing.assert_allclose(state.u, [0.5, 0.25], atol=3e-4)  # less than the noise can tell
    state, outcome = run([3.0, 3.0], lower=1.5)
    assert outcome == "converged"
    np.testing.assert_allclose(state.u, [1.5, 2.25], atol=3e-4)


def test_search_survives_trials_that_cannot_be_computed() -> None:
    """Steps longer than 0.3 lead to numbers for which there is no mechanism, or no finite motion."""
    state = SearchState(np.array([-1.2, 1.0]))
    generator = search(state, np.full(2, -np.inf), np.full(2, np.inf), Step(np.zeros(2), ()), 2, 300, 1e-8)
    asked, refused, outcome = next(generator), 0, ""
    while not outcome:
        beyond = np.linalg.norm(asked - state.u) > 0.3
        refused += beyond
        at = rosenbrock(asked)
        impossible = None if refused % 2 else dataclasses.replace(at, priors=at.priors * np.nan)
        try:
            asked = generator.send(impossible if beyond else at)
        except StopIteration as stop:
            outcome = stop.value.outcome
    assert outcome == "converged"
    assert refused > 0
    np.testing.assert_allclose(state.u, [1.0, 1.0], atol=1e-6)


def test_search_says_that_its_start_cannot_be_computed() -> None:
    generator = search(SearchState(np.zeros(2)), np.full(2, -1.0), np.full(2, 1.0), Step(np.zeros(2), ()), 2, 9, 1e-8)
    next(generator)
    with pytest.raises(StopIteration) as stop:
        generator.send(None)
    assert stop.value.value.outcome == "the start cannot be simulated"


def test_search_keeps_unknowns_whose_sensitivity_is_rounding() -> None:
    """A third column that is rounding, by which a huge change would fit the residuals."""

    def at(x: np.ndarray) -> Linearised:
        rows = rosenbrock(x).priors
        return Linearised((), np.concatenate([rows[:, :2], [[1e-15], [-2e-15]], rows[:, 2:]], axis=1))

    state, outcome = run([-1.2, 1.0, 0.5], of=at)
    assert outcome == "converged"
    np.testing.assert_allclose(state.u, [1.0, 1.0, 0.5], atol=1e-7)


@pytest.mark.parametrize("tolerance", [1e-8, 1e-3])
def test_search_has_not_converged_where_no_step_reduces_the_loss(tolerance: float) -> None:
    """A residual falls to 2 at `x = 1`, where it jumps to 4; rounding alone is no jump. Short steps on the way reduce
    the loss by less than the coarse tolerance."""

    def jumping(x: np.ndarray) -> Linearised:
        return Linearised((), np.array([[-1.0, 4.0 if x[0] > 1.0 else 3.0 - x[0]]]))

    def rounded(x: np.ndarray) -> Linearised:
        return Linearised((), np.array([[1.0, x[0] - 1.0 + 1e-12 * np.cos(1e9 * x[0])], [0.0, 1e-12]]))

    state, outcome = run([0.0], of=jumping, tolerance=tolerance)
    assert outcome == "no step, however short, reduces the loss"
    np.testing.assert_allclose(state.u, 1.0, atol=1e-9)
    state, outcome = run([0.0], of=rounded, tolerance=tolerance)
    assert outcome == "converged"
    np.testing.assert_allclose(state.u, 1.0, atol=1e-11)


def test_what_rounding_promises_along_a_direction_without_effect_is_nothing() -> None:
    """Two unknowns with the same effect, but for rounding; away from the start a motion has other steps, by whose
    rounding all residuals are larger."""

    def at(x: np.ndarray) -> Linearised:
        size = 1.0 if (x == 0).all() else 1.0 + 1e-7
        return Linearised((), np.array([[1.0, 1.0 + 5e-9, 0.0], [0.0, 1e-8, size], [1.0, 1.0, 0.0]]))

    state, outcome = run([0.0, 0.0], of=at)
    assert outcome == "converged"
    np.testing.assert_array_equal(state.u, 0.0)


def test_search_has_not_converged_where_no_step_can_be_computed() -> None:
    start = [-1.2, 1.0]
    state, outcome = run(start, of=lambda x: rosenbrock(x) if (x == start).all() else None)
    assert outcome == "no step, however short, can be simulated"
    np.testing.assert_array_equal(state.u, start)
