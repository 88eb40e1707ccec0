"""Assembly modes: all closed positions that searches from random starts find."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from jaxmbd.analyses.assembly.assemble import assemble, prescribed_at
from jaxmbd.analyses.assembly.assembly_errors import closed_limits, closure_text
from jaxmbd.analyses.assembly.multistart import MultistartResults, guessed, search
from jaxmbd.arrays import Number, as_float, is_concrete
from jaxmbd.checks import check_count, check_finite, check_mapping, check_time, checked_names
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import AssemblyError, MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.printing import table
from jaxmbd.state.state import State, rank_number, state_of

_COLUMNS = 6  # number of coordinates in a table of assembly modes


@dataclass(frozen=True)
class AssemblyModes:
    """The assembly modes of a mechanism, a sequence of states. `print` shows a table with one line for each of them.

    - `states`: the closed positions, nearest to the bodies' own poses first, with the speeds of least kinetic energy;
    - `counts`: the number of searches that found each of them, out of `tries`;
    - `distances`: the distance of each from the bodies' own poses, in which positions are shares of the mechanism's
      size and axes have unit length;
    - `movable`: the number of searches that ended where the mechanism can move (or is singular). These are left out.

    If a mode was found only once there may be more: search again with more `tries`.
    """

    states: tuple[State, ...]
    counts: tuple[int, ...]
    distances: tuple[float, ...]
    movable: int
    tries: int

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, i: int) -> State:
        return self.states[i]

    def __iter__(self) -> Iterator[State]:
        return iter(self.states)

    def __repr__(self) -> str:
        head = (
            f"{len(self)} assembly mode{'s' * (len(self) != 1)}, found by {sum(self.counts)} of {self.tries} searches"
        )
        head += f" ({self.movable} ended in positions that can be moved on)" * (self.movable > 0)
        more = f"; the {_COLUMNS} coordinates that differ most:" * (len(self.states[0].q) > _COLUMNS)
        q = np.stack([np.asarray(state.q) for state in self.states])
        columns = sorted(np.argsort(-np.ptp(q, axis=0), kind="stable")[:_COLUMNS])  # the coordinates that differ most
        names = [self.states[0].coordinate_names[i] for i in columns]
        rows = [["", "found", "distance", *names]]
        for k, (count, distance) in enumerate(zip(self.counts, self.distances, strict=True)):
            rows.append([str(k), str(count), f"{distance:.3g}", *(f"{q[k, i]:.5g}" for i in columns)])
        return f"{head}{more}\n{table(rows, words=0)}"


def assembly_modes(
    mechanism: Mechanism,
    fixed: Mapping[str, Number | Sequence[Number]] | None = None,
    *,
    t: Number = 0.0,
    locked: Iterable[str] = (),
    tries: int = 64,
    seed: int = 0,
    tolerance: float = 1e-4,
) -> AssemblyModes:
    """Find all assembly modes of a mechanism by searches from random starts.

    Two positions are the same mode if all bodies have the same placements; whole turns, and the sign of a quaternion,
    make no difference. Each state is that of `assemble(mechanism, fixed, guess=state)`, with its derivatives. Since the
    number of modes depends on values, this function cannot be compiled: inside `jit` and `vmap` assemble from a mode
    that was found outside.

    **Arguments:** `fixed`, `t` and `locked` as for `assemble`; `tries`, `seed`: one search starts at the bodies' own
    poses, the others at random poses within the mechanism's size; `tolerance`: the largest difference between two
    positions of the same mode, of positions as shares of the mechanism's size and of the components of unit vectors.

    **Returns:** `AssemblyModes`, ordered by their distance from the bodies' own poses.

    **Raises:** `AssemblyError` if no mode is found, or if the modes are not isolated (it says how many coordinates to
    fix).

        >>> four_bar = mbd.examples.get("four-bar-with-springs").mechanism
        >>> modes = mbd.assembly_modes(four_bar, {"O.angle": 1.0}, tries=8)
        >>> [round(float(state["rocker.theta"]), 4) for state in modes.states]
        [1.6435, 4.0544]
    """
    check_mechanism(mechanism)
    check_count("tries", tries, 1)
    check_count("seed", seed, 0)
    check_finite("assembly_modes", "tolerance", as_float(tolerance))
    check_mapping("fixed", fixed, "{'crank.theta': 0.3}")
    t = check_time("assembly_modes", t)
    values = jax.lax.stop_gradient(eqx.filter((mechanism, dict(fixed or {}), t), eqx.is_array_like))
    if not is_concrete(values):
        raise MechanismError(
            "assembly_modes cannot be compiled (jit, vmap): how many there are depends on values. Find them outside, "
            "and assemble inside from the one you want: assemble(mechanism, fixed, guess=found[1])."
        )
    known, known_fixed, known_t = eqx.combine(values, (mechanism, dict(fixed or {}), t))
    locked = checked_names("locked", locked, "crank.theta")
    origin = guessed(known, {})
    time = jnp.asarray(known_t, origin.dtype)
    prescribed = prescribed_at(known, origin, known_fixed, locked, time)
    results, own = search(known, origin, prescribed, time, tries, seed)
    limits = np.asarray(closed_limits(Equations(known), prescribed))
    closed = np.flatnonzero(results.closed(limits))
    if not len(closed):
        raise AssemblyError(closure_text(known, origin, np.asarray(results.miss)[0], prescribed, time))
    isolated = closed[_isolated(np.asarray(results.freedom)[closed])]
    first, counts, distances = _distinct(results, isolated, own, tolerance)
    guesses = [state_of(known, time, results.q[k], jnp.zeros(known.nv, origin.dtype), rank_number(-1)) for k in first]
    states = (assemble(mechanism, fixed, guess=each, t=t, locked=locked, check=False) for each in guesses)
    return AssemblyModes(tuple(states), counts, distances, len(closed) - len(isolated), tries)


def _distinct(
    results: MultistartResults, closed: Int[np.ndarray, " k"], own: Float[np.ndarray, " numbers"], tolerance: float
) -> tuple[list[int], tuple[int, ...], tuple[float, ...]]:
    """Return for each assembly mode, nearest to `own` first, the first search that found it, the number of searches
    that
    found it, and its distance from `own`."""
    placed = np.asarray(results.placed)
    members: dict[int, list[int]] = {}
    for k in map(int, closed):
        same = (j for j in members if np.abs(placed[j] - placed[k]).max() <= tolerance)
        members.setdefault(next(same, k), []).append(k)
    # Mirror images have equal distances: these are rounded, so that the order does not depend on their last digits.
    distance = {k: float(np.linalg.norm(placed[k] - own)) for k in members}
    order = sorted(members, key=lambda k: (round(distance[k], 6), *np.round(placed[k], 6)))
    return order, tuple(len(members[k]) for k in order), tuple(distance[k] for k in order)


def _isolated(freedom: Int[np.ndarray, " k"]) -> Bool[np.ndarray, " k"]:
    """Return True for each closed position that has no degree of freedom; raise if there is none."""
    left = int(freedom.min())
    if left:
        raise AssemblyError(
            f"The assembly modes are not isolated: the {len(freedom)} closed positions that were found can all be "
            f"moved on, with {left} degree{'s' * (left != 1)} of freedom or more. Fix or lock {left} more "
            f"coordinate{'s' * (left != 1)}, as in assembly_modes(mechanism, {{'crank.theta': 0.3}})."
        )
    return freedom == 0
