"""Motions and fits as labelled datasets, and a state from one instant of a motion."""

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmbd.arrays import constant, is_concrete
from jaxmbd.checks import check_index
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.parameters.parameters import flat
from jaxmbd.state.result_codes import RESULTS
from jaxmbd.state.state import State, rank_number, state_of

if TYPE_CHECKING:
    import xarray as xr

    from jaxmbd.analyses.simulation.solution import Solution
    from jaxmbd.identification.result import Fit


def motion_dataset(solution: "Solution") -> "xr.Dataset":
    """Return all quantities of a motion over time, its quadratures, its events and its verdict.

    Variables: each of `solution.names`; `"quadrature.energy"` [J s]; `"events.time"` [s], `"events.name"` and
    `"events.impulse"`, if anything happened.

    **Raises:** `MechanismError` inside `jit` or `vmap`, and for a batch of motions.
    """
    if not is_concrete(solution) or np.ndim(solution.ts) != 1:
        raise MechanismError(
            "A batch of motions, or a traced one, cannot be saved: save each motion of its own, outside of jit and "
            "vmap; sweep stores many."
        )
    data = solution.to_xarray()
    units = {name: values.attrs["units"] for name, values in data.items()}
    further: dict[str, Any] = {
        f"quadrature.{name}": ("time", np.asarray(values), {"units": f"{units[name]} s".lstrip()})
        for name, values in solution.quadratures.items()
    }
    log = list(solution.events) if solution.events is not None else []
    if solution.events is not None and log:
        further["events.name"] = ("event", [name for name, _ in log])
        further["events.time"] = ("event", np.asarray([float(t) for _, t in log]), {"units": "s"})
        further["events.impulse"] = ("event", np.asarray(solution.events.impulse)[: len(log)])
    about = {
        "kind": "motion",
        "jaxmbd": version("jaxmbd"),
        "formulation": type(solution.formulation).__name__,
        "result": RESULTS[solution.result] or "successful",
    }
    return data.assign(further).assign_attrs(about)


def fit_dataset(fit: "Fit") -> "xr.Dataset":
    """Return the estimates of a fit with what the data tell of them.

    Variables over `parameter`, the names of all numbers: `estimate`, `unit`, and, unless the optimiser has computed no
    Jacobian, `standard_error`, `share` (how much of it the data determine) and `covariance`; `loss` over `step`.
    """
    import xarray as xr  # takes a third of a second

    parameters, known = fit.problem.parameters, fit.uncertainty
    units = {label: fit.units[name] for name in fit.parameters for label in parameters.labels(name)}
    names = fit.labels if known is None else known.names
    values = np.concatenate([flat(x) for x in fit.parameters.values()]) if known is None else known.values
    variables: dict[str, Any] = {
        "estimate": ("parameter", values),
        "unit": ("parameter", [units.get(name, "") for name in names]),
        "loss": ("step", np.asarray(fit.history, float)),
    }
    if known is not None:
        variables["standard_error"] = ("parameter", known.errors)
        variables["share"] = ("parameter", known.share)
        variables["covariance"] = (("parameter", "other"), known.covariance)
    coordinates = {"parameter": list(names)} | ({"other": list(names)} if known is not None else {})
    about: dict[str, Any] = {
        "kind": "fit",
        "jaxmbd": version("jaxmbd"),
        "outcome": fit.outcome,
        "warnings": "\n".join(fit.warnings),
    }
    return xr.Dataset(variables, coordinates, about | ({} if known is None else {"freedom": float(known.freedom)}))


def state_at(data: "xr.Dataset", mechanism: Mechanism, index: int, path: Path) -> State:
    """Return the state of a saved motion at one of its times.

    **Raises:** `MechanismError` if the motion is not one of this mechanism, or has no numbers at that time.
    """
    check_mechanism(mechanism)
    if data.attrs.get("kind") != "motion" or "time" not in data.coords:
        raise MechanismError(f"{str(path)!r} holds a {data.attrs.get('kind')!r}, and states are those of a motion.")
    names = mechanism.layout.names
    missing = [name for name in names if name not in data or data[name].dims != ("time",)]
    if missing:
        raise MechanismError(
            f"{str(path)!r} belongs to another mechanism, or to one in other coordinates: it has no {missing[0]!r}."
        )
    if {data[name].dtype for name in names} != {mechanism.bodies[0].mass.dtype}:
        raise MechanismError(
            f"{str(path)!r} holds {data[names[0]].dtype}, and the mechanism is {mechanism.bodies[0].mass.dtype}; both "
            "must have one precision."
        )
    check_index("load_state", index, data.sizes["time"], "times")
    values = np.asarray([data[name].to_numpy()[index] for name in names])
    if not np.isfinite(values).all():
        raise MechanismError(
            f"{str(path)!r} has no numbers at time {index}: the motion ended before ({data.attrs.get('result')})."
        )
    q, v, z = map(constant, np.split(values, np.cumsum([mechanism.nq, mechanism.nv])))
    return state_of(mechanism, constant(data["time"].to_numpy()[index]), q, v, rank_number(-1), z=z)
