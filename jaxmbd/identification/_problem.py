"""The problem of identification: a mechanism with free numbers, measurements of it, and what joins the two.

With the model's readings `y(θ)`, the measurements `z` and the noise levels `σ`, the residuals are `r = (y(θ) − z) / σ`
(whitened if the noise is coloured), and a fit minimises `½ Σ ρ(r²) + ½ Σ ((g(p) − g(p₀)) / σ_p)²`: the negative
logarithm of the posterior density, but for a constant.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.analyses.checks import check_controller
from jaxmbd.analyses.equilibrium.equilibrium import equilibrium
from jaxmbd.analyses.events.event import Event
from jaxmbd.analyses.output_channels import channel_units
from jaxmbd.analyses.simulation.simulate import simulate
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.analyses.simulation.step_control import Accuracy, Adjoint, usual_tolerances
from jaxmbd.analyses.state import State
from jaxmbd.arrays import as_float
from jaxmbd.checks import check_count, check_finite, check_instance, check_mapping, check_number
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.identification._error_growth import error_growth, segments_for, shooting_text
from jaxmbd.identification._experiment import OWN, SPEED, START, Experiment
from jaxmbd.identification._instruments import Instrument, check_instruments, merged
from jaxmbd.identification._losses import Loss, transformed
from jaxmbd.identification._noise import log_density, whitened
from jaxmbd.identification._shooting import check_shooting
from jaxmbd.identification._stacks import Stack, joined, stacked
from jaxmbd.integrate.formulations.formulation import AbstractFormulation
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.parameters.parameters import Build, Free, Parameters, check_within, collect, start_like
from jaxmbd.parameters.places import Where


class Unknowns(NamedTuple):
    """What is estimated, `θ`: a pytree of arrays.

    - `parameters`: the parameters by name, which all experiments share;
    - `experiments`: for each stack of experiments (`problem.stacks`) what each of them has alone, by name, with the
      experiments on the first axis: `"start:O.angle"`, `"speed:O.angle"`, `"own:payload"`.
    """

    parameters: dict[str, Any]
    experiments: tuple[dict[str, Array], ...]


class Problem(eqx.Module):
    """Parameters of a mechanism and experiments from which they are estimated.

    `residuals`, `log_likelihood`, `log_prior` and `simulate` are functions of `θ`, an `Unknowns` with physical values;
    all of them can be compiled, mapped and differentiated, in both modes. `start()` is the `θ` at which a search
    starts; `unconstrained(θ)` and `physical(u)` map between `θ` and the numbers of a search, which have no ranges,
    but the `bounds()` of parameters in a `Box`.

    **Arguments:**

    - `mechanism`: a mechanism, with free numbers such as `free=["spring.stiffness"]`; or a function from a dictionary
      of parameters to a mechanism, with `free={"k": Parameter(start=100.0)}`;
    - `experiments`: one or several `Experiment`s, also of different lengths and sampling; they are simulated in one
      batch if they differ in numbers only;
    - `free`: names of numbers or patterns, `["rod.mass", "*.stiffness"]`, each with its range,
      `{"rod.mass": Positive()}`; or by a name of your choice the name of a number, a function to a leaf,
      `{"k": lambda m: m["spring"].stiffness}`, or a `Parameter`; empty to estimate initial states only;
    - `instruments`: by the name that `data` uses, an `Instrument`, through which a channel is measured;
    - `inputs`: by name, where numbers or functions belong that each experiment has on its own (its `own`) without
      estimating them: `{"torque": "motor.force"}`, or a function, `{"torque": lambda m: m["motor"].force}`;
    - `loss`: `"squares"`, or a robust one, `"huber"`, `"soft_l1"`, `"cauchy"`, which grows less than the square for
      residuals above `loss_scale` noise levels;
    - `noise`: `"given"` by the experiments, or estimated from the residuals by `fit`, as `"white"` or `"coloured"`
      noise: a noise level for each channel, and for coloured noise its correlation time;
    - `segments`: multiple shooting, for motions that are long or chaotic: each experiment is cut into so many segments,
      each with an initial state of its own; `"auto"`: as many as the growth of errors of the initial states asks for
      (`error_growth`), as `shooting` then says;
    - `continuity`: the standard deviation `[m, rad, m/s, rad/s]` of the jumps between segments, which also stands for
      what the model cannot explain. Zero: without jumps (to 1e-7);
    - `formulation`, `solver`, `accuracy`, `stepsize_controller`, `control_speeds`, `rtol`, `atol`, `dt0`, `dtmin`,
      `events`, `max_events`, `switching_times`, `max_steps`, `closure_tolerance`: as for `simulate`.

    **Raises:** `MechanismError` for unknown channels, values outside their range, or own values that belong nowhere.
    """

    parameters: Parameters
    stacks: tuple[Stack, ...]
    instruments: dict[str, Instrument]
    options: dict[str, Any]
    loss: Loss = eqx.field(static=True)
    loss_scale: float = eqx.field(static=True)
    noise: Literal["given", "white", "coloured"] = eqx.field(static=True)
    continuity: float = eqx.field(static=True)
    growth: Float[np.ndarray, " experiments"] | None = None

    def __init__(
        self,
        mechanism: Mechanism | Build,
        experiments: Experiment | Sequence[Experiment],
        free: Free | None = None,
        *,
        instruments: Mapping[str, Instrument] | None = None,
        inputs: Mapping[str, Where] | Sequence[str] | None = None,
        loss: Loss = "squares",
        loss_scale: float = 1.5,
        noise: Literal["given", "white", "coloured"] = "given",
        segments: int | Literal["auto"] = 1,
        continuity: float | int = 0.0,
        formulation: AbstractFormulation | None = None,
        solver: dfx.AbstractSolver | Literal["stiff"] | None = None,
        accuracy: Accuracy = "standard",
        stepsize_controller: dfx.AbstractStepSizeController | None = None,
        control_speeds: bool = False,
        rtol: float | int | None = None,
        atol: float | int | None = None,
        dt0: float | int | None = None,
        dtmin: float | int | None = None,
        events: Iterable[Event] = (),
        max_events: int = 32,
        switching_times: Any = (),
        max_steps: int = 2**16,
        closure_tolerance: float | None = None,
    ) -> None:
        check_known("loss", [loss], get_args(Loss))
        check_known("noise", [noise], ("given", "white", "coloured"))
        check_known("accuracy", [accuracy], get_args(Accuracy))
        check_controller(stepsize_controller, rtol, atol, control_speeds, dtmin)
        _check_numbers(loss_scale, continuity, closure_tolerance, switching_times)
        check_instance("Problem: events", events, Iterable, "a sequence of events, [Event(...)]")
        check_mapping("instruments", instruments, "{'gyro': Instrument('arm.omega')}")
        self.parameters = collect(mechanism, free, inputs)
        self.instruments = dict(instruments or {})
        listed = _listed(experiments)
        _check(self.parameters, self.instruments, listed)
        if segments != "auto":
            check_count("Problem: segments", segments, 1)
        self.stacks = stacked(listed)
        if stepsize_controller is None:
            usual = usual_tolerances(accuracy, listed[0].ts.dtype, self.parameters.unit_of_length(listed[0].own))
            rtol, atol = usual[0] if rtol is None else rtol, usual[1] if atol is None else atol
        self.options = {
            "formulation": formulation, "solver": solver, "accuracy": accuracy, "max_steps": max_steps,
            "stepsize_controller": stepsize_controller, "control_speeds": control_speeds,
            "rtol": None if rtol is None else jnp.asarray(rtol), "atol": None if atol is None else jnp.asarray(atol),
            "dt0": dt0, "dtmin": None if dtmin is None else jnp.asarray(dtmin), "events": tuple(events),
            "max_events": max_events, "switching_times": as_float(switching_times),
            "closure_tolerance": None if closure_tolerance is None else jnp.asarray(closure_tolerance),
        }  # fmt: skip
        self.loss, self.loss_scale, self.noise, self.continuity = loss, float(loss_scale), noise, float(continuity)
        if segments == "auto":
            self.growth = error_growth(self)
            segments = segments_for(self.growth.max())
        if segments > 1:
            check_shooting(self.parameters, self.instruments, listed, segments)
            self.stacks = stacked(listed, segments)

    # --- unknowns ---------------------------------------------------------------------------------------

    @property
    def shared(self) -> tuple[str, ...]:
        """The parameters that are estimated and not the own ones of every experiment."""
        own = set.intersection(*(set(stack.experiment.own) for stack in self.stacks))
        return tuple(name for name in self.parameters.order if name not in self.parameters.fixed and name not in own)

    def start(self) -> Unknowns:
        """Return the unknowns at which a search starts."""
        own = tuple(jax.vmap(Experiment.unknowns)(stack.experiment) for stack in self.stacks)
        return Unknowns({name: self.parameters.start[name] for name in self.shared}, own)

    @property
    def is_cut(self) -> bool:
        """True if experiments are cut into segments."""
        return any(stack.segments > 1 for stack in self.stacks)

    @property
    def shooting(self) -> str:
        """Which way of shooting `segments="auto"` has chosen, and why; empty if it was not asked to."""
        return "" if self.growth is None else shooting_text(float(self.growth.max()))

    @property
    def samples(self) -> int:
        """The number of measured numbers, without those that are missing."""
        channels = (x for stack in self.stacks for x in stack.experiment.data.values())
        return sum(int(np.isfinite(np.asarray(x)).sum()) for x in channels)

    def parameter_names(self) -> tuple[str, ...]:
        """Return the names of the numbers of all shared parameters, sorted by the parameters' names."""
        start = self.start().parameters
        return tuple(label for name in sorted(start) for label in self.parameters.labels(name))

    def names(self) -> tuple[str, ...]:
        """Return the names of all numbers that are estimated, parameters first, then experiment by experiment."""
        start, names = self.start(), list(self.parameter_names())
        several = sum(stack.lanes for stack in self.stacks) > self.stacks[0].segments
        for stack, own in zip(self.stacks, start.experiments, strict=True):
            for k, place in enumerate(stack.places):
                where = f" in experiment {place}" * several + f", segment {k % stack.segments}" * (stack.segments > 1)
                names += [_label(name) + where for name in sorted(own)]
        return tuple(names)

    def owners(self) -> tuple[str, ...]:
        """Return the parameter that each number of `names()` belongs to; those of single experiments by their names."""
        labels = self.parameters.labels
        shared = [name for name in sorted(self.start().parameters) for _ in labels(name)]
        return (*shared, *self.names()[len(shared) :])

    def validation(self, theta: Unknowns, experiments: Experiment | Sequence[Experiment]) -> "Problem":
        """Return the problem with the parameters fixed at those of `theta`, for other experiments."""
        listed = _listed(experiments)
        parameters = eqx.tree_at(
            lambda p: p.fixed, self.parameters, self.parameters.fixed | theta.parameters,
            is_leaf=lambda x: x is self.parameters.fixed,
        )  # fmt: skip
        _check_names(parameters, self.instruments, listed)
        return eqx.tree_at(lambda p: (p.parameters, p.stacks), self, (parameters, stacked(listed)))

    def starting_at(self, values: Unknowns | Mapping[str, Any]) -> "Problem":
        """Return the problem whose search starts at other values: at the `theta` of another fit of the same
        experiments, or at the values of some parameters by name, such as the `parameters` of any other fit.

        **Raises:** `MechanismError` for unknown names, values outside their range, or unknowns of other experiments.
        """
        if not isinstance(values, Unknowns):
            check_mapping("starting_at: values", values, "{'stiffness': 100.0}")
        theta = values if isinstance(values, Unknowns) else Unknowns(dict(values), tuple({} for _ in self.stacks))
        if isinstance(values, Unknowns):
            _check_alike(theta.experiments, self.start().experiments)
        known, problem = self.parameters.start, self
        check_known("free parameter", theta.parameters, known)
        for name, value in theta.parameters.items():
            start = start_like(name, value, known[name])
            check_within(f"Free parameter {name!r} starts at", self.parameters.free[name], start)
            problem = eqx.tree_at(lambda p, n=name: p.parameters.start[n], problem, start)
        pairs = zip(self.stacks, theta.experiments, strict=True)
        stacks = tuple(eqx.tree_at(lambda s: s.experiment, s, s.experiment.starting_at(own)) for s, own in pairs)
        return eqx.tree_at(lambda p: p.stacks, problem, stacks)

    def with_looser_steps(self) -> "Problem":
        """Return the problem with twice the tolerances of the step sizes: its motions then differ from the present ones
        by about the errors of the integration. Constant steps are part of the model, and stay.

        Source: Hairer, Nørsett, Wanner, *Solving Ordinary Differential Equations I* (1993), §II.4, tolerance
        proportionality.
        """
        tolerances = {name: self.options[name] for name in ("rtol", "atol") if self.options[name] is not None}
        looser = self.options | {name: 2 * value for name, value in tolerances.items()}
        return eqx.tree_at(lambda p: p.options, self, looser)

    def unconstrained(self, theta: Unknowns) -> Unknowns:
        """Return the numbers of a search from physical values."""
        return self._mapped(self.parameters.unconstrained, theta)

    def physical(self, u: Unknowns) -> Unknowns:
        """Return physical values from the numbers of a search."""
        return self._mapped(self.parameters.physical, u)

    def _mapped(self, mapped: Any, x: Unknowns) -> Unknowns:
        own = []
        for values in x.experiments:
            numbers = {name.removeprefix(OWN): value for name, value in values.items() if name.startswith(OWN)}
            own.append(values | {OWN + name: value for name, value in mapped(numbers).items()})
        return Unknowns(mapped(x.parameters), tuple(own))

    def bounds(self) -> tuple[Unknowns, Unknowns]:
        """Return the least and the largest numbers of a search, infinite but for parameters in a `Box`.

        A solver that does not keep to them meets mechanisms that cannot be.
        """
        start, sides = self.start(), []
        for side, limit in zip(self.parameters.bounds(), (-jnp.inf, jnp.inf), strict=True):
            own = []
            for values in start.experiments:
                everywhere = {name: jnp.full_like(x, limit) for name, x in values.items()}
                mine = {n: side[n.removeprefix(OWN)] for n in values if n.startswith(OWN)}
                own.append(everywhere | {n: jnp.broadcast_to(x, values[n].shape) for n, x in mine.items()})
            sides.append(Unknowns({name: side[name] for name in start.parameters}, tuple(own)))
        return sides[0], sides[1]

    # --- the model and its residuals ----------------------------------------------------------------------

    def mechanism(self, theta: Unknowns) -> Mechanism:
        """Return the mechanism for the shared parameters."""
        return self.parameters.mechanism_at({**self.parameters.fixed, **theta.parameters})

    def simulate(self, theta: Unknowns, adjoint: Adjoint = "any") -> tuple[Solution, ...]:
        """Return the motions of each stack of experiments, with the experiments on the first axis."""
        alone = lambda own, experiment: self.motion(theta.parameters, own, experiment, adjoint)[0]  # noqa: E731
        return tuple(
            eqx.filter_vmap(alone)(own, stack.experiment)
            for own, stack in zip(theta.experiments, self.stacks, strict=True)
        )

    def readings(self, theta: Unknowns, adjoint: Adjoint = "any") -> tuple[dict[str, Array], ...]:
        """Return the model's values of the measured channels for each stack, `(experiments, samples, ...)`."""
        alone = lambda own, experiment: self.reading(theta.parameters, own, experiment, adjoint)  # noqa: E731
        return tuple(
            jax.vmap(alone)(own, stack.experiment) for own, stack in zip(theta.experiments, self.stacks, strict=True)
        )

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

    def whitened(self, readings: dict[str, Array], experiment: Experiment) -> dict[str, tuple[Array, Array, Array]]:
        """Return for each channel of one experiment the independent residuals in units of the noise, the logarithms of
        their scales, and which samples are present."""
        found = {}
        for name, measured in experiment.data.items():
            if readings[name].shape != measured.shape:
                raise MechanismError(
                    f"Channel {name!r} must have the shape {readings[name].shape}, as in the model, got "
                    f"{measured.shape}."
                )
            present = jnp.isfinite(measured)
            errors = readings[name] - jnp.where(present, measured, 0.0)
            level = experiment.sigma[name], experiment.correlation_time[name]
            found[name] = (*whitened(errors, present, experiment.ts, *level), present)
        return found

    def residual(self, readings: dict[str, Array], experiment: Experiment) -> Float[Array, " rows"]:
        """Return the residuals of one experiment, transformed for the loss."""
        parts = [r.reshape(-1) for r, *_ in self.whitened(readings, experiment).values()]
        return transformed(self.loss, self.loss_scale, jnp.concatenate(parts))

    def residuals(self, theta: Unknowns, adjoint: Adjoint = "any") -> Float[Array, " rows"]:
        """Return the residuals of all experiments, stack by stack: `(model − measured) / σ`, zero for missing samples,
        whitened for coloured noise and transformed for a robust loss (`½ Σ r²` is then the loss)."""
        pairs = zip(self.readings(theta, adjoint), self.stacks, strict=True)
        return jnp.concatenate([jax.vmap(self.residual)(x, stack.experiment).reshape(-1) for x, stack in pairs])

    def prior_residuals(self, theta: Unknowns) -> Float[Array, " rows"]:
        """Return the residuals of the priors; those of own parameters follow the shared ones."""
        rows = [free.prior.residual(x).reshape(-1) for free, x in self._with_priors(theta)]
        return jnp.concatenate(rows) if rows else jnp.zeros(0)

    def log_prior(self, theta: Unknowns) -> Float[Array, ""]:
        """Return the logarithm of the prior density; zero for parameters that have no prior."""
        return sum((jnp.sum(free.prior.log_density(x)) for free, x in self._with_priors(theta)), jnp.zeros(()))

    def _with_priors(self, theta: Unknowns) -> list[tuple[Any, Array]]:
        numbers = [*theta.parameters.items()]
        for own in theta.experiments:
            numbers += [(name.removeprefix(OWN), x) for name, x in own.items() if name.startswith(OWN)]
        free = self.parameters.free
        given = [(free[n], x) for n, x in numbers if free[n].prior is not None]
        return [(parameter, jnp.asarray(leaf)) for parameter, x in given for leaf in jax.tree.leaves(x)]

    def log_likelihood(self, theta: Unknowns, adjoint: Adjoint = "any") -> Float[Array, ""]:
        """Return the logarithm of the density of the measurements for given unknowns.

        With a robust loss it is `−½ Σ ρ(r²)`, without the constant that would make its integral one.
        """
        total = jnp.zeros(())
        for readings, stack in zip(self.readings(theta, adjoint), self.stacks, strict=True):
            for r, logs, present in jax.vmap(self.whitened)(readings, stack.experiment).values():
                total += log_density(transformed(self.loss, self.loss_scale, r), logs, present)
        return total

    def objective(self, theta: Unknowns, adjoint: Adjoint = "any") -> Float[Array, ""]:
        """Return what a fit minimises: half the sum of the squares of all residuals, without jumps between segments."""
        r = jnp.concatenate([self.residuals(theta, adjoint), self.prior_residuals(theta)])
        return 0.5 * jnp.sum(r**2)

    def experiments(self) -> tuple[Experiment, ...]:
        """Return the experiments in the order in which they were given, without what makes those of a stack alike."""
        parts: dict[int, list[Experiment]] = {}
        for stack in self.stacks:
            for k, place in enumerate(stack.places):
                n, whole = int(stack.lengths[k]), jax.tree.map(lambda x, k=k: x[k], stack.experiment)
                data = {name: x[:n] for name, x in whole.data.items()}
                parts.setdefault(place, []).append(eqx.tree_at(lambda e: (e.ts, e.data), whole, (whole.ts[:n], data)))
        return tuple(_without_empty(joined(parts[place])) for place in sorted(parts))


def _without_empty(experiment: Experiment) -> Experiment:
    """The experiment without channels that it does not have."""
    data = {name: x for name, x in experiment.data.items() if np.isfinite(np.asarray(x)).any()}
    return eqx.tree_at(lambda e: e.data, experiment, data)


def _check_alike(given: Sequence[Any], expected: Sequence[Any]) -> None:
    """Raise unless unknowns of experiments belong to those of a problem."""
    shapes = [[{name: jnp.shape(x) for name, x in own.items()} for own in owns] for owns in (given, expected)]
    if shapes[0] != shapes[1]:
        texts = ["; ".join(", ".join(f"{n} {s}" for n, s in own.items()) or "none" for own in x) for x in shapes]
        raise MechanismError(
            f"starting_at: theta has the unknowns of other experiments, {texts[0]}; those of this problem are "
            f"{texts[1]}. Give the values of parameters alone, starting_at(other.parameters)."
        )


def _label(name: str) -> str:
    """The name of an unknown of one experiment."""
    kinds = {START: "initial ", SPEED: "initial speed of ", OWN: ""}
    return next(kind + name.removeprefix(prefix) for prefix, kind in kinds.items() if name.startswith(prefix))


def _listed(experiments: Any) -> list[Experiment]:
    if not isinstance(experiments, Experiment | Iterable):
        raise MechanismError(f"fit: experiments must be an Experiment or a sequence of them, got {experiments!r}.")
    listed = [experiments] if isinstance(experiments, Experiment) else list(experiments)
    if not listed:
        raise MechanismError("fit needs at least one Experiment.")
    for experiment in listed:
        if not isinstance(experiment, Experiment):
            raise MechanismError(f"experiments must be Experiments, got {type(experiment).__name__}.")
    return listed


def _check_numbers(loss_scale: Any, continuity: Any, closure_tolerance: Any, switching_times: Any) -> None:
    checks = [("loss_scale", loss_scale, "1", False), ("continuity", continuity, "m, rad, m/s, rad/s", True)]
    checks += [] if closure_tolerance is None else [("closure_tolerance", closure_tolerance, "m, rad", False)]
    for field, value, unit, zero in checks:
        check_finite("Problem", field, as_float(value))
        check_number("Problem", field, as_float(value), unit, zero=zero)
    check_finite("Problem", "switching_times", as_float(switching_times), (np.size(switching_times),))


def _check(parameters: Parameters, instruments: dict[str, Instrument], experiments: list[Experiment]) -> None:
    if not parameters.free and not any(experiment.estimate for experiment in experiments):
        raise MechanismError("Nothing is free: give free parameters, or experiments with estimate=True.")
    _check_names(parameters, instruments, experiments)
    if not any(np.isfinite(np.asarray(x)).any() for experiment in experiments for x in experiment.data.values()):
        raise MechanismError("fit: all samples of all experiments are missing: there is nothing to fit.")
    used = {name for instrument in instruments.values() for name in instrument.names()}
    for name, free in parameters.free.items():
        if parameters.build is None and free.where is None and name not in used:
            raise MechanismError(
                f"Free parameter {name!r} has no effect: it needs a place, Parameter('part.number') or "
                "where=lambda m: m['part'].number, or an instrument that refers to it."
            )


def _check_names(parameters: Parameters, instruments: dict[str, Instrument], experiments: list[Experiment]) -> None:
    """Raise unless channels, own values and instruments refer to names that exist."""
    units = channel_units(parameters.mechanism_at({**parameters.start, **experiments[0].own}))
    check_instruments(instruments, units, parameters.free)
    for instrument in instruments.values():
        check_known("channel", [instrument.channel], units)
    for k, experiment in enumerate(experiments):
        check_known("channel", experiment.data, (*units, *instruments))
        for name in experiment.own.keys() & parameters.free.keys():
            check_within(f"Experiment {k}: own {name!r} is", parameters.free[name], experiment.own[name])
        if parameters.build is None:
            check_known("own parameter or input", experiment.own, (*parameters.free, *parameters.inputs))
        own = [name.removeprefix(OWN) for name in experiment.estimate if name.startswith(OWN)]
        check_known("free parameter with this own value", own, parameters.free)
