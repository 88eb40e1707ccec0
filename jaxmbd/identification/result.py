"""The result of a fit, and predictions of experiments that were not used for it."""

import abc
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree
from rich.markup import escape
from rich.table import Table

from jaxmbd.errors import MechanismError
from jaxmbd.identification._data import units_measured
from jaxmbd.identification._experiment import Experiment
from jaxmbd.identification._identifiability import Undetermined
from jaxmbd.identification._problem import Problem
from jaxmbd.identification._residual_tests import ResidualTest, residual_remarks
from jaxmbd.identification._uncertainty import Uncertainty
from jaxmbd.identification._unknowns import Unknowns
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.parameters.labels import LISTED
from jaxmbd.parameters.parameters import flat
from jaxmbd.state.state import State


class Row(NamedTuple):
    """A row of a table of estimates, as texts: a number, or a parameter of many numbers as a whole."""

    label: str
    estimate: str
    error: str
    interval: str
    unit: str
    correlation: str

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """The columns that `print` shows."""
        return self.label, self.estimate, self.error, self.unit, self.correlation


class ChannelError(NamedTuple):
    """The root mean square of a channel's residuals: the median and the largest one of the experiments, in its unit."""

    name: str
    median: float
    largest: float
    unit: str


class AbstractComparison(eqx.Module):
    """Experiments, and what a model predicts for them."""

    theta: eqx.AbstractVar[Unknowns]
    experiments: eqx.AbstractVar[tuple[Experiment, ...]]
    predicted: eqx.AbstractVar[tuple[dict[str, np.ndarray], ...]]
    problem: eqx.AbstractVar[Problem]

    @property
    @abc.abstractmethod
    def mechanism(self) -> Mechanism:
        """The mechanism with the estimates."""

    @property
    def residuals(self) -> tuple[dict[str, np.ndarray], ...]:
        """Model minus measured, by experiment and channel; NaN for missing samples."""
        pairs = zip(self.predicted, self.experiments, strict=True)
        return tuple({n: p[n] - np.asarray(e.data[n]) for n in e.data} for p, e in pairs)

    def rms(self) -> tuple[dict[str, float], ...]:
        """Return the root mean square of the residuals, by experiment and channel."""
        return tuple({name: float(np.sqrt(np.nanmean(r**2))) for name, r in one.items()} for one in self.residuals)

    def channel_errors(self) -> tuple[ChannelError, ...]:
        """Return the root mean squares of each channel's residuals, over the experiments that have it."""
        return _over_experiments(self.rms(), self.channel_units())

    def channel_units(self) -> dict[str, str]:
        """Return the unit of each measured channel."""
        units: dict[str, str] = {}
        for experiment in self.experiments:
            units |= units_measured(self.mechanism, experiment)
        instruments = self.problem.instruments
        return units | {name: units[instrument.channel] for name, instrument in instruments.items()}


def _over_experiments(errors: Iterable[Mapping[str, float]], units: Mapping[str, str]) -> tuple[ChannelError, ...]:
    found: dict[str, list[float]] = {}
    for one in errors:
        for name, value in one.items():
            found.setdefault(name, []).append(value)
    return tuple(ChannelError(name, float(np.median(x)), max(x), units[name]) for name, x in found.items())


class Prediction(AbstractComparison):
    """What a fitted model predicts for experiments that were not used for it.

    `states`: the initial states; `predicted`, `residuals` (model minus measured, in the channel's unit): by experiment
    and channel; `outcome`: the reason for which the search for the initial values ended that the experiments want
    estimated, empty if there are none.
    """

    problem: Problem
    theta: Unknowns
    experiments: tuple[Experiment, ...]
    states: tuple[State, ...]
    predicted: tuple[dict[str, np.ndarray], ...]
    outcome: str = ""

    @property
    def mechanism(self) -> Mechanism:
        return self.problem.mechanism(self.theta)

    def __repr__(self) -> str:
        lines = [f"Prediction of {len(self.experiments)} experiments" + f" ({self.outcome})" * bool(self.outcome)]
        for name, median, largest, unit in self.channel_errors():
            lines.append(f"{name}: RMS error {median:.3g} {unit} (median), {largest:.3g} {unit} (largest)")
        return "\n".join(lines)


class Fit(AbstractComparison):
    """The result of a fit. `print` shows the estimates with standard errors and strongest correlations, and `warnings`.

    - `parameters`: the estimates by name; `theta`: all estimates, an `Unknowns` for the functions of `problem`;
    - `standard_errors`, `correlation`: from the Jacobian at the estimates, and what the residuals tell of their level
      and of their correlation from sample to sample; from five experiments on, from the scatter between experiments,
      which is valid for residuals of any kind (`None` if the optimiser computes no Jacobian). For parameters that the
      data do not determine, standard errors are infinite and correlations NaN;
    - `labels`: the rows of `correlation`; `units`: the units of the parameters;
    - `mechanism`: the fitted mechanism; `states`: the initial state of each experiment;
    - `predicted`, `residuals` (model minus measured, in the channel's unit): by experiment and channel;
    - `history`: the loss after each step; `outcome`: the reason for which the search stopped; `reason`: more precisely;
    - `undetermined`: groups of parameters and initial values that the data determine in some combinations only, or not
      at all;
    - `ill_conditioned`: groups that the data determine so poorly that the standard errors given are uncertain, by
      rounding and by the tolerances of the integration: by more than their own statistical uncertainty, and than shows
      in two digits. Tables mark them, `~0.003`;
    - `remarks`: other remarks: residuals are correlated from sample to sample, or are larger than the noise level; an
      estimate lies at the edge of its range;
    - `residual_tests`: what the residuals of each channel tell, as numbers;
    - `problem`: the problem, with the noise levels that have been estimated, if they were to be.
    """

    problem: Problem
    theta: Unknowns
    uncertainty: Uncertainty | None
    experiments: tuple[Experiment, ...]
    states: tuple[State, ...]
    predicted: tuple[dict[str, np.ndarray], ...]
    history: tuple[float, ...]
    outcome: str
    reason: str = ""
    other_losses: tuple[float, ...] = ()

    @property
    def parameters(self) -> dict[str, PyTree]:
        """The estimates by name."""
        return {name: self.theta.parameters[name] for name in self.problem.shared}

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism with the estimates."""
        return self.problem.mechanism(self.theta)

    @property
    def units(self) -> dict[str, str]:
        """The units of the parameters."""
        return {name: self.problem.parameters.free[name].unit for name in self.parameters}

    @property
    def labels(self) -> tuple[str, ...]:
        """The rows of `correlation`: the numbers of all parameters."""
        return self.problem.parameter_names()

    @property
    def standard_errors(self) -> dict[str, PyTree] | None:
        """The standard errors by name, infinite for parameters that the data do not determine."""
        if self.uncertainty is None or not self.parameters:
            return None
        flat_values, unravel = ravel_pytree(self.parameters)
        return unravel(jnp.asarray(self.uncertainty.errors[: flat_values.size], flat_values.dtype))

    @property
    def correlation(self) -> np.ndarray | None:
        """The correlations of the numbers of all parameters."""
        if self.uncertainty is None or not self.parameters:
            return None
        return self.uncertainty.correlation()[: len(self.labels), : len(self.labels)]

    @property
    def undetermined(self) -> tuple[Undetermined, ...]:
        """Groups of unknowns that the data do not determine one by one."""
        return () if self.uncertainty is None else self.uncertainty.undetermined

    @property
    def ill_conditioned(self) -> tuple[Undetermined, ...]:
        """Groups of unknowns that the data determine too poorly for exact standard errors, each with its combinations
        and condition."""
        groups = () if self.uncertainty is None else self.uncertainty.groups
        return tuple(group for group in groups if np.isfinite(group.condition))

    @property
    def residual_tests(self) -> tuple[ResidualTest, ...]:
        """What the residuals of each channel tell; empty if there is no Jacobian."""
        return () if self.uncertainty is None else self.uncertainty.tests

    def left_out_errors(self) -> tuple[ChannelError, ...]:
        """Return the root mean squares of each channel's errors in experiments that are left out of the fit, one at a
        time: how well the others predict it, to first order; `cross_validate` fits anew.

        Much larger than `channel_errors`, they say that the experiments contradict one another, or that one alone tells
        something; infinite if the others do not determine what it depends on. Empty for one experiment, for segments,
        and if there is no Jacobian.
        """
        ratios = () if self.uncertainty is None else self.uncertainty.left_out
        errors = (
            {name: x * own[name] for name, x in mine.items()} for own, mine in zip(self.rms(), ratios, strict=False)
        )
        return _over_experiments(errors, self.channel_units())

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on residuals that are not the noise they should be, and on estimates at the edges of their ranges."""
        remarks, errors, parameters = [], self.standard_errors, self.problem.parameters
        for name, value in self.parameters.items():
            shape = value.shape if eqx.is_array(value) else (-1,)
            error = np.zeros_like(flat(value)) if errors is None else flat(errors[name])
            numbers = (x.reshape(shape) for x in (flat(value), flat(parameters.start[name]), error))
            remarks += parameters.free[name].within.remarks(name, parameters.labels(name), *numbers)
        return (*self._residual_remarks(), *remarks)

    def _residual_remarks(self) -> list[str]:
        known = self.uncertainty
        if known is None:
            return []
        factors = np.where(known.is_open, 0.0, known.widening)
        rows = self._groups() or {name: np.array([k]) for k, name in enumerate(known.names)}
        widest = max(((label, float(factors[places].max())) for label, places in rows.items()), key=lambda row: row[1])
        coloured = self.problem.noise == "coloured"
        return residual_remarks(known.tests, widest, from_scatter=known.is_from_scatter, coloured=coloured)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings that the numbers alone do not show, one text each: the search did not converge, the data do not
        determine all unknowns, or only so poorly that their errors are uncertain, residuals are not the noise they
        should be, or an estimate lies at the edge of its range."""
        ended = () if self.outcome == "converged" else (f"the search has not converged: {self.outcome}",)
        return (*ended, *map(str, self.undetermined), *map(str, self.ill_conditioned), *self.remarks)

    def interval(self, level: float = 0.95) -> dict[str, tuple[PyTree, PyTree]]:
        """Return the confidence interval of each parameter by name, by Student's t distribution.

        It is computed in the numbers of the search, where the model is the more linear, and so never leaves the range
        of a parameter: that of a `Positive` one is `p e^{±t σ/p}`. Where the model is too far from linear for that
        (`by_likelihood`), it ends where the likelihood says, or at the end of the range. Those of parameters that the
        data do not determine are the whole range. Biases by what a model lacks are not covered.
        """
        if not (isinstance(level, float) and 0 < level < 1):
            raise MechanismError(f"interval: level must be between 0 and 1, such as 0.95, got {level!r}.")
        known, errors = self.uncertainty, self.standard_errors
        if known is None or errors is None:
            raise MechanismError(
                "The optimiser has computed no Jacobian: there are no standard errors. Leave optimiser out."
            )
        width = float(scipy.stats.t.ppf(0.5 + level / 2, known.freedom))
        parameters, (flat_values, unravel) = self.problem.parameters, ravel_pytree(self.parameters)
        sides = []
        for side in (-1, 1):
            linear = {
                name: jax.tree.map(
                    lambda x, e, start, f=parameters.free[name].within, side=side: f.moved(x, side * width * e, start),
                    value, errors[name], parameters.start[name],
                ) for name, value in self.parameters.items()
            }  # fmt: skip
            ends = np.array(ravel_pytree(linear)[0])
            for place, profile in known.profiles.items():
                ends[place] = profile.crossing(side * width)
            sides.append(unravel(jnp.asarray(ends, flat_values.dtype)))
        return {name: (sides[0][name], sides[1][name]) for name in self.parameters}

    @property
    def by_likelihood(self) -> tuple[str, ...]:
        """The labels of the numbers in which the model is too far from linear for their standard errors, so that their
        intervals are those of the likelihood."""
        places = () if self.uncertainty is None else sorted(self.uncertainty.profiles)
        return tuple(self.labels[place] for place in places)

    def table(self) -> Table:
        """Return a table of estimates, standard errors and strongest correlations for `rich.print`."""
        table = Table(title=f"Fit: {self.outcome} after {len(self.history)} steps")
        for heading in ("parameter", "estimate", "standard error", "unit", "strongest correlation"):
            table.add_column(heading, justify="left" if heading in ("parameter", "unit") else "right")
        for row in self.rows():
            table.add_row(*map(escape, row.cells))
        table.caption = "\n".join(map(escape, self._remarks())) or None
        return table

    def rows(self) -> tuple[Row, ...]:
        """Return the estimates as rows of a table; a parameter of many numbers, such as a network, is one of them."""
        groups, errors, rows = self._groups(), self.standard_errors, []
        strongest, interval = self._strongest(), {} if errors is None else self.interval()
        doubted = {label for group in self.ill_conditioned for label in group.names}
        for name, value in self.parameters.items():
            values = flat(value)
            if values.size > LISTED:
                text = f"{values.size} numbers"
                if self.uncertainty is not None:
                    text += f", {self.uncertainty.share[groups[name]].sum():.1f} determined"
                rows.append(Row(name, text, "", "", self.units[name], strongest.get(name, "")))
                continue
            for k, label in enumerate(self.problem.parameters.labels(name)):
                error = "" if errors is None else "~" * (label in doubted) + _error_text(flat(errors[name])[k])
                ends = [flat(x)[k] for x in interval.get(name, ())]
                between = f"{ends[0]:.5g} to {ends[1]:.5g}" if ends and np.isfinite(ends).all() else ""
                rows.append(Row(label, f"{values[k]:.6g}", error, between, self.units[name], strongest.get(label, "")))
        return tuple(rows)

    def correlation_of_rows(self) -> tuple[tuple[str, ...], np.ndarray | None]:
        """Return the names of the rows, and the correlation of each two: of a parameter of many numbers the largest
        that a combination of its numbers has, without a sign."""
        groups = self._groups()
        if self.uncertainty is None or not groups:
            return tuple(groups), None
        return tuple(groups), self.uncertainty.correlation_of_groups(list(groups.values()))

    def _groups(self) -> dict[str, np.ndarray]:
        """By label of a row, the places of its numbers among all unknowns."""
        groups: dict[str, np.ndarray] = {}
        for place, (label, name) in enumerate(zip(self.labels, self.problem.owners(), strict=False)):
            key = label if flat(self.parameters[name]).size <= LISTED else name
            groups[key] = np.append(groups.get(key, np.zeros(0, int)), place)
        return groups

    def _strongest(self) -> dict[str, str]:
        """By label of a row, its strongest correlation with another one, as text."""
        names, found = self.correlation_of_rows()
        if found is None or len(names) < 2:
            return {}
        others = np.where(np.eye(len(names), dtype=bool), np.nan, found)
        texts = {}
        for name, row in zip(names, others, strict=True):
            if not np.isnan(row).all():
                k = int(np.nanargmax(np.abs(row)))
                texts[name] = f"{row[k]:+.2f} {names[k]}"
        return texts

    def __repr__(self) -> str:
        head = f"{self.outcome} after {len(self.history)} steps"
        rows = (" ".join(cell.rjust(14) for cell in row.cells).rstrip() for row in self.rows())
        return "\n".join([head, *rows, *self._remarks()])

    def _remarks(self) -> list[str]:
        """What is said below a table: the way of shooting, intervals by the likelihood, errors of experiments that are
        left out, and warnings."""
        said = [f"{self.problem.shooting}."] if self.problem.shooting else []
        said += self._intervals_by_likelihood()
        fitted = {one.name: one.median for one in self.channel_errors()}
        left_out = [
            f"{one.name} {one.median:.3g} {one.unit} (fitted {fitted[one.name]:.3g})" for one in self.left_out_errors()
        ]
        if left_out:
            more = f" and {len(left_out) - LISTED} more channels" * (len(left_out) > LISTED)
            said.append(f"RMS error of an experiment, predicted from the others: {', '.join(left_out[:LISTED])}{more}.")
        return said + [f"Warning: {text}." for text in self.warnings]

    def _intervals_by_likelihood(self) -> list[str]:
        if not self.by_likelihood:
            return []
        shown = {row.label: row for row in self.rows()}
        listed = ", ".join(
            f"{label} {shown[label].interval} {shown[label].unit}".rstrip() for label in self.by_likelihood
        )
        return [f"By the likelihood, as standard errors are not enough for 95 % intervals: {listed}."]


def _error_text(error: float) -> str:
    return "undetermined" if np.isinf(error) else f"{error:.2g}"
