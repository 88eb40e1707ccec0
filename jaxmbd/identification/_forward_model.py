"""The forward model: what the instruments read in one experiment, from the values of the unknowns."""

from collections.abc import Mapping
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.analyses.equilibrium.equilibrium import equilibrium
from jaxmbd.analyses.inverse_dynamics import inverse_dynamics
from jaxmbd.analyses.kinematics import kinematics
from jaxmbd.analyses.simulation.settings import Adjoint, Integration
from jaxmbd.analyses.simulation.simulate import simulate
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.analyses.simulation.step_control import usual_tolerances
from jaxmbd.arrays import Scalar
from jaxmbd.identification._experiment import Experiment
from jaxmbd.identification._instruments import Instrument, merged
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.parameters.parameters import Parameters
from jaxmbd.state.state import State


def with_usual_tolerances(
    integration: Integration, dtype: np.dtype, unit_of_length: Scalar | np.floating | np.ndarray
) -> Integration:
    """Return an integration with the tolerances that `simulate` would take for a mechanism of such a size. Numbers are
    arrays, so that they are arguments of what is compiled."""
    names = "rtol", "atol", "dtmin", "closure_tolerance"
    numbers = {name: getattr(integration, name) for name in names}
    if integration.stepsize_controller is None:
        usual = usual_tolerances(integration.accuracy, dtype, unit_of_length)
        for name, tolerance in zip(("rtol", "atol"), usual, strict=True):
            numbers[name] = tolerance if numbers[name] is None else numbers[name]
    return replace(integration, **{name: jnp.asarray(x) for name, x in numbers.items() if x is not None})


def looser(integration: Integration) -> Integration:
    """Return an integration with twice the tolerances of the step sizes: motions then differ from the present ones by
    about the errors of the integration. Constant steps are part of the model, and stay.

    Source: Hairer, Nørsett, Wanner, *Solving Ordinary Differential Equations I* (1993), §II.4, tolerance
    proportionality.
    """
    names = [name for name in ("rtol", "atol") if getattr(integration, name) is not None]
    # Not by `replace`, whose checks want single numbers: of problems that are solved side by side they are stacked.
    tolerances = lambda of: [getattr(of, name) for name in names]  # noqa: E731
    return (
        eqx.tree_at(tolerances, integration, [2 * value for value in tolerances(integration)]) if names else integration
    )


class ForwardModel(eqx.Module):
    """A mechanism with parameters, the instruments through which it is measured, and how its motions are integrated."""

    parameters: Parameters
    instruments: dict[str, Instrument]
    integration: Integration

    def motion(
        self,
        parameters: Mapping[str, PyTree],
        own: Mapping[str, Array],
        experiment: Experiment,
        adjoint: Adjoint | None,
    ) -> tuple[Solution, dict[str, Array], dict[str, PyTree]]:
        """Return the motion of one experiment, the places of the times that each channel needs, and the values of all
        parameters in this experiment."""
        values, state, mechanism = self.initial(parameters, own, experiment)
        ts = experiment.ts
        grids = {name: self.instruments[name].times(ts, values) for name in experiment.data if name in self.instruments}
        times, places = (ts, []) if not grids else merged([ts, *grids.values()])
        if experiment.motion is not None:
            solution = self._efforts(mechanism, state, times, experiment)
        else:
            chosen = self.integration if adjoint is None else replace(self.integration, adjoint=adjoint)
            solution = simulate(mechanism, state, times, chosen, throw=False)
        return solution, dict(zip(("", *grids), places, strict=False)), values

    def initial(
        self, parameters: Mapping[str, PyTree], own: Mapping[str, Array], experiment: Experiment
    ) -> tuple[dict[str, PyTree], State, Mechanism]:
        """Return the values of all parameters in one experiment, its initial state and its mechanism."""
        start, speeds, its_own = experiment.completed(dict(own))
        values = {**self.parameters.fixed, **parameters, **its_own}
        mechanism = self.parameters.mechanism_at(values)
        if experiment.motion is not None:
            state = assemble(experiment.motion.driven(mechanism), t=experiment.ts[0], check=False)
        elif experiment.at_rest:
            state = equilibrium(mechanism, start, t=experiment.ts[0], stable=True, check=False).state
        else:
            state = assemble(mechanism, start, speeds=speeds, t=experiment.ts[0], check=False)
        return values, state, mechanism

    def _efforts(self, mechanism: Mechanism, state: State, times: Array, experiment: Experiment) -> Solution:
        """The measured motion of an experiment, with the efforts that it takes."""
        assert experiment.motion is not None
        motion = kinematics(experiment.motion.driven(mechanism), times, state, throw=False)
        actuators = None if experiment.actuators is None else dict(experiment.actuators)
        return inverse_dynamics(mechanism, motion, actuators, throw=False)

    def reading(
        self,
        parameters: Mapping[str, PyTree],
        own: Mapping[str, Array],
        experiment: Experiment,
        adjoint: Adjoint | None,
    ) -> dict[str, Array]:
        """Return the model's values of the measured channels of one experiment."""
        return self.read(*self.motion(parameters, own, experiment, adjoint), experiment)

    def read(
        self, solution: Solution, places: dict[str, Array], values: dict[str, PyTree], experiment: Experiment
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
