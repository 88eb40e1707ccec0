"""The closed loop of a mechanism with its sampled controllers, from one instant to the next.

Between instants the loop is linear, `ẋ = A x + B u`, with what controllers hold as constant states; at an instant the
controllers change their states as linear functions of all states and inputs. Both are exact for the small motions, and
so is their product over the time after which all instants repeat.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.linearization.hold import Discrete, held
from jaxmbd.arrays import Scalar, frozen, is_concrete
from jaxmbd.errors import MechanismError
from jaxmbd.model.controller.sampled import AbstractSampledController

_MOST = 200  # instants in the time after which all repeat
_SAME = 1e-9  # of the longest period: instants that are closer are one


class Instant(NamedTuple):
    """The names of the controllers that compute, and the time until the next instant."""

    due: tuple[str, ...]
    duration: Scalar


class Schedule(NamedTuple):
    """The instants in a period after which all repeat."""

    instants: tuple[Instant, ...]
    period: Scalar


def schedule_of(parts: list[AbstractSampledController]) -> Schedule:
    """The instants of controllers, from one of those of the longest period on.

    **Raises:** `MechanismError` if they have no common period, or if several periods are not known.
    """
    if len(parts) == 1:
        return Schedule((Instant((parts[0].name,), parts[0].period),), parts[0].period)
    numbers = frozen([(part.period, part.offset) for part in parts])
    if not is_concrete(numbers):
        raise MechanismError(
            "sampled: in which order several controllers compute depends on their periods and offsets, which are not "
            "known inside jit or vmap."
        )
    periods, offsets = np.asarray(numbers, float).T
    slowest = int(np.argmax(periods))
    rounds = _rounds(parts, periods / periods[slowest])
    reference, near = offsets[slowest], _SAME * periods[slowest]
    found: list[tuple[float, Scalar, str]] = []
    for part, period, offset in zip(parts, periods, offsets, strict=True):
        first = int(np.ceil((reference - near - offset) / period))
        for k in range(first, first + round(rounds * periods[slowest] / period)):
            after = part.offset + k * part.period - parts[slowest].offset
            found.append((offset + k * period - reference, after, part.name))
    found.sort(key=lambda entry: entry[0])
    groups: list[list[tuple[float, Scalar, str]]] = []
    for entry in found:
        if groups and entry[0] - groups[-1][0][0] <= near:
            groups[-1].append(entry)
        else:
            groups.append([entry])
    total = rounds * parts[slowest].period
    ends = [*(group[0][1] for group in groups[1:]), total + groups[0][0][1]]
    instants = [
        Instant(tuple(name for _, _, name in group), end - group[0][1]) for group, end in zip(groups, ends, strict=True)
    ]
    return Schedule(tuple(instants), total)


def _rounds(parts: list[AbstractSampledController], ratios: np.ndarray) -> int:
    """The number of longest periods after which all instants repeat."""
    for rounds in range(1, _MOST + 1):
        counts = rounds / ratios
        if counts.sum() > _MOST:
            break
        if np.all(np.abs(counts - np.round(counts)) <= _SAME * counts):
            return rounds
    periods = ", ".join(f"{part.name!r} {float(frozen(part.period)):g} s" for part in parts)
    raise MechanismError(
        f"sampled: the instants of the controllers do not repeat within {_MOST} samples: their periods are {periods}. "
        "Take periods that are multiples of one another."
    )


def over_one_period(
    matrices: Discrete, sampling: Float[Array, "own x_and_inputs"], own_states: tuple[str, ...],
    sizes: Float[Array, " x"], schedule: Schedule,
) -> tuple[Discrete, np.ndarray]:  # fmt: skip
    """Return the matrices over a period, and the numbers of their states: all but the counts of samples.

    `sampling`: the derivatives of the states of parts, the last ones of `x`, after a sample of all controllers. The
    states are those before the first instant, the outputs those after it, as a motion shows them.
    """
    A, B, C, D = matrices
    (n, r), first = B.shape, len(A) - len(own_states)
    both = jnp.eye(n, n + r, dtype=A.dtype)  # `x` as a function of `x` at the begin, and of the inputs
    entering = jnp.eye(r, n + r, n, dtype=A.dtype)
    outputs: Any = None
    owners = [name.partition(".")[0] for name in own_states]
    for instant in schedule.instants:
        due = np.asarray([owner in instant.due for owner in owners])
        changed = sampling @ jnp.concatenate([both, entering])
        both = both.at[first:].set(jnp.where(due[:, None], changed, both[first:]))
        outputs = C @ both + D @ entering if outputs is None else outputs
        kept, gained = held(A, B, sizes, instant.duration)
        both = kept @ both + gained @ entering
    sampled = {name for instant in schedule.instants for name in instant.due}
    counts = {f"{name}.samples" for name in sampled}
    rest = np.asarray([k for k in range(n) if k < first or own_states[k - first] not in counts], int)
    return Discrete(both[rest][:, rest], both[rest, n:], outputs[:, rest], outputs[:, n:]), rest
