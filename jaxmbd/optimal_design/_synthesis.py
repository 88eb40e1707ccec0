"""Linkage synthesis: dimensions with which a linkage takes given positions, from random starts, checked for defects."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxmbd.analyses.assembly.multistart import extent, in_joint_coordinates
from jaxmbd.analyses.assembly.position_solve import closed
from jaxmbd.arrays import Numbers
from jaxmbd.checks import check_count, check_flags
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.numerics.bounded_least_squares import begin, rounds
from jaxmbd.optimal_design._defects import defect_of
from jaxmbd.optimal_design._limits import Limit, Margin, limits_of, margin_of
from jaxmbd.optimal_design._precision_positions import Positions, Task, followed, settled, task_of, weighted
from jaxmbd.optimal_design._tables import constraints_table, starts_table, variables_table
from jaxmbd.optimal_design._variables import variables_of
from jaxmbd.parameters.parameters import Build, Free
from jaxmbd.printing import count_of
from jaxmbd.progress import reporting

# Weights of closure and timing, the most steps with each, and the share of the searches that go on. With a small weight
# the search passes through linkages that cannot be assembled; with the last one, what is left open is far below what a
# final assembly closes.
_STAGES = ((1.0, 60, 0.5), (10.0, 60, 0.5), (1e3, 60, 1.0), (3e3, 600, 1.0))
_CLOSED = 100.0  # weight from which on each step ends at closed positions
_IDLE = 1e-3  # share of its cost that a round has to take off, unless a search of this stage has ended
_CONVERGED = 1e-9  # the same in the last stage
_FEWEST = 8  # searches that go on in any case
_OPEN = 1e-9  # closure residual, as a share of the size, above which a linkage counts as open


@dataclass(frozen=True)
class Candidate:
    """The end of one search: its number, verdict, error and values of the variables.

    `error`: the sum of squares of the distances from the values to follow, `[m², rad²]`.
    """

    number: int
    verdict: str
    error: float
    values: dict[str, PyTree]


@dataclass(frozen=True)
class Synthesis:
    """The result of `synthesise`. `print` shows it as a table.

    - `values`: the values of the variables by name; `mechanism`: the mechanism with them;
    - `error`: the sum of squares of the distances from the values to follow `[m², rad²]`, at closed positions;
      `largest`: the largest of these distances;
    - `q`: the coordinates at the positions, of the mechanism in joint coordinates; `followed`: what is reached there,
      by name; `input`: the value of the input there; `free_zeros`: the zeros of the scales, by name;
    - `defect`: "" or what is wrong with the linkage; `is_successful`;
    - `constraints`: with their margins; `active_bounds`: the variables that lie on a bound;
    - `candidates`: all searches with their verdicts, those without defects first; `outcome`: why the search ended.
    """

    values: dict[str, PyTree]
    mechanism: Mechanism
    error: float
    largest: float
    q: Float[np.ndarray, "positions nq"]
    followed: dict[str, np.ndarray]
    input: Float[np.ndarray, " positions"]
    free_zeros: dict[str, float]
    defect: str
    constraints: tuple[Margin, ...]
    active_bounds: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    outcome: str
    labels: tuple[str, ...]
    numbers: np.ndarray

    @property
    def is_successful(self) -> bool:
        """True if the linkage has no defect and keeps all constraints."""
        return not self.defect and all(margin.kept for margin in self.constraints)

    def __repr__(self) -> str:
        state = self.defect or "no defect"
        head = f"Synthesis: {self.outcome}; error {self.error:.6g} (largest distance {self.largest:.3g}), {state}"
        rows = [[str(c.number), c.verdict, f"{c.error:.6g}"] for c in self.candidates]
        parts = [
            head,
            variables_table(self.labels, [""] * len(self.labels), self.numbers, self.active_bounds),
            *constraints_table(self.constraints),
            starts_table(["start", "verdict", "error"], rows, [c.verdict for c in self.candidates]),
        ]
        return "\n\n".join(parts)


def synthesise(
    mechanism: Mechanism | Build,
    variables: Free,
    follow: Mapping[str, Numbers],
    *,
    input: str,
    timing: Numbers | None = None,
    free_zeros: Iterable[str] = (),
    full_turn: bool = False,
    constraints: Mapping[str, Limit] | None = None,
    starts: int = 128,
    seed: int = 0,
    progress: bool = True,
) -> Synthesis:
    """Find dimensions with which a linkage of one degree of freedom takes given positions.

    `min Σᵢ |f(qᵢ, x) − fᵢ|²`   subject to   `Φ(qᵢ, x) = 0`, and with prescribed timing `input(qᵢ) = θᵢ`

    The problem is path generation if `follow` holds a `Point`, function generation if it holds an angle or a distance
    of the output and `timing` that of the input, and motion generation if it holds a body. Dimensions and positions
    are unknowns together, in random assembly modes at the start, and the constraints get a weight that grows: so the
    search passes through linkages that cannot be assembled. It runs from all starts side by side; the worse ones are
    given up on the way. The circuit of each linkage is then followed, and those with a branch, circuit or order defect
    are sorted out.

    **Arguments:**

    - `mechanism`: the mechanism, or a function from the values by name to one; without drivers, of any type: four-bars,
      geared five-bars, six-bars;
    - `variables`: as in `design`: names of numbers with pairs of bounds, a `Parameter` or a function to a leaf by name;
    - `follow`: what is followed, with a row for each position in the order in which they are to be passed: points
      `{"P": [[x, y], …]}` `[m]`, angles `{"D.angle": […]}` `[rad]`, lengths, or poses of a body
      `{"coupler": [[x, y, theta], …]}`. In a sum, errors of lengths count as shares of the size of what is followed;
    - `input`: the coordinate that drives the linkage, `"A.angle"`; `timing`: its values at the positions, if they are
      prescribed;
    - `free_zeros`: names whose values are measured from a zero that is free: `("A.angle", "D.angle")`;
    - `full_turn`: the input must be able to turn round;
    - `constraints`: a `Limit` by name, such as the Grashof condition;
    - `starts`: the number of searches; `seed`; `progress`: show the progress on one line.

    **Returns:** a `Synthesis`; print it. If all linkages have defects it is the one with the least error, and its
    `outcome` says so. Ctrl-C ends the search and returns the best so far.

    **Raises:** `MechanismError` for unknown names, wrong shapes, or a mechanism with other than one degree of freedom.

        >>> found = mbd.synthesise(build, {"crank": (1.0, 9.0)}, {"P": points}, input="A.angle")  # doctest: +SKIP
        >>> print(found)  # doctest: +SKIP

    Source: Erdman, Sandor, Kota, *Mechanism Design* (2001); Chase, Mirth (1993), for the defects.
    """
    check_flags("synthesise", full_turn=full_turn, progress=progress)
    check_count("synthesise: starts", starts, 1)
    check_count("synthesise: seed", seed, 0)
    declared = variables_of("synthesise", mechanism, variables)
    task = task_of(declared.mechanism(declared.start), follow, input, timing, free_zeros)
    tree = in_joint_coordinates(declared.mechanism(declared.start))
    positions = Positions(declared, task, limits_of("synthesise", constraints), tree.nq)
    search = _Search(positions, positions.starts(starts, seed))
    with reporting(progress, "synthesise: compiling ...") as report:
        try:
            search.run(report)
            outcome = ""
        except KeyboardInterrupt:
            outcome = "interrupted"
    found = _checked(positions, search, full_turn)
    if not found:
        raise MechanismError(
            "synthesise: no search has a finite result: the mechanism cannot be built, or its readings are not finite, "
            "anywhere within the ranges of the variables."
        )
    return _result(positions, found, search.verdicts, outcome)


class _Search:
    """The searches: their unknowns, errors, and verdicts; consistent at any time, also after an interrupt."""

    def __init__(self, positions: Positions, starts: Array) -> None:
        self.positions, self.z = positions, np.array(starts)
        self.cost = np.full(len(starts), np.inf)
        self.verdicts = [""] * len(starts)

    def run(self, report: Callable[[str], None]) -> None:
        """Take all searches through the stages."""
        bounds = self.positions.bounds(self.z.shape[1])
        for k, (weight, steps, share) in enumerate(_STAGES):
            going = np.array([i for i, verdict in enumerate(self.verdicts) if not verdict])
            args = self.positions, jnp.asarray(weight)

            def said(step: int, running: int, best: float, k: int = k) -> None:
                report(f"synthesise, stage {k + 1} of {len(_STAGES)}: step {step}, {running} starts, best {best:.3g}")

            lanes = begin(jnp.asarray(self.z[going]), weight)
            settle = settled if weight > _CLOSED else None
            gain = _CONVERGED if k == len(_STAGES) - 1 else _IDLE
            lanes, _ = rounds(weighted, lanes, bounds, args, steps=steps, least_gain=gain, report=said, settle=settle)
            self.z[going], self.cost[going] = np.asarray(lanes.z), np.asarray(lanes.cost)
            order = going[np.argsort(self.cost[going], kind="stable")]
            most = max(_FEWEST, round(share * len(order)))
            for i in order:
                if not np.isfinite(self.cost[i]):
                    self.verdicts[i] = "not finite"
            for i in order[most:]:
                self.verdicts[i] = self.verdicts[i] or f"given up after stage {k + 1}"


@dataclass(frozen=True)
class _Linkage:
    """A linkage at its closed positions: the unknowns with these, its error and defect."""

    number: int
    z: Array
    error: float
    verdict: str


def _checked(positions: Positions, search: _Search, full_turn: bool) -> list[_Linkage]:
    """Close the positions of all linkages, check them for defects, and sort them: those without defects first."""
    numbers = [i for i, verdict in enumerate(search.verdicts) if not verdict]
    found: list[_Linkage] = []
    if numbers:
        z, open_by, errors = map(np.asarray, _closed(positions, jnp.asarray(search.z[numbers])))
        for k in np.argsort(np.where(np.isfinite(errors), errors, np.inf), kind="stable"):
            if not np.isfinite(errors[k]):
                continue
            verdict = _verdict(positions, jnp.asarray(z[k]), float(open_by[k]), full_turn)
            found.append(_Linkage(numbers[k], jnp.asarray(z[k]), float(errors[k]), verdict))
    return sorted(found, key=lambda linkage: linkage.verdict != "")


def _verdict(positions: Positions, z: Array, open_by: float, full_turn: bool) -> str:
    if not open_by <= _OPEN:
        return "cannot be assembled"
    if not all(margin.kept for margin in _margins(positions, z)):
        return "violates a constraint"
    mechanism, (_, _, q) = positions.mechanism(z), positions.split(z)
    return defect_of(mechanism, q, extent(mechanism)[1], positions.task.input, full_turn)


@eqx.filter_jit
def _closed(positions: Positions, z: Float[Array, "k n"]) -> tuple[Array, Array, Array]:
    """Close all positions at the final dimensions; return the unknowns, the largest residual, and the error."""

    def one(z: Array) -> tuple[Array, Array, Array]:
        equations = Equations(positions.mechanism(z))
        _, _, q = positions.split(z)
        _, exact = positions.prescribed(z)
        time = jnp.zeros((), z.dtype)
        q = jax.vmap(lambda q, values: closed((equations, values, time), q))(q, exact)
        z = z.at[len(z) - q.size :].set(q.ravel())
        exact_rows, near = followed(positions, equations, z, q)
        distances = near * jnp.concatenate([*positions.task.scales.values()])[None]
        return z, jnp.max(jnp.abs(exact_rows)) / positions.task.size, jnp.sum(distances**2)

    return jax.vmap(one)(z)


@eqx.filter_jit
def _values(positions: Positions, z: Array) -> dict[str, Array]:
    mechanism = positions.variables.mechanism(positions.split(z)[0])
    return {name: limit.value(name, mechanism) for name, limit in positions.limits.items()}


def _margins(positions: Positions, z: Array) -> tuple[Margin, ...]:
    values = _values(positions, z) if positions.limits else {}
    limits = positions.limits.items()
    return tuple(margin_of(name, limit, np.asarray(values[name])) for name, limit in limits)


def _result(positions: Positions, found: list[_Linkage], verdicts: list[str], outcome: str) -> Synthesis:
    best, variables, task = found[0], positions.variables, positions.task
    x, zeros, q = positions.split(best.z)
    equations = Equations(positions.mechanism(best.z))
    _, near = followed(positions, equations, best.z, q)
    missed = np.asarray(near) * np.concatenate([*map(np.asarray, task.scales.values())])[None]
    given, _ = positions.prescribed(best.z)
    widths = np.cumsum([len(scale) for scale in task.scales.values()])[:-1]
    pieces = dict(zip(given, np.split(missed, widths, axis=1), strict=True))
    reached = {name: np.asarray(value) + pieces[name].reshape(value.shape) for name, value in given.items()}
    candidates = [_candidate(positions, linkage) for linkage in found]
    names = {linkage.number for linkage in found}
    rest = [Candidate(i, v or "not finite", np.inf, {}) for i, v in enumerate(verdicts) if i not in names]
    return Synthesis(
        variables.values(x), variables.mechanism(x), best.error, _largest(missed, task), np.asarray(q), reached,
        _inputs(equations, q, task), {name: float(zero) for name, zero in zeros.items()}, best.verdict,
        _margins(positions, best.z), variables.on_bounds(x), (*candidates, *rest),
        outcome or _outcome(best, len(verdicts)), variables.labels, np.asarray(variables.physical(x)),
    )  # fmt: skip


def _candidate(positions: Positions, linkage: _Linkage) -> Candidate:
    values = positions.variables.values(positions.split(linkage.z)[0])
    return Candidate(linkage.number, linkage.verdict or "no defect", linkage.error, values)


def _largest(missed: Float[np.ndarray, "positions rows"], task: Task) -> float:
    """Return the largest distance of what is followed, of one position and name."""
    widths = np.cumsum([len(scale) for scale in task.scales.values()])[:-1]
    return max(float(np.linalg.norm(part, axis=1).max()) for part in np.split(missed, widths, axis=1))


def _inputs(equations: Equations, q: Array, task: Task) -> Float[np.ndarray, " positions"]:
    still = jnp.zeros(equations.mechanism.nv, q.dtype)
    values = jax.vmap(lambda q: equations.coordinate(task.input, q, still)[0])(q)
    return np.asarray(values)


def _outcome(best: _Linkage, starts: int) -> str:
    if best.verdict:
        return f"no linkage without defects found, from {count_of(starts, 'start')}: {best.verdict}"
    return f"found by start {best.number} of {starts}"
