"""What the time loop of explicit motions runs: methods as numbers, and programs of rates with their tangents."""

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.engine.binding.jax_binding import register
from jaxmbd.engine.binding.tracing import Differentiation, TracedFunction
from jaxmbd.engine.machine.gpu.kernel_part import PULL, Part, Role
from jaxmbd.engine.numpy_code.translation import evaluated
from jaxmbd.engine.program.schedule import Program
from jaxmbd.integrate.solvers.unrolled_erk import DenseOutputWeights, ExplicitMethod, tableau_of

DEGREE = 8  # of the polynomials in the dense output of any of diffrax's explicit methods, at most


class Tableau(NamedTuple):
    """A method as the virtual machine reads it: `a, b, c, e` and the polynomials of the dense output, side by side."""

    numbers: np.ndarray
    stages: int
    fsal: bool
    ssal: bool

    def dense_output(self, dtype: np.dtype) -> Array:
        """The coefficients of the polynomials of the dense output, a row for each slope, highest powers first."""
        return jnp.asarray(self.numbers[-self.stages * (DEGREE + 1) :].reshape(self.stages, -1), dtype)


@lru_cache(maxsize=32)
def numbers_of(method: ExplicitMethod) -> Tableau:
    tableau = tableau_of(method)
    stages = tableau.num_stages
    a = np.zeros((stages, stages))
    for i, row in enumerate(tableau.a_lower, 1):
        a[i, : len(row)] = row
    nodes = (1 + np.cos(np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1))) / 2
    with jax.enable_x64(True):  # the tableau serves single precision, too
        weigh = DenseOutputWeights.of(method)
        (values,) = evaluated(jax.vmap(weigh), nodes)
    dense = np.linalg.solve(np.vander(nodes, DEGREE + 1), values).T
    dense[:, -1] = 0.0  # at the start of a step
    parts = (a, tableau.b_sol, [0.0, *tableau.c], tableau.b_error, dense)
    numbers = np.concatenate([np.ravel(np.asarray(x, float)) for x in parts])
    return Tableau(numbers, stages, tableau.fsal, tableau.ssal)


def with_tangents(rate: TracedFunction, moving: tuple[int, ...], parameters: int, directions: int) -> TracedFunction:
    """A rate together with its tangents in some directions, for which it is evaluated once.

    Its arguments are the first arguments of the rate, the `parameters`, then their tangents, as far as they are
    `moving`; then the others, and their tangents. Tangents have a leading axis if there are several directions.
    """
    count, known = len(rate.types), sum(k < parameters for k in moving)
    used = [*range(parameters), *range(count, count + known), *range(parameters, count)]
    differentiation = Differentiation(rate, moving, True, directions if directions > 1 else 0)
    return TracedFunction(differentiation, [*used, *range(count + known, count + len(moving))])


class Sweep(NamedTuple):
    """A program of a motion, and which of its inputs and outputs the virtual machine fills and reads at each stage."""

    program: Program
    time: int = -1
    state: int = -1
    time_tangent: int = -1
    state_tangent: int = -1
    state_cotangent: int = -1
    time_cotangent: int = -1
    condition: int = -1

    def part(self, name: str, role: Role, first: int) -> Part:
        """The program as a part of a kernel, whose operands begin at `first`."""
        cotangents = {self.state_cotangent: "bar", self.time_cotangent: "tbar"}
        outputs = range(len(self.program.output_sizes))
        results = [cotangents.get(k, "") for k in outputs] if role is PULL else ["f", "df"][: len(outputs)]
        named = {self.time: "t", self.state: "y", self.time_tangent: "dt", self.state_tangent: "dy"}
        moving = {k: name for k, name in named.items() if k >= 0}
        return Part(name, self.program, role, moving, tuple(results), first, self.condition)

    def numbers(self) -> list[int]:
        return [register(self.program), *self[1:]]

    def tables(self, dtype: np.dtype) -> list[np.ndarray]:
        return [table.astype(dtype) for table in self.program.constant_tables]


NO_PROGRAM = [0] * len(Sweep.__annotations__)  # the numbers in the place of one that a motion does not have
