"""How errors of the initial state grow during a record, and how many segments keep that growth small.

An error `δx(0)` becomes `δx(t) = Φ(t) δx(0)`, with the derivative `Φ(t) = ∂x(t)/∂x(0)` of the motion. Its largest
singular value, with each quantity in units of its standard deviation over the record, is the growth: proportional to
the time for a regular motion, exponential for a chaotic one. One search over the whole record converges only from a
start whose errors, grown so, are still small.

Source: Bock, *Recent advances in parameter identification techniques for O.D.E.* (1983); Pikovsky, Politi, *Lyapunov
Exponents* (2016), §2.
"""

import math
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxmbd.errors import SolveError
from jaxmbd.identification._experiment import Experiment
from jaxmbd.identification._forward_model import ForwardModel
from jaxmbd.identification._shooting import chart_of, check_shooting
from jaxmbd.identification._stacks import stacked
from jaxmbd.state.result_codes import number_of, text_of

SINGLE = 100.0  # growth up to which one search over the whole experiment is made
ALLOWED = 10.0  # growth within a segment; of a double pendulum's chaotic 10 s (5e5) four segments do not join, five do


def growth_of_errors(
    model: ForwardModel, parameters: Mapping[str, PyTree], experiments: Sequence[Experiment]
) -> np.ndarray:  # fmt: skip
    """Return how many times an error of the initial state grows during each experiment, for values of the parameters.

    **Returns:** the largest growth from the beginning to any sample of each experiment, `(experiments,)` `[1]`.

    **Raises:** `MechanismError` unless `start` and `speeds` of the experiments, which are estimated, determine their
    states; `SolveError` if an experiment cannot be simulated.
    """
    check_shooting(model.parameters, model.instruments, experiments, 1)
    found = np.empty(len(experiments))
    growth = eqx.filter_jit(jax.vmap(_growth, in_axes=(None, None, 0, 0)))
    for stack in stacked(list(experiments)):
        values, results = map(np.asarray, growth(model, parameters, stack.experiment, stack.lengths))
        for place, value, result in zip(stack.places, values, results, strict=True):
            if not np.isfinite(value):
                raise SolveError(
                    f"The growth of errors cannot be found: experiment {place} cannot be simulated with the values at "
                    f"which the search starts. {text_of(result)} Give another start, or a number of segments."
                )
            found[place] = value
    return found


def _growth(
    model: ForwardModel, parameters: Mapping[str, PyTree], experiment: Experiment, length: Array
) -> tuple[Array, Array]:  # fmt: skip
    """The growth of errors during the first samples of an experiment, and the result code of its simulation."""
    own = experiment.unknowns()
    names = sorted(own)

    def states(start: Array) -> tuple[Array, tuple[Array, Array]]:
        mine = dict(zip(names, start, strict=True))
        solution = model.motion(parameters, mine, experiment, "forward")[0]
        x = chart_of(experiment).series(solution)
        return x, (x, number_of(solution.result))

    derivative, (x, result) = jax.jacfwd(states, has_aux=True)(jnp.stack([own[name] for name in names]))
    is_sample = jnp.arange(len(x)) < length
    spread = jnp.std(x, axis=0, where=is_sample[:, None])
    spread = jnp.where(spread > 0, spread, 1.0)
    scaled = jnp.einsum("tij,i,j->tij", derivative, 1 / spread, spread)
    norms = jnp.linalg.norm(scaled, 2, axis=(1, 2))
    return jnp.max(jnp.where(is_sample, norms, 0.0)), result


def segments_for(growth: float) -> int:
    """Return the number of segments, so many that errors that grow steadily do not grow more than tenfold in each."""
    return 1 if growth <= SINGLE else math.ceil(math.log(growth) / math.log(ALLOWED))


def shooting_text(growth: float) -> str:
    """Return which way of shooting is chosen, and why."""
    segments = segments_for(growth)
    head = "Single shooting" if segments == 1 else f"Multiple shooting with {segments} segments"
    limit = f"up to {SINGLE:g}-fold" if segments == 1 else f"{ALLOWED:g}-fold in a segment"
    return f"{head}: errors of the initial states grow {growth:.2g}-fold during an experiment ({limit} is allowed)"
