"""All positions in which a mechanism closes, as far as searches from random starts find them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from jaxmbd.analyses.assembly.assemble import assemble, prescribed_at
from jaxmbd.analyses.assembly.assembly_errors import closure_text, tolerance_of
from jaxmbd.analyses.assembly.initial_guess import guessed
from jaxmbd.analyses.assembly.multistart import MultistartResults, search
from jaxmbd.analyses.checks import check_time
from jaxmbd.analyses.state import State, state_of
from jaxmbd.arrays import Number, as_float, is_concrete
from jaxmbd.errors import AssemblyError, MechanismError
from jaxmbd.model.body.checks import check_count, check_finite, check_mapping, checked_names
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism

_COLUMNS = 6  # of a table of assembly modes


@dataclass(frozen=True)
class AssemblyModes:
    """The positions in which a mechanism closes, `repr` as a table; a sequence of states.

    `states`, nearest to the bodies' own poses first, with least speeds; `counts`, how often each was found, of `tries`
    searches; `distances` from those poses: positions as shares of the mechanism's size, and axes of unit length;
    `movable`, how many searches ended where the mechanism can move on (or is singular), which are left out. A closure
    that was found once only may not be the last one: search again with more tries.
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
        found = (
            f"{len(self)} assembly mode{'s' * (len(self) != 1)}, found by {sum(self.counts)} of {self.tries} searches"
        )
        found += f" ({self.movable} ended in positions that can be moved on)" * (self.movable > 0)
        more = f"; the {_COLUMNS} coordinates that differ most:" * (len(self.states[0].q) > _COLUMNS)
        q = np.stack([np.asarray(state.q) for state in self.states])
        told = sorted(np.argsort(-np.ptp(q, axis=0), kind="stable")[:_COLUMNS])  # where they differ most
        names = [self.states[0].coordinate_names[i] for i in told]
        rows = [["", "found", "distance", *names]]
        for k, (count, distance) in enumerate(zip(self.counts, self.distances, strict=True)):
            rows.append([str(k), str(count), f"{distance:.3g}", *(f"{q[k, i]:.5g}" for i in told)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(text.rjust(w) for text, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([found + more, *lines])


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
    """Find all positions in which a mechanism closes, by searches from random starts.

    Two positions are one where all bodies lie alike: whole turns, and the sign of a quaternion, make no difference.
    Each state is that of `assemble(mechanism, fixed, guess=state)`, with its derivatives. How many there are depends on
    values, so this cannot be compiled: inside `jit` and `vmap` assemble from an assembly mode that was found outside.

    **Arguments:** `fixed`, `t` and `locked` as for `assemble`; `tries` and `seed`: one search from the bodies' own
    poses, the others from random ones within the mechanism's size; `tolerance`, the difference up to which two closures
    are one: of positions as shares of the mechanism's size, and of the components of unit vectors.

    **Returns:** `AssemblyModes`, ordered by their distance from the bodies' own poses.

    **Raises:** `AssemblyError` if none is found, or if they are not isolated: it says how many coordinates to fix.

        >>> print(assembly_modes(four_bar, {"crank.theta": 1.1}))
        2 assembly modes, found by 64 of 64 searches; the 6 coordinates that differ most: ...
    """
    check_mechanism(mechanism)
    check_count("tries", tries, 1)
    check_count("seed", seed, 0)
    check_finite("closures", "tolerance", as_float(tolerance))
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
    ends, own = search(known, origin, prescribed, time, tries, seed)
    closed = np.flatnonzero(ends.closed(tolerance_of(origin)))
    if not len(closed):
        raise AssemblyError(closure_text(known, origin, np.asarray(ends.miss)[0], prescribed, time))
    isolated = closed[_isolated(np.asarray(ends.freedom)[closed])]
    first, counts, distances = _distinct(ends, isolated, own, tolerance)
    guesses = [state_of(known, time, ends.q[k], jnp.zeros(known.nv, origin.dtype)) for k in first]
    states = (assemble(mechanism, fixed, guess=each, t=t, locked=locked, check=False) for each in guesses)
    return AssemblyModes(tuple(states), counts, distances, len(closed) - len(isolated), tries)


def _distinct(
    ends: MultistartResults, closed: Int[np.ndarray, " k"], own: Float[np.ndarray, " numbers"], tolerance: float
) -> tuple[list[int], tuple[int, ...], tuple[float, ...]]:
    """One search for each assembly mode that was found, in order; how many found it; and how far it is from `own`."""
    placed = np.asarray(ends.placed)
    found: dict[int, list[int]] = {}
    for k in map(int, closed):
        same = (j for j in found if np.abs(placed[j] - placed[k]).max() <= tolerance)
        found.setdefault(next(same, k), []).append(k)
    # Mirror images lie equally far: rounded, so that not their last digits put them in order.
    away = {k: float(np.linalg.norm(placed[k] - own)) for k in found}
    order = sorted(found, key=lambda k: (round(away[k], 6), *np.round(placed[k], 6)))
    return order, tuple(len(found[k]) for k in order), tuple(away[k] for k in order)


def _isolated(freedom: Int[np.ndarray, " k"]) -> Bool[np.ndarray, " k"]:
    """Which closed positions cannot be moved on; raise where all can."""
    left = int(freedom.min())
    if left:
        raise AssemblyError(
            f"The assembly modes are not isolated: the {len(freedom)} closed positions that were found can all be "
            f"moved on, with {left} degree{'s' * (left != 1)} of freedom or more. Fix or lock {left} more "
            f"coordinate{'s' * (left != 1)}, as in assembly_modes(mechanism, {{'crank.theta': 0.3}})."
        )
    return freedom == 0
