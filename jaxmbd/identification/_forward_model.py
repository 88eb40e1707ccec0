"""The forward model: what the instruments read in one experiment, from the values of the unknowns."""

from collections.abc import Mapping
from typing import Any, get_args

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.analyses.checks import check_controller
from jaxmbd.analyses.equilibrium.equilibrium import equilibrium
from jaxmbd.analyses.simulation.simulate import simulate
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.analyses.simulation.step_control import Accuracy, Adjoint, usual_tolerances
from jaxmbd.arrays import as_float
from jaxmbd.checks import check_finite, check_number
from jaxmbd.errors import check_known
from jaxmbd.identification._experiment import Experiment
from jaxmbd.identification._instruments import Instrument, merged
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.parameters.parameters import Parameters
from jaxmbd.state.state import State

Options = dict[str, Any]  # the arguments of `simulate` that say how a motion is integrated, by name

_NUMBERS = "rtol", "atol", "dtmin", "closure_tolerance"  # they are arguments of what is compiled


def checked_options(given: Options, dtype: Any, unit_of_length: Any) -> Options:
    """Return options with the tolerances that `simulate` would take for a mechanism of such a size.

    **Raises:** `MechanismError` for values that are none.
    """
    check_known("accuracy", [given["accuracy"]], get_args(Accuracy))
    controlled = (given[name] for name in ("stepsize_controller", "rtol", "atol", "control_speeds", "dtmin"))
    check_controller(*controlled)
    if given["closure_tolerance"] is not None:
        check_finite("Problem", "closure_tolerance", as_float(given["closure_tolerance"]))
        check_number("Problem", "closure_tolerance", as_float(given["closure_tolerance"]), "m, rad")
    times = as_float(given["switching_times"])
    check_finite("Problem", "switching_times", times, (np.size(given["switching_times"]),))
    options = given | {"events": tuple(given["events"]), "switching_times": times}
    if options["stepsize_controller"] is None:
        usual = usual_tolerances(options["accuracy"], dtype, unit_of_length)
        for name, tolerance in zip(("rtol", "atol"), usual, strict=True):
            options[name] = tolerance if options[name] is None else options[name]
    return options | {name: jnp.asarray(options[name]) for name in _NUMBERS if options[name] is not None}


def looser(options: Options) -> Options:
    """Return options with twice the tolerances of the step sizes: motions then differ from the present ones by about
    the errors of the integration. Constant steps are part of the model, and stay.

    Source: Hairer, Nørsett, Wanner, *Solving Ordinary Differential Equations I* (1993), §II.4, tolerance
    proportionality.
    """
    tolerances = {name: options[name] for name in ("rtol", "atol") if options[name] is not None}
    return options | {name: 2 * value for name, value in tolerances.items()}


class ForwardModel(eqx.Module):
    """A mechanism with parameters, the instruments through which it is measured, and how its motions are integrated."""

    parameters: Parameters
    instruments: dict[str, Instrument]
    options: Options

    def motion(
        self, parameters: Mapping[str, Any], own: Mapping[str, Array], experiment: Experiment, adjoint: Adjoint
    ) -> tuple[Solution, dict[str, Any], dict[str, Any]]:
        """Return the motion of one experiment, the places of the times that each channel needs, and the values of all
        parameters in this experiment."""
        values, state, mechanism = self.initial(parameters, own, experiment)
        ts = experiment.ts
        grids = {name: self.instruments[name].times(ts, values) for name in experiment.data if name in self.instruments}
        times, places = (ts, []) if not grids else merged([ts, *grids.values()])
        solution = simulate(mechanism, state, times, adjoint=adjoint, throw=False, **self.options)
        return solution, dict(zip(("", *grids), places, strict=False)), values

    def initial(
        self, parameters: Mapping[str, Any], own: Mapping[str, Array], experiment: Experiment
    ) -> tuple[dict[str, Any], State, Mechanism]:
        """Return the values of all parameters in one experiment, its initial state and its mechanism."""
        start, speeds, its_own = experiment.completed(dict(own))
        values = {**self.parameters.fixed, **parameters, **its_own}
        mechanism = self.parameters.mechanism_at(values)
        if experiment.at_rest:
            state = equilibrium(mechanism, start, t=experiment.ts[0], stable=True, check=False).state
        else:
            state = assemble(mechanism, start, speeds=speeds, t=experiment.ts[0], check=False)
        return values, state, mechanism

    def reading(
        self, parameters: Mapping[str, Any], own: Mapping[str, Array], experiment: Experiment, adjoint: Adjoint
    ) -> dict[str, Array]:
        """Return the model's values of the measured channels of one experiment."""
        return self.read(*self.motion(parameters, own, experiment, adjoint), experiment)

    def read(
        self, solution: Solution, places: dict[str, Any], values: dict[str, Any], experiment: Experiment
    ) -> dict[str, Array]:
        """Return the model's values of the measured channels from the `motion` of one experiment."""
        channels = {n: self.instruments[n].channel if n in self.instruments else n for n in experiment.data}
        series = solution.read(tuple(dict.fromkeys(channels.values())))
        readings = {}
        for name, channel in channels.items():
            x = series[channel]
            instrument = self.instruments.get(name)
            x = x if not places else x[places[name if instrument else ""]]
            readings[name] = x if instrument is None else instrument.read(experiment.ts, x, values)
        return readings
