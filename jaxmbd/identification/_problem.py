"""The problem of identification: a mechanism with free numbers, measurements of it, and what joins the two.

With the model's readings `y(θ)`, the measurements `z` and the noise levels `σ`, the residuals are `r = (y(θ) − z) / σ`
(whitened if the noise is coloured), and a fit minimises `½ Σ ρ(r²) + ½ Σ ((g(p) − g(p₀)) / σ_p)²`: the negative
logarithm of the posterior density, but for a constant.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, Unpack, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxmbd.analyses.simulation.settings import Adjoint, Integration, Settings, chosen_integration
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.arrays import as_float
from jaxmbd.checks import check_count, check_finite, check_mapping, check_number
from jaxmbd.errors import check_known
from jaxmbd.identification._data import check_data, check_names, experiments_of, listed, reconciled_with, samples_of
from jaxmbd.identification._error_growth import growth_of_errors, segments_for, shooting_text
from jaxmbd.identification._experiment import Experiment
from jaxmbd.identification._forward_model import ForwardModel, looser, with_usual_tolerances
from jaxmbd.identification._instruments import Instrument
from jaxmbd.identification._likelihood import Likelihood, Noise, log_prior, prior_residuals
from jaxmbd.identification._losses import Loss
from jaxmbd.identification._shooting import check_shooting
from jaxmbd.identification._stacks import Stack, stacked
from jaxmbd.identification._unknowns import Unknowns, bounds_of, check_alike, names_of_own, start_of
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.parameters.parameters import Build, Free, Parameters, check_within, collect, start_like
from jaxmbd.parameters.places import Where

# Keywords of `Problem` that are no settings.
_OWN = "instruments", "inputs", "loss", "loss_scale", "noise", "segments", "continuity"


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
      estimating them: `{"torque": "motor.force"}`, or a function, `{"torque": lambda m: m["motor"].force}`; or the name
      of an input (`jaxmbd.inputs`) to which they are added, `{"torque": "O.angle"}`;
    - `loss`: `"squares"`, or a robust one, `"huber"`, `"soft_l1"`, `"cauchy"`, which grows less than the square for
      residuals above `loss_scale` noise levels;
    - `noise`: `"given"` by the experiments, or estimated from the residuals by `fit`, as `"white"` or `"coloured"`
      noise: a noise level for each channel, and for coloured noise its correlation time;
    - `segments`: multiple shooting, for motions that are long or chaotic: each experiment is cut into so many segments,
      each with an initial state of its own; `"auto"`: as many as the growth of errors of the initial states asks for
      (`error_growth`), as `shooting` then says;
    - `continuity`: the standard deviation of the jumps between segments, which also stands for what the model cannot
      explain, of angles in radians, of lengths and speeds in units that suit the mechanism: metres and seconds for one
      of about a metre. Zero: without jumps (to 1e-7);
    - `integration`: how motions are integrated, an `Integration`; or `settings` by name, as for `simulate`.

    **Raises:** `MechanismError` for unknown channels, values outside their range, or own values that belong nowhere.
    """

    model: ForwardModel
    likelihood: Likelihood
    stacks: tuple[Stack, ...]
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
        noise: Noise = "given",
        segments: int | Literal["auto"] = 1,
        continuity: float | int = 0.0,
        integration: Integration | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        check_known("loss", [loss], get_args(Loss))
        check_known("noise", [noise], get_args(Noise))
        _check_numbers(loss_scale, continuity)
        check_mapping("instruments", instruments, "{'gyro': Instrument('arm.omega')}")
        chosen = chosen_integration("Problem", integration, settings, _OWN)
        parameters, given, measured = collect(mechanism, free, inputs), dict(instruments or {}), listed(experiments)
        check_data(parameters, given, measured)
        measured = reconciled_with(parameters, measured)
        if segments != "auto":
            check_count("Problem: segments", segments, 1)
        unit_of_length = parameters.unit_of_length(measured[0].own)
        settled = with_usual_tolerances(chosen, measured[0].ts.dtype, unit_of_length)
        self.model = ForwardModel(parameters, given, settled)
        self.likelihood = Likelihood(loss, float(loss_scale), noise)
        self.stacks, self.continuity = stacked(measured), float(continuity)
        if segments == "auto":
            self.growth = growth_of_errors(self.model, self.start().parameters, measured)
            segments = segments_for(self.growth.max())
        if segments > 1:
            check_shooting(parameters, given, measured, segments)
            self.stacks = stacked(measured, segments)

    # --- its parts --------------------------------------------------------------------------------------

    @property
    def parameters(self) -> Parameters:
        """The parameters: what is free and what is fixed."""
        return self.model.parameters

    @property
    def instruments(self) -> dict[str, Instrument]:
        """The instruments by name."""
        return self.model.instruments

    @property
    def integration(self) -> Integration:
        """How motions are integrated, with the tolerances that `simulate` takes for a mechanism of such a size."""
        return self.model.integration

    @property
    def noise(self) -> Noise:
        """How the noise is known."""
        return self.likelihood.noise

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
        return samples_of(self.stacks)

    def experiments(self) -> tuple[Experiment, ...]:
        """Return the experiments in the order in which they were given, without what makes those of a stack alike."""
        return experiments_of(self.stacks)

    # --- unknowns ---------------------------------------------------------------------------------------

    @property
    def shared(self) -> tuple[str, ...]:
        """The parameters that are estimated and not the own ones of every experiment."""
        return tuple(self.start().parameters)

    def start(self) -> Unknowns:
        """Return the unknowns at which a search starts."""
        return start_of(self.parameters, self.stacks)

    def parameter_names(self) -> tuple[str, ...]:
        """Return the names of the numbers of all shared parameters, sorted by the parameters' names."""
        start = self.start().parameters
        return tuple(label for name in sorted(start) for label in self.parameters.labels(name))

    def names(self) -> tuple[str, ...]:
        """Return the names of all numbers that are estimated, parameters first, then experiment by experiment."""
        return (*self.parameter_names(), *names_of_own(self.stacks, self.start()))

    def owners(self) -> tuple[str, ...]:
        """Return the parameter that each number of `names()` belongs to; those of single experiments by their names."""
        shared = [name for name in sorted(self.start().parameters) for _ in self.parameters.labels(name)]
        return (*shared, *names_of_own(self.stacks, self.start()))

    def unconstrained(self, theta: Unknowns) -> Unknowns:
        """Return the numbers of a search from physical values."""
        return theta.mapped(self.parameters.unconstrained)

    def physical(self, u: Unknowns) -> Unknowns:
        """Return physical values from the numbers of a search."""
        return u.mapped(self.parameters.physical)

    def bounds(self) -> tuple[Unknowns, Unknowns]:
        """Return the least and the largest numbers of a search, infinite but for parameters in a `Box`.

        A solver that does not keep to them meets mechanisms that cannot be.
        """
        return bounds_of(self.parameters, self.start())

    # --- other problems ---------------------------------------------------------------------------------

    def validation(self, theta: Unknowns, experiments: Experiment | Sequence[Experiment]) -> "Problem":
        """Return the problem with the parameters fixed at those of `theta`, for other experiments."""
        found = listed(experiments)
        parameters = eqx.tree_at(
            lambda p: p.fixed, self.parameters, self.parameters.fixed | theta.parameters,
            is_leaf=lambda x: x is self.parameters.fixed,
        )  # fmt: skip
        check_names(parameters, self.instruments, found)
        found = reconciled_with(parameters, found)
        return eqx.tree_at(lambda p: (p.model.parameters, p.stacks), self, (parameters, stacked(found)))

    def starting_at(self, values: Unknowns | Mapping[str, PyTree]) -> "Problem":
        """Return the problem whose search starts at other values: at the `theta` of another fit of the same
        experiments, or at the values of some parameters by name, such as the `parameters` of any other fit.

        **Raises:** `MechanismError` for unknown names, values outside their range, or unknowns of other experiments.
        """
        if not isinstance(values, Unknowns):
            check_mapping("starting_at: values", values, "{'stiffness': 100.0}")
        theta = values if isinstance(values, Unknowns) else Unknowns(dict(values), tuple({} for _ in self.stacks))
        if isinstance(values, Unknowns):
            check_alike(theta.experiments, self.start().experiments)
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
        """Return the problem with twice the tolerances of the step sizes."""
        return eqx.tree_at(lambda p: p.model.integration, self, looser(self.integration))

    # --- the model and its residuals --------------------------------------------------------------------

    def mechanism(self, theta: Unknowns) -> Mechanism:
        """Return the mechanism for the shared parameters."""
        return self.parameters.mechanism_at({**self.parameters.fixed, **theta.parameters})

    def simulate(self, theta: Unknowns, adjoint: Adjoint | None = None) -> tuple[Solution, ...]:
        """Return the motions of each stack of experiments, with the experiments on the first axis."""
        alone = lambda own, experiment: self.model.motion(theta.parameters, own, experiment, adjoint)[0]  # noqa: E731
        return tuple(
            eqx.filter_vmap(alone)(own, stack.experiment)
            for own, stack in zip(theta.experiments, self.stacks, strict=True)
        )

    def readings(self, theta: Unknowns, adjoint: Adjoint | None = None) -> tuple[dict[str, Array], ...]:
        """Return the model's values of the measured channels for each stack, `(experiments, samples, ...)`."""
        alone = lambda own, experiment: self.model.reading(theta.parameters, own, experiment, adjoint)  # noqa: E731
        return tuple(
            jax.vmap(alone)(own, stack.experiment) for own, stack in zip(theta.experiments, self.stacks, strict=True)
        )

    def residuals(self, theta: Unknowns, adjoint: Adjoint | None = None) -> Float[Array, " rows"]:
        """Return the residuals of all experiments, stack by stack: `(model − measured) / σ`, zero for missing samples,
        whitened for coloured noise and transformed for a robust loss (`½ Σ r²` is then the loss)."""
        pairs, residual = zip(self.readings(theta, adjoint), self.stacks, strict=True), self.likelihood.residual
        return jnp.concatenate([jax.vmap(residual)(x, stack.experiment).reshape(-1) for x, stack in pairs])

    def prior_residuals(self, theta: Unknowns) -> Float[Array, " rows"]:
        """Return the residuals of the priors; those of own parameters follow the shared ones."""
        return prior_residuals(self.parameters, theta)

    def log_prior(self, theta: Unknowns) -> Float[Array, ""]:
        """Return the logarithm of the prior density; zero for parameters that have no prior."""
        return log_prior(self.parameters, theta)

    def log_likelihood(self, theta: Unknowns, adjoint: Adjoint | None = None) -> Float[Array, ""]:
        """Return the logarithm of the density of the measurements for given unknowns.

        With a robust loss it is `−½ Σ ρ(r²)`, without the constant that would make its integral one.
        """
        pairs, density = zip(self.readings(theta, adjoint), self.stacks, strict=True), self.likelihood.log_density
        return sum((jnp.sum(jax.vmap(density)(x, stack.experiment)) for x, stack in pairs), jnp.zeros(()))

    def objective(self, theta: Unknowns, adjoint: Adjoint | None = None) -> Float[Array, ""]:
        """Return what a fit minimises: half the sum of the squares of all residuals, without jumps between segments."""
        r = jnp.concatenate([self.residuals(theta, adjoint), self.prior_residuals(theta)])
        return 0.5 * jnp.sum(r**2)


def _check_numbers(loss_scale: object, continuity: object) -> None:
    for field, value, zero in (("loss_scale", loss_scale, False), ("continuity", continuity, True)):
        check_finite("Problem", field, as_float(value))
        check_number("Problem", field, as_float(value), "1", zero=zero)
