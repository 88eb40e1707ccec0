"""Numbers of a regressor that bodies can have, nearest to measured efforts: a convex problem, by Newton's method.

A body has the inertial numbers `θ_b` if its pseudo-inertia matrix `P(θ_b)`, which is linear in them, is positive
definite. With `P₀` of the modelled body, the estimate minimises

    ½ |Y θ − τ|² + w Σ_b [tr(P P₀⁻¹) − log det(P P₀⁻¹)] + w Σ_i [θ_i / θ₀_i − log(θ_i / θ₀_i)]

where the last sum is over numbers that cannot be negative. The logarithms keep it within what is possible, and the
divergence is that of Lee, Wensing and Park, which depends neither on units nor on the choice of the frame.

Sources: Wensing, Kim, Slotine, *Linear matrix inequalities for physically consistent inertial parameter
identification*, IEEE Robotics and Automation Letters 3 (2018); Lee, Wensing, Park, *Geometric robot dynamic
identification*, IEEE Trans. Robotics 36 (2020); Boyd, Vandenberghe, *Convex Optimization* (2004), §9.5.
"""

import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Float

from jaxmbd.errors import MechanismError, SolveError
from jaxmbd.identification._regressor import Regressor
from jaxmbd.parameters.inertial_numbers import inertial_names
from jaxmbd.parameters.numbers import Number, Path, check_part, replaced

_STEPS = 200  # of Newton's method: some twenty suffice
_DECREMENT = 1e-12  # reduction that is still to be expected, as a share of the cost, at which it has converged
_ROUNDING = 1e-8  # the same, where no step is short enough to show it
_ARMIJO, _LEAST_SHARE = 1e-4, 1e-12  # of a step
_THIN = 1e-9  # share of the largest eigenvalue of P₀ below which the body counts as without extension
Array = np.ndarray


def nearest_possible(regressor: Regressor, Y: Array, tau: Array, weight: float) -> Float[Array, " numbers"]:
    """The minimiser; `Y` and `tau` in noise levels.

    **Raises:** `MechanismError` for a body without extension, and for a number of a part that is zero where it must be
    positive.
    """
    theta = np.asarray(regressor.values, dtype=float)
    cones = [*_bodies(regressor), *_positive(regressor)]
    R = np.asarray(np.linalg.qr(np.column_stack([Y, tau]), mode="r"))
    A, b = R[:, :-1], R[:, -1]

    def cost(theta: Array) -> float:
        total = 0.5 * float(np.sum((A @ theta - b) ** 2))
        for places, basis, known in cones:
            P = np.tensordot(theta[places], basis, 1)
            sign, volume = np.linalg.slogdet(P)
            if sign <= 0 or np.linalg.eigvalsh(P)[0] <= 0:
                return np.inf
            total += weight * (float(np.sum(P * known)) - float(volume))
        return total

    here = cost(theta)
    for _ in range(_STEPS):
        rows, rests = [A], [A @ theta - b]
        for places, basis, known in cones:
            L = np.linalg.cholesky(np.tensordot(theta[places], basis, 1))
            inverse = np.linalg.inv(L)
            own = np.zeros((L.size, len(theta)))
            own[:, places] = (inverse @ basis @ inverse.T).reshape(len(places), -1).T
            rows.append(np.sqrt(weight) * own)
            rests.append(np.sqrt(weight) * (L.T @ known @ L - np.eye(len(L))).ravel())
        step, slope = _newton_step(np.concatenate(rows), np.concatenate(rests))
        if -slope <= _DECREMENT * max(1.0, abs(here)):
            return theta
        share = 1.0
        while not (there := cost(theta + share * step)) <= here + _ARMIJO * share * slope:
            share /= 2
            if share < _LEAST_SHARE:
                if -slope <= _ROUNDING * max(1.0, abs(here)):
                    return theta
                raise SolveError("fit_efforts: no step of the search for possible numbers, however short, is one.")
        theta, here = theta + share * step, there
    raise SolveError("fit_efforts: the search for possible numbers has not ended.")


def _newton_step(J: Float[Array, "rows n"], r: Float[Array, " rows"]) -> tuple[Float[Array, " n"], float]:
    """The step `−(JᵀJ)⁻¹ Jᵀ r`, and the slope of the cost along it, without the product `JᵀJ`: where the weight is
    small, that has lost what it says of the combinations that the efforts do not tell."""
    sizes = np.linalg.norm(J, axis=0)
    Q, R = np.linalg.qr(J / sizes)
    along = Q.T @ r
    return -scipy.linalg.solve_triangular(R, along) / sizes, -float(along @ along)


def _bodies(regressor: Regressor) -> list[tuple[Array, Array, Array]]:
    """For each body the places of its numbers, the matrices whose sum with these is `P`, and `P₀⁻¹`."""
    count = len(inertial_names(regressor.mechanism))
    basis = _basis(count)
    found = []
    for k, name in enumerate(regressor.bodies):
        places = np.arange(k * count, (k + 1) * count)
        P = np.tensordot(np.asarray(regressor.values)[places], basis, 1)
        values = np.linalg.eigvalsh(P / np.sqrt(np.outer(np.diag(P), np.diag(P)))) if np.all(np.diag(P) > 0) else [0.0]
        if not values[0] > _THIN:
            raise MechanismError(
                f"fit_efforts: {name!r} has no extension in some direction, so that any small change of its inertia "
                "may be impossible: give it some thickness, or leave it out of the regressor, bodies=[...]."
            )
        found.append((places, basis, np.linalg.inv(P)))
    return found


def _basis(count: int) -> Float[Array, "numbers rows rows"]:
    """The matrices `P` of unit numbers: in space `[[Σ, h], [hᵀ, m]]` with `Σ = ½ tr(J) 1 − J`; in the plane, where one
    moment alone is known, `[[J, hᵀ], [h, m 1]]`, which is positive definite if `m J > |h|²`."""
    if count == 4:
        basis = np.zeros((4, 3, 3))
        basis[0, [1, 2], [1, 2]] = basis[3, 0, 0] = 1.0
        for k in (1, 2):
            basis[k, 0, k] = basis[k, k, 0] = 1.0
        return basis
    basis = np.zeros((10, 4, 4))
    basis[0, 3, 3] = 1.0
    for k in range(3):
        basis[1 + k, k, 3] = basis[1 + k, 3, k] = 1.0
        basis[4 + k, :3, :3] = 0.5 * np.eye(3) - np.diag(np.eye(3)[k])
    for k, (i, j) in enumerate(((0, 1), (0, 2), (1, 2))):
        basis[7 + k, i, j] = basis[7 + k, j, i] = -1.0
    return basis


def _positive(regressor: Regressor) -> list[tuple[Array, Array, Array]]:
    """The same for each other number that its part refuses if it is negative."""
    found, start = [], len(regressor.names) - len(regressor.numbers)
    for k, number in enumerate(regressor.numbers):
        value = float(regressor.values[start + k])
        if not _may_be_negative(regressor, number):
            if not value > 0:
                raise MechanismError(
                    f"fit_efforts: {number.name!r} is {value:g} in the mechanism, and cannot be negative. Give it a "
                    "usual value there: with method='possible' the estimate is sought around it."
                )
            found.append((np.array([start + k]), np.ones((1, 1, 1)), np.full((1, 1), 1 / value)))
    return found


def _may_be_negative(regressor: Regressor, number: Number) -> bool:
    changed = replaced(regressor.mechanism, [(number, jnp.asarray(-1.0))])
    try:
        check_part(Path(number.path[:2])(changed))
    except MechanismError:
        return False
    return True
