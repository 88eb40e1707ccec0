"""The result of a fit: estimates with their standard errors, residuals, and the fitted mechanism."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from rich.table import Table

from jaxmbd._analysis import State
from jaxmbd._fit._experiment import Experiment
from jaxmbd._fit._minimise import Search
from jaxmbd._fit._parameters import Parameters
from jaxmbd._fit._residuals import Problem, experiment_of_rows, initial_state, residuals
from jaxmbd._mechanism import Mechanism

_ENOUGH = 5  # experiments from which on their scatter is used for the standard errors


class Fit(eqx.Module):
    """What a fit found.

    `parameters`: estimates by name; `standard_errors` and `correlation`: from the Jacobian at the estimates and the
    residuals' variance or, from five experiments on, their scatter between experiments, which allows for residuals
    that are not independent (`None` where the search gives no Jacobian); `mechanism`: the fitted one; `states`: the
    initial state of each experiment; `predicted` and `residuals` (model minus measured, in the channel's unit):
    by experiment and channel; `history`: the loss after each step; `outcome`: why the search stopped.
    """

    parameters: dict[str, Any]
    standard_errors: dict[str, Any] | None
    correlation: np.ndarray | None
    labels: tuple[str, ...]
    units: dict[str, str]
    mechanism: Mechanism
    states: tuple[State, ...]
    experiments: tuple[Experiment, ...]
    predicted: tuple[dict[str, np.ndarray], ...]
    history: tuple[float, ...]
    outcome: str

    @property
    def residuals(self) -> tuple[dict[str, np.ndarray], ...]:
        """Model minus measured, by experiment and channel; NaN where a sample is missing."""
        pairs = zip(self.predicted, self.experiments, strict=True)
        return tuple({n: p[n] - np.asarray(e.data[n]) for n in e.data} for p, e in pairs)

    def rms(self) -> tuple[dict[str, float], ...]:
        """Root mean square of the residuals, by experiment and channel."""
        return tuple({name: float(np.sqrt(np.nanmean(r**2))) for name, r in one.items()} for one in self.residuals)

    def table(self) -> Table:
        """Estimates, standard errors and strongest correlations, for `rich.print`."""
        table = Table(title=f"Fit: {self.outcome} after {len(self.history)} steps")
        for heading in ("parameter", "estimate", "standard error", "unit", "strongest correlation"):
            table.add_column(heading, justify="left" if heading in ("parameter", "unit") else "right")
        for row in self._rows():
            table.add_row(*row)
        return table

    def _rows(self) -> list[tuple[str, str, str, str, str]]:
        rows = []
        for name, value in self.parameters.items():
            values = np.concatenate([np.ravel(x) for x in jax.tree.leaves(value)])
            if values.size > 8:
                rows.append((name, f"{values.size} numbers", "", self.units[name], ""))
                continue
            for k, label in enumerate(_labels(name, values.size)):
                error = "" if self.standard_errors is None else f"{np.ravel(self.standard_errors[name])[k]:.2g}"
                rows.append((label, f"{values[k]:.6g}", error, self.units[name], self._strongest(label)))
        return rows

    def _strongest(self, label: str) -> str:
        if self.correlation is None or label not in self.labels or len(self.labels) < 2:
            return ""
        row = np.array(self.correlation[self.labels.index(label)])
        row[self.labels.index(label)] = 0.0
        k = int(np.argmax(np.abs(row)))
        return f"{row[k]:+.2f} {self.labels[k]}"

    def __repr__(self) -> str:
        head = f"{self.outcome} after {len(self.history)} steps"
        return "\n".join([head, *(" ".join(cell.rjust(14) for cell in row).rstrip() for row in self._rows())])


def _labels(name: str, size: int) -> list[str]:
    return [name] if size == 1 else [f"{name}[{k}]" for k in range(size)]


def summarise(problem: Problem, places: list[list[int]], experiments: list[Experiment], search: Search) -> Fit:
    """Put the result of a search together."""
    u, unknowns = search.y
    parameters = problem.parameters
    mechanism = parameters.mechanism_at(u)
    states: list[Any] = [None] * len(experiments)
    predicted: list[Any] = [None] * len(experiments)
    for where, x, model in zip(places, unknowns, search.values, strict=True):
        for k, place in enumerate(where):
            mine = {name: value[k] for name, value in x.items()}
            states[place] = initial_state(mechanism, experiments[place], mine)
            predicted[place] = {name: np.asarray(v[k]) for name, v in model.items()}
    errors, correlation, labels = None, None, ()
    if search.jacobian is not None and parameters.free:
        errors, correlation, labels = _uncertainty(problem, search)
    return Fit(
        parameters.physical(u), errors, correlation, labels,
        {name: f.unit for name, f in parameters.free.items()},
        mechanism, tuple(states), tuple(experiments), tuple(predicted), search.history, search.outcome,
    )  # fmt: skip


def _uncertainty(problem: Problem, search: Search) -> tuple[dict[str, Any], np.ndarray, tuple[str, ...]]:
    """Standard errors and correlations of the parameters, the initial states estimated beside them."""
    u, _ = search.y
    _, rebuild = ravel_pytree(u)
    sizes = {name: ravel_pytree(value)[0].size for name, value in u.items()}
    n = sum(sizes.values())
    covariance = _covariance(problem, search)[:n, :n]
    slopes = _slopes(problem.parameters, u)
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    outer = np.outer(spread, spread) * np.outer(np.sign(slopes), np.sign(slopes))
    correlation = np.divide(covariance, outer, out=np.zeros_like(covariance), where=outer != 0)
    labels = tuple(label for name in sorted(sizes) for label in _labels(name, sizes[name]))
    return rebuild(jnp.asarray(spread * np.abs(slopes))), correlation, labels


def _covariance(problem: Problem, search: Search) -> np.ndarray:
    """The covariance of all unknowns.

    `s² (JᵀJ)⁻¹` takes all samples for independent. What a model leaves over is usually not: it swings with the
    motion, and the formula is then far too sure. With enough experiments their scatter tells the truth, by the
    sandwich `(JᵀJ)⁻¹ (Σ g gᵀ) (JᵀJ)⁻¹` over experiments, `g = Jᵀ r` of each (Liang and Zeger, Biometrika 73, 1986).
    """
    r, J = np.asarray(residuals(problem, search.values)), np.asarray(search.jacobian)
    inverse = np.linalg.pinv(J.T @ J)
    owner = experiment_of_rows(problem)
    count = owner.max() + 1
    if count >= _ENOUGH:
        scores = np.stack([J[owner == k].T @ r[owner == k] for k in range(count)])
        return inverse @ (scores.T @ scores) @ inverse * count / (count - 1)
    samples = sum(int(np.isfinite(d).sum()) for stack in problem.stacks for d in stack.data.values())
    return inverse * float(np.sum(r**2)) / max(samples - J.shape[1], 1)


def _slopes(parameters: Parameters, u: dict[str, Any]) -> np.ndarray:
    """`dp/du` of each parameter (the maps act on each number by itself)."""
    _, slope = jax.jvp(parameters.physical, (u,), (jax.tree.map(jnp.ones_like, u),))
    return np.asarray(ravel_pytree(slope)[0])
