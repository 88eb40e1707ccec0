"""Standard errors and correlations of estimates, from the Jacobian of the residuals and their scatter.

`s² (JᵀJ)⁻¹` assumes that all residuals are independent. Where they are not, or have other levels than was given, their
correlations and levels replace that (`_score_scatter.py`). Those of a model that is not perfect follow the motion, and
even this gives too small errors. With enough experiments the scatter between them is used, by the sandwich
estimator `(JᵀJ)⁻¹ (Σ g gᵀ) (JᵀJ)⁻¹` with `g = Jᵀ r` of each experiment (Liang and Zeger, Biometrika 73, 1986). There
must be more of them than numbers that the data determine: the estimates make the sum of all `g` zero. An experiment
tells nothing of the scatter of what it alone has, such as its initial state: with `J` and `g` of what is left of its
rows for the shared parameters, these get the sandwich, and the own unknowns what follows from it and from `s²`.

The Jacobian has errors of rounding and integration, and so have the standard errors. They are shown with two digits,
and are themselves estimates, of `f` degrees of freedom, with the relative standard deviation `1/√(2 f)` (JCGM 100:2008,
*GUM*, E.4.3): a larger error from the Jacobian is said.

With priors, the data determine a share `diag (J_mᵀ J_m) (JᵀJ)⁻¹` of each number, `J_m` being the rows of measurements;
the sum is the number of well-determined parameters (MacKay, Neural Computation 4, 1992).
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import diffrax as dfx
import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Bool, Float, PyTree

from jaxmbd.identification._experiment import OWN
from jaxmbd.identification._identifiability import Estimates, Identifiability, Undetermined, identifiability
from jaxmbd.identification._left_out import left_out_ratios
from jaxmbd.identification._minimise import Minimum
from jaxmbd.identification._problem import Problem
from jaxmbd.identification._residual_tests import ResidualTest, residual_tests
from jaxmbd.identification._score_scatter import ChannelScores, channel_scores, scattered
from jaxmbd.numerics.block_least_squares import Linearised
from jaxmbd.parameters.parameters import flat

ENOUGH = 5  # the least number of experiments for which standard errors come from the scatter between them

_SHOWN = 0.05  # relative error of a standard error that does not show in its two digits
_ROUNDING = 1e-10  # share of the largest eigenvalue of a correlation matrix


@dataclass(frozen=True)
class RootProfile:
    """The root of what the loss gains along one parameter, in units of its level, with a sign: a straight line for a
    linear model.

    `values`, `roots`: both rising, with the estimate and zero among them; `ends`: of the parameter's range; `is_open`:
    whether the range ends on a side before the data exclude a value.
    """

    values: Float[np.ndarray, " n"]
    roots: Float[np.ndarray, " n"]
    ends: tuple[float, float]
    is_open: tuple[bool, bool]

    def crossing(self, root: float) -> float:
        """Return the value at which the root is a given one: beyond the last, on the line through it and the estimate;
        the end of the range if that is reached first."""
        side = 0 if root < 0 else -1
        if abs(root) <= abs(self.roots[side]):
            return float(np.interp(root, self.roots, self.values))
        if self.is_open[side] or self.roots[side] == 0:
            return self.ends[side]
        estimate = float(np.interp(0.0, self.roots, self.values))
        beyond = estimate + (float(self.values[side]) - estimate) * root / float(self.roots[side])
        return min(max(beyond, self.ends[0]), self.ends[1])


@dataclass(frozen=True)
class Uncertainty:
    """What the data tell about the unknowns of a problem, in their order: parameters, then those of each experiment.

    - `names`; `values`: the estimates;
    - `covariance`: in the subspace that the data determine; `is_open`: True for unknowns that they do not determine;
    - `share`: how much of each number the data determine, from 0 to 1; the rest is left to its prior;
    - `freedom`: the degrees of freedom of the variance;
    - `uncertain`: the relative errors of the standard errors, from the errors of the Jacobian;
    - `widening`: by which factors the errors are larger than they would be if the residuals were independent and all of
      the level given;
    - `level`: the root mean square of the residuals, in units of the noise levels that were given, for `freedom`;
    - `profiles`: by their places, the parameters in which the model is too far from linear for their standard errors;
    - `left_out`: for each experiment, by channel, how many times larger its errors are if it is left out of the fit;
    - `tests`: what the residuals of each channel tell; `is_from_scatter`: whether the covariance comes from there;
    - `groups`: the groups of unknowns that they do not determine one by one, or too poorly for exact standard errors.
    """

    names: tuple[str, ...]
    values: Float[np.ndarray, " n"]
    covariance: Float[np.ndarray, "n n"]
    is_open: Bool[np.ndarray, " n"]
    share: Float[np.ndarray, " n"]
    freedom: float
    uncertain: Float[np.ndarray, " n"]
    groups: tuple[Undetermined, ...]
    widening: Float[np.ndarray, " n"]
    tests: tuple[ResidualTest, ...]
    is_from_scatter: bool
    level: float
    left_out: tuple[dict[str, float], ...]
    profiles: Mapping[int, RootProfile] = field(default_factory=dict)

    @property
    def undetermined(self) -> tuple[Undetermined, ...]:
        """The groups of unknowns that the data do not determine one by one."""
        return tuple(group for group in self.groups if np.isinf(group.condition))

    @property
    def errors(self) -> Float[np.ndarray, " n"]:
        """The standard errors, infinite where the data do not determine an unknown."""
        return np.where(self.is_open, np.inf, np.sqrt(np.maximum(np.diag(self.covariance), 0.0)))

    def correlation(self) -> Float[np.ndarray, "n n"]:
        """Return the correlations, NaN where the data do not determine an unknown."""
        outer = np.outer(self.errors, self.errors)
        usable = (outer != 0) & np.isfinite(outer)
        correlation = np.divide(self.covariance, outer, out=np.zeros_like(outer), where=usable)
        correlation[self.is_open[:, None] | self.is_open[None, :]] = np.nan
        return correlation

    def correlation_of_groups(self, groups: Sequence[np.ndarray]) -> Float[np.ndarray, "k k"]:
        """Return the correlations of groups of unknowns, given by their places.

        That of two groups is their largest canonical correlation, the largest that combinations of their numbers have
        (Hotelling, Biometrika 28, 1936), without a sign if a group has several numbers; NaN where one is open.
        """
        whole = self.correlation()
        roots = [_inverse_root(whole[np.ix_(group, group)]) for group in groups]
        found = np.full((len(groups), len(groups)), np.nan)
        for i, j in itertools.product(range(len(groups)), repeat=2):
            between = roots[i] @ whole[np.ix_(groups[i], groups[j])] @ roots[j]
            if np.isfinite(between).all():
                found[i, j] = between.item() if between.size == 1 else min(np.linalg.norm(between, 2), 1.0)
        return found


def _inverse_root(correlation: np.ndarray) -> np.ndarray:
    """The inverse of the root of a correlation matrix, without directions of rounding size; NaN if it has any."""
    if not np.isfinite(correlation).all():
        return np.full_like(correlation, np.nan)
    values, vectors = np.linalg.eigh(correlation)
    kept = values > _ROUNDING * values.max()
    return vectors[:, kept] / np.sqrt(values[kept]) @ vectors[:, kept].T


def uncertainty(problem: Problem, minimum: Minimum) -> Uncertainty:
    """Return standard errors and correlations at the end of a search that has computed a Jacobian."""
    assert minimum.linearised is not None
    unknowns, slopes = unknowns_of(problem, minimum)
    J, r, experiment, measured = dense(minimum.linearised)
    J = by_physical_values(J, slopes) * unknowns.sizes
    errors = by_physical_values(_errors(problem, minimum), slopes) * unknowns.sizes
    shared, count = minimum.linearised.shared, int(experiment.max(initial=-1)) + 1
    channels = _size_of_channels(problem, minimum)
    limit = max(_SHOWN, 1 / np.sqrt(2 * max(problem.samples - J.shape[1], 1)))
    rank = identifiability(J, errors, unknowns, channels, limit, J[~measured]).rank
    freedom = float(max(problem.samples + int((~measured).sum()) - rank, 1))
    # Priors have a known variance, measurements that of the residuals: their rows are divided by its root.
    level = np.sqrt(float(np.sum(r[measured] ** 2)) / freedom) or 1.0
    J[measured], r[measured] = J[measured] / level, r[measured] / level
    determined = identifiability(J, errors / level, unknowns, channels / level, limit, J[~measured])
    covariance = determined.inverse
    share = np.einsum("ri,rj,ji->i", J[measured], J[measured], covariance, optimize=True)
    residuals = [block.whole[..., -1] for block in minimum.linearised.stacks]
    tests = residual_tests(problem, residuals, minimum.readings, float(share.sum()))
    widening = np.ones(len(covariance))
    if is_from_scatter := count >= ENOUGH and count > float(share[:shared].sum()):
        covariance, freedom = _sandwich(J, r, experiment, shared, determined), float(count - 1)
        widening = _ratio(covariance, determined.inverse)
    elif tests:
        channels = channel_scores(problem, minimum.linearised, {test.channel for test in tests})
        units = partial(_in_units, slopes=slopes, sizes=unknowns.sizes, level=level)
        covariance, freedom = scattered(covariance, freedom, [units(one) for one in channels])
        widening = _ratio(covariance, determined.inverse)
    return Uncertainty(
        unknowns.names, unknowns.values, covariance * np.outer(unknowns.sizes, unknowns.sizes), determined.open, share,
        freedom, determined.uncertain, determined.groups, widening, tests, is_from_scatter, level,
        left_out_ratios(problem, minimum.linearised),
    )  # fmt: skip


def _ratio(covariance: np.ndarray, before: np.ndarray) -> np.ndarray:
    """How many times larger the standard errors are than before."""
    new, old = np.maximum(np.diag(covariance), 0.0), np.diag(before)
    return np.sqrt(np.divide(new, old, out=np.ones_like(old), where=old > 0))


def _in_units(one: ChannelScores, *, slopes: list[np.ndarray], sizes: np.ndarray, level: float) -> ChannelScores:
    """Scores by physical values in units of their sizes, of residuals in units of their level."""
    outer = np.outer(sizes, sizes) / level**2
    white, coloured = (
        by_physical_values(by_physical_values(x, slopes).T, slopes) * outer for x in (one.white, one.coloured)
    )
    return replace(one, square=one.square / level**2, white=white, coloured=coloured)


def _errors(problem: Problem, minimum: Minimum) -> np.ndarray:
    """Rows with the errors of the Jacobian: how it changes where nothing but rounding and the tolerances of the
    integration changes, and at least the relative tolerance. Constant steps are part of the model, and have none."""
    assert minimum.linearised is not None
    lengths = np.linalg.norm(dense(minimum.linearised)[0], axis=0)
    controller = problem.integration.stepsize_controller
    rtol = controller.rtol if isinstance(controller, dfx.PIDController) else problem.integration.rtol
    is_constant = isinstance(controller, dfx.ConstantStepSize | dfx.StepTo)
    nominal = np.diag(np.asarray(0.0 if is_constant or rtol is None else rtol, float) * lengths)
    return nominal if minimum.nearby is None else np.concatenate([
        dense(minimum.nearby.minus(minimum.linearised))[0], nominal
    ])  # fmt: skip


def by_physical_values(J: np.ndarray, slopes: list[np.ndarray]) -> np.ndarray:
    """Return derivatives by physical values from those by the numbers of the search, `∂r/∂u (dp/du)⁻¹`; zero for a
    number that has no effect on its value."""
    if not slopes:
        return J
    parts = np.split(J, np.cumsum([len(slope) for slope in slopes])[:-1], axis=1)
    return np.concatenate([
        part @ np.linalg.pinv(slope) if slope.ndim == 2
        else np.divide(part, slope, out=np.zeros_like(part), where=slope != 0)
        for part, slope in zip(parts, slopes, strict=True)
    ], axis=1)  # fmt: skip


def _sandwich(
    J: np.ndarray, r: np.ndarray, experiment: np.ndarray, shared: int, determined: Identifiability
) -> np.ndarray:
    """The covariance with the scatter between experiments in place of what their rows say of the shared parameters."""
    count, found = experiment.max() + 1, np.zeros((shared, shared))
    for k in range(count):
        rows, ours = J[experiment == k, shared:], J[experiment == k, :shared]
        mine = rows[:, rows.any(axis=0)]
        left = ours - mine @ np.linalg.lstsq(mine, ours, rcond=None)[0]
        score = left.T @ r[experiment == k]
        found += count / (count - 1) * np.outer(score, score) - left.T @ left
    effect = determined.inverse[:, :shared]
    return determined.inverse + effect @ found @ effect.T


class Dense(NamedTuple):
    """The Jacobian, the residuals, and of each row the number of its experiment (−1 for priors of shared parameters),
    and whether it is a measurement: others are priors, and conditions between segments."""

    J: Float[np.ndarray, "rows n"]
    r: Float[np.ndarray, " rows"]
    experiment: np.ndarray
    is_measured: Bool[np.ndarray, " rows"]


def dense(linearised: Linearised) -> Dense:
    """Return all rows in all columns."""
    p = linearised.shared
    n = p + sum(len(block.rows) * block.own for block in linearised.stacks)
    rows, residuals, experiment, measured, at, count = [], [], [], [], p, 0
    for block in linearised.stacks:
        for k in range(len(block.rows)):
            is_last = (k + 1) % block.segments == 0
            for part in block.parts[: 2 if is_last else 3]:  # no conditions after the last segment
                width = min(block.width, n - at)
                row = np.zeros((part.shape[1], n))
                row[:, :p], row[:, at : at + width] = part[k, :, block.width : -1], part[k, :, :width]
                rows.append(row)
                residuals.append(part[k, :, -1])
                experiment.append(np.full(len(row), count))
                measured.append(np.full(len(row), part is block.rows))
            at, count = at + block.own, count + is_last
    row = np.zeros((len(linearised.priors), n))
    row[:, :p] = linearised.priors[:, :-1]
    rows, residuals = [*rows, row], [*residuals, linearised.priors[:, -1]]
    experiment, measured = [*experiment, np.full(len(row), -1)], [*measured, np.full(len(row), False)]
    return Dense(*map(np.concatenate, (rows, residuals, experiment, measured)))


def unknowns_of(problem: Problem, minimum: Minimum) -> tuple[Estimates, list[np.ndarray]]:
    """Return the unknowns with physical values, and their derivatives by the numbers of the search, array by array."""
    parameters, theta = problem.parameters, problem.physical(minimum.u)
    values: list[np.ndarray] = []
    sizes: list[np.ndarray] = []
    slopes: list[np.ndarray] = []

    def add(name: str, value: PyTree, u: PyTree) -> None:
        free, start = parameters.free[name], parameters.start[name]
        values.append(flat(value))
        sizes.append(flat(jax.tree.map(lambda x, s: free.within.size(np.asarray(x), np.asarray(s)), value, start)))
        slopes.extend(map(np.asarray, parameters.slopes(name, u)))

    for name in sorted(theta.parameters):
        add(name, theta.parameters[name], minimum.u.parameters[name])
    for stack, own, own_u in zip(problem.stacks, theta.experiments, minimum.u.experiments, strict=True):
        for k, name in itertools.product(range(stack.lanes), sorted(own)):
            if name.startswith(OWN):
                add(name.removeprefix(OWN), own[name][k], own_u[name][k])
            else:
                values.append(np.asarray(own[name][k]).ravel())
                sizes.append(np.maximum(np.abs(values[-1]), 1.0))
                slopes.append(np.ones(1))
    value, size = (np.concatenate([*x, np.zeros(0)]) for x in (values, sizes))
    is_parameter = np.arange(len(value)) < ravel_pytree(theta.parameters)[0].size
    return Estimates(problem.names(), problem.owners(), value, size, (value > 0) & is_parameter), slopes


def _size_of_channels(problem: Problem, minimum: Minimum) -> float:
    """The norm of the model's channels, each divided by its noise level."""
    total = 0.0
    for readings, stack in zip(minimum.readings, problem.stacks, strict=True):
        for name, measured in stack.experiment.data.items():
            present = np.isfinite(np.asarray(measured))
            level = np.asarray(stack.experiment.sigma[name]).reshape((-1,) + (1,) * (measured.ndim - 1))
            total += float(np.sum(np.where(present, np.asarray(readings[name]) / level, 0.0) ** 2))
    return float(np.sqrt(total))
