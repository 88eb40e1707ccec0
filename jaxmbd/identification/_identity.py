"""What determines the course of a fit, as digests by part, so that its checkpoint is taken for no other fit."""

from collections.abc import Sequence
from importlib.metadata import version

import equinox as eqx
import jax
from jaxtyping import PyTree

from jaxmbd.engine.calls.disk_cache import digest_of_sources
from jaxmbd.engine.calls.identity import UnidentifiedError, identity_of, traced_identity
from jaxmbd.errors import MechanismError
from jaxmbd.identification._problem import Problem
from jaxmbd.identification._unknowns import Unknowns


def identity_of_fit(problem: Problem, starts: Sequence[Unknowns]) -> dict[str, str]:
    """The digest of each part of a search, by what messages call it.

    The computation is the jaxpr of the residuals: laws, functions of the user, loss, formulation,
    solver and its tolerances with all constants, for numbers that are its arguments; these are parts of their own. When
    a search ends (`steps`, `tolerance`) does not determine its course.

    **Raises:** `MechanismError` if it cannot be told what is computed.
    """
    experiments = [stack.experiment for stack in problem.stacks]
    parts = {
        "the measurements": [(one.ts, one.data) for one in experiments],
        "the noise of the measurements": [problem.noise, *((one.sigma, one.correlation_time) for one in experiments)],
        "what is given of the initial states": [(one.start, one.speeds, one.own, one.at_rest) for one in experiments],
        "the measured motions": [one.motion for one in experiments],
        "the numbers of the mechanism, its parameters and instruments": (problem.parameters, problem.instruments),
        "the starts of the search": list(starts),
        "the segments and how they join": ([x.lengths for x in problem.stacks], problem.continuity),
        "the settings of simulate": problem.integration,
    }
    numbers = {name: identity_of(jax.tree.leaves(eqx.filter(part, eqx.is_array))).hex() for name, part in parts.items()}
    numbers["the kind of noise"] = problem.noise
    numbers["the versions of jaxmbd and JAX"] = f"{version('jaxmbd')} {digest_of_sources()} {jax.__version__}"
    return {**numbers, "what the model computes": _computation(problem, starts[0])}


def _computation(problem: Problem, u: Unknowns) -> str:
    arrays, rest = eqx.partition((problem, u), eqx.is_array)

    def residuals(arrays: PyTree) -> PyTree:
        problem, u = eqx.combine(arrays, rest)
        return problem.residuals(problem.physical(u))

    try:
        return traced_identity(residuals, arrays).hex()
    except UnidentifiedError as error:
        raise MechanismError(
            f"fit: a checkpoint serves only a fit that computes the same, and of this one that cannot be told: "
            f"{error}. Leave out checkpoint, or whatever calls Python while it runs (callbacks, debugging)."
        ) from None
