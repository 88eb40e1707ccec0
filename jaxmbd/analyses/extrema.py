"""The least and the largest value of quantities over a motion, between its stored times too.

A motion is a function of the times at which it is stored. What is stored between the ends of steps is the dense output,
and the steps do not depend on the stored times; so a search for an extremum asks for the same motion at other times: at
many, then at nodes about the highest samples, then at the extremum of the polynomial through these.

At an extremum inside of the motion `ẏ = 0`, so by the envelope theorem the derivative of its value is that of `y` at
its time held fixed: `d/dp max y(t, p) = ∂y/∂p (t*, p)`. At an end of the motion the time of the end counts.

Source: Milgrom, Segal, *Envelope theorems for arbitrary choice sets*, Econometrica 70 (2002); Trefethen, *Approximation
Theory and Approximation Practice* (2013), chapters 3 and 5.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.arrays import Scalar, as_float, is_concrete
from jaxmbd.checks import check_callable, checked_names
from jaxmbd.engine import trace_once
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.model.mechanism.quantities import channel_units
from jaxmbd.printing import format_number, readable
from jaxmbd.state.result_codes import is_successful
from jaxmbd.user_functions import call_user, user_array

_LEAST = 129  # times among which peaks are looked for, at least
_NODES = 9  # of the polynomial about a peak: its error is that of the eighth order in the distance of the times
_PLACES = 2  # peaks that are refined, of which the highest counts
_NEWTON = 4  # steps from the best of the fine points, which are near
_APART = 8  # least distance of times, in roundings

Motion: TypeAlias = Callable[[Any], Solution]
Quantity: TypeAlias = str | Callable[[Solution], Array]


class Wanted(NamedTuple):
    """An extremum to be found: of a channel with one component or of a function of the motion; `sign`: 1 for the
    largest value, -1 for the least."""

    name: str
    quantity: Quantity
    sign: int


class Extremum(eqx.Module):
    """The least or largest value of a quantity over a motion, in its unit, and the `time` `[s]` at which it is."""

    value: Scalar
    time: Scalar

    def __repr__(self) -> str:
        return readable(self, self._text, value=0)

    def _text(self) -> str:
        return f"Extremum {format_number(self.value)} at {format_number(self.time)} s"


class Extrema(eqx.Module):
    """The `least` and the `largest` value of a quantity over a motion, an `Extremum` each."""

    least: Extremum
    largest: Extremum


def extrema(
    motion: Motion, ts: Any, quantities: str | Iterable[str] | Mapping[str, Callable[[Solution], Array]]
) -> dict[str, Extrema]:
    """Find the least and the largest value of quantities over a motion, between its stored times too.

    `y* = max y(t)`,   `dy*/dp = ∂y/∂p` at the time of `y*`

    Values between stored times are those of the dense output, so a peak is not missed because no stored time meets it.
    Two peaks are refined, those of the highest samples; one that is narrower than the distance of the times, or of
    the 128th part of the motion, may be overlooked. Derivatives have both modes; those of the time are zero. The motion
    is computed three times.

    **Arguments:**

    - `motion`: the motion as a function of its times, `lambda ts: mbd.simulate(mechanism, state, ts, throw=False)`;
      `kinematics` and `inverse_dynamics` serve as well;
    - `ts`: the times between which is searched `[s]`, `(times,)`, at least two;
    - `quantities`: names of `solution.names` that have one component; or functions of the motion by name,
      `{"tip": lambda motion: motion["tip"][:, 1]}`, which return a number for each of its times from what is
      there at that time.

    **Returns:** the extrema by name, in the units of the quantities; NaN if the motion has failed.

    **Raises:** `MechanismError` for unknown names, quantities of several components, or fewer than two times.

    **Example:** `extrema(motion, ts, "crank.theta")["crank.theta"].largest.value`

        >>> pendulum = mbd.examples.get("pendulum")
        >>> state, ts = pendulum.state(), np.linspace(0.0, 1.0, 9)
        >>> motion = lambda ts: mbd.simulate(pendulum.mechanism, state, ts)
        >>> found = mbd.extrema(motion, ts, "rod.y")["rod.y"].least
        >>> print(f"{found.value:.4f} m at {found.time:.4f} s")  # the lowest point of the rod's centre
        -0.5000 m at 0.5920 s
    """
    check_callable("extrema", "motion", motion)
    if isinstance(quantities, Mapping):
        named: dict[str, Quantity] = dict(quantities)
        for name, function in named.items():
            if not isinstance(name, str) or not callable(function):
                raise MechanismError(f"extrema: quantity {name!r} must be a function of the motion, got {function!r}.")
    else:
        given = (quantities,) if isinstance(quantities, str) else quantities
        named = {name: name for name in checked_names("extrema: quantities", given, "rod.theta")}
    wanted = [Wanted(name, quantity, sign) for name, quantity in named.items() for sign in (-1, 1)]
    found = iter(with_extrema(motion, ts, wanted)[1])
    return {name: Extrema(next(found), next(found)) for name in named}


def with_extrema(motion: Motion, ts: Any, wanted: Sequence[Wanted]) -> tuple[Solution, list[Extremum]]:
    """The motion at the times `ts` `[s]`, and extrema of quantities between them.

    **Raises:** `MechanismError` as `extrema`.
    """
    stored = _checked_times(ts)
    if not wanted:
        return motion(stored), []
    count = len(stored)
    # Every motion has as many times, so that it is traced once.
    spread = partial(_spread, max(_PLACES * _NODES * len(wanted), _LEAST - count))
    first = _merged(stored, spread(stored))
    values = _values(_checked(motion(first.times), wanted), wanted)
    brackets = [_brackets(first.times, w.sign * y) for w, y in zip(wanted, values, strict=True)]
    nodes = jnp.concatenate([x.nodes.ravel() for x in brackets])
    second = _merged(stored, _filled(nodes, spread(stored)))
    at_nodes = _values(at_times(motion(second.times), second.places[: len(nodes)]), wanted)
    times = []
    for k, (w, x) in enumerate(zip(wanted, brackets, strict=True)):
        own = slice(k * _PLACES * _NODES, (k + 1) * _PLACES * _NODES)
        times.append(_peak_times(x, w.sign * at_nodes[k][own].reshape(_PLACES, _NODES)))
    asked = jnp.concatenate(times)
    third = _merged(stored, _filled(asked, spread(stored)))
    solution = motion(third.times)
    ends = jnp.asarray([0, len(third.times) - 1])
    at = at_times(solution, jnp.concatenate([ends, third.places[: len(asked)]]))
    ordered = enumerate(zip(wanted, _values(at, wanted), strict=True))
    found = [_extremum(solution, at.ts, y, w.sign, k) for k, (w, y) in ordered]
    return at_times(solution, third.stored), found


def at_times(solution: Solution, places: Int[Array, " some"]) -> Solution:
    """The motion at some of its times, by their numbers."""
    fields = "ts", "q", "integrated_speeds", "z", "quadratures", "computed"
    taken = _taken({name: getattr(solution, name) for name in fields}, places)
    return replace(solution, **taken)


@trace_once
def _taken(tree: Any, places: Array) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(x)[places], tree)


def _checked_times(ts: Any) -> Float[Array, " times"]:
    times = as_float(ts)
    if not isinstance(times, jax.Array | np.ndarray) or np.ndim(times) != 1 or np.shape(times)[0] < 2:
        raise MechanismError(f"extrema: ts must be at least two times [s], of shape (times,); got {np.shape(ts)}.")
    if is_concrete(times) and not (np.diff(np.asarray(times)) > 0).all():
        raise MechanismError("extrema: ts must be finite times [s] that increase.")
    return jnp.asarray(times)


def _checked(solution: object, wanted: Sequence[Wanted]) -> Solution:
    """What the function of the times has returned."""
    if not isinstance(solution, Solution):
        raise MechanismError(
            "extrema: motion must be a function of times that returns a Solution, such as lambda ts: "
            f"mbd.simulate(mechanism, state, ts, throw=False); it returned {type(solution).__name__}."
        )
    check_known(
        "quantity", [w.quantity for w in wanted if isinstance(w.quantity, str)], channel_units(solution.mechanism)
    )
    return solution


def _values(solution: Solution, wanted: Sequence[Wanted]) -> list[Float[Array, " times"]]:
    """The quantities at the times of a motion."""
    names = [w.quantity for w in wanted if isinstance(w.quantity, str)]
    channels = solution.read(list(dict.fromkeys(names))) if names else {}
    found = []
    for w in wanted:
        if isinstance(w.quantity, str):
            values = channels[w.quantity]
        else:
            given = call_user(f"extrema: quantity {w.name!r}", "function", w.quantity, solution, takes="motion")
            values = user_array(f"extrema: quantity {w.name!r}", "function", given, takes="motion")
        if values.shape != solution.ts.shape:
            raise MechanismError(
                f"extrema: the quantity {w.name!r} has the shape {values.shape} at {len(solution.ts)} times; one "
                f"number for each is needed. Give a function for one of several: {{{w.name!r}: lambda motion: "
                "motion[name][:, 0]}."
            )
        found.append(values.astype(solution.ts.dtype))
    return found


def _extremum(solution: Solution, ts: Array, values: Array, sign: int, k: int) -> Extremum:
    """The best of the values at the ends and at the times that were found for it."""
    own = np.asarray([0, 1, 2 + 2 * k, 3 + 2 * k])
    return Extremum(*_best(ts[own], values[own], jnp.asarray(sign), is_successful(solution.result)))


@trace_once
def _best(ts: Array, values: Array, sign: Array, ok: Array) -> tuple[Array, Array]:
    """The value that is largest times the sign, and its time; NaN unless the motion is `ok`."""
    best = jnp.argmax(jax.lax.stop_gradient(sign * values))
    return jnp.where(ok, values[best], jnp.nan), jnp.where(ok, jax.lax.stop_gradient(ts[best]), jnp.nan)


class _Merged(NamedTuple):
    """Times in order, the places of those that were added, and of those that were there."""

    times: Float[Array, " all"]
    places: Int[Array, " added"]
    stored: Int[Array, " times"]


def _spread(count: int, ts: Array) -> Float[Array, " count"]:
    """So many times inside of the intervals of others, evenly over the intervals."""
    intervals = len(ts) - 1
    shares = np.diff(np.floor(np.arange(intervals + 1) * count / intervals + 1e-9).astype(int))
    at = np.concatenate([k + (1 + np.arange(n)) / (n + 1) for k, n in enumerate(shares)])
    low = np.floor(at).astype(int)
    return _between(ts, low, at - low)


@trace_once
def _between(ts: Array, low: Array, share: Array) -> Array:
    return ts[low] + share * (ts[low + 1] - ts[low])


def _filled(times: Array, others: Array) -> Array:
    """Times, made as many as the others by some of them."""
    return jnp.concatenate([times, others[: len(others) - len(times)]])


@trace_once
def _merged(stored: Array, added: Array) -> _Merged:
    """Both in order, a few roundings apart at least; the ends stay."""
    count, given = len(stored) + len(added), jax.lax.stop_gradient(added)
    size = jnp.maximum(jnp.max(jnp.abs(stored[jnp.asarray([0, -1])])), stored[-1] - stored[0])
    apart = _APART * jnp.finfo(stored.dtype).eps * jax.lax.stop_gradient(size)
    first, last = jax.lax.stop_gradient((stored[0], stored[-1]))
    inside = jnp.clip(jnp.nan_to_num(given), first + apart, last - (count + 1) * apart)
    order, known = jnp.argsort(inside), jax.lax.stop_gradient(stored)
    inside = inside[order]  # only these few are sorted: a sort of all takes longer than the motion
    is_before = inside[:, None] < known[None]
    of_added = jnp.arange(len(added)) + jnp.sum(~is_before, axis=1)
    of_stored = jnp.arange(len(stored)) + jnp.sum(is_before, axis=0)
    ordered = jnp.zeros(count, stored.dtype).at[of_stored].set(stored).at[of_added].set(inside)
    known, ramp = jax.lax.stop_gradient(ordered), apart * jnp.arange(count)
    shifted = (jax.lax.cummax(known - ramp) + ramp).at[0].set(first).at[-1].set(last)
    # The value of the shifted times, with the derivatives of the stored ones.
    return _Merged(shifted + (ordered - known), of_added[jnp.argsort(order)], of_stored)


class _Brackets(NamedTuple):
    """Intervals about the highest samples, with nodes in them; the time of the highest sample, and its height."""

    nodes: Float[Array, "places nodes"]
    time: Scalar
    height: Scalar


_ON_UNIT = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)[::-1]  # Chebyshev's nodes
_TO_POWERS = np.linalg.inv(np.vander(_ON_UNIT))
_FINE = np.linspace(-1.0, 1.0, 129)
_WINDOW = 5  # samples of the polynomials by which peaks are compared before they are refined
_COMPARED = 4  # peaks that are compared so, the highest by parabolas through three samples


@trace_once
def _brackets(ts: Array, heights: Array) -> _Brackets:
    """Where the peaks of samples may be: about the highest sample, and about another one where polynomials through
    samples are highest."""
    ts, y = jax.lax.stop_gradient((ts, jnp.nan_to_num(heights)))
    count, best = len(ts), jnp.argmax(y)
    d = jnp.diff(ts)
    slopes = jnp.diff(y) / d
    bend = (slopes[1:] - slopes[:-1]) / (d[1:] + d[:-1])
    slope = (slopes[:-1] * d[1:] + slopes[1:] * d[:-1]) / (d[1:] + d[:-1])
    is_peak = (slopes[:-1] >= 0) & (slopes[1:] <= 0)
    rises = jnp.where(is_peak & (bend < 0), -(slope**2) / (4 * jnp.where(bend < 0, bend, -1.0)), 0.0)
    parabolas = jnp.where(is_peak, y[1:-1] + rises, -jnp.inf)
    parabolas = jnp.concatenate([y[:1], parabolas, y[-1:]])  # the first and the last interval may have one, too
    k = jax.lax.top_k(jnp.where(jnp.abs(jnp.arange(count) - best) > 1, parabolas, -jnp.inf), _COMPARED)[1]
    low, high = ts[jnp.maximum(k - 1, 0)], ts[jnp.minimum(k + 1, count - 1)]
    window = jnp.clip(k - _WINDOW // 2, 0, count - _WINDOW)[:, None] + jnp.arange(_WINDOW)[None]
    fine = low[:, None] + (high - low)[:, None] * jnp.linspace(0.0, 1.0, 17, dtype=ts.dtype)[None]
    estimates = jnp.where(jnp.isfinite(parabolas[k]), jnp.max(_lagrange(ts[window], y[window], fine), axis=1), -jnp.inf)
    chosen = jnp.stack([best, k[jnp.argmax(estimates)]])
    low, high = ts[jnp.maximum(chosen - 1, 0)], ts[jnp.minimum(chosen + 1, count - 1)]
    middle, half = (low + high) / 2, (high - low) / 2
    return _Brackets(middle[:, None] + half[:, None] * jnp.asarray(_ON_UNIT, ts.dtype)[None], ts[best], y[best])


def _lagrange(ts: Float[Array, "n k"], y: Float[Array, "n k"], at: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """The polynomials through points, at other ones."""
    total = jnp.zeros_like(at)
    for j in range(ts.shape[1]):
        others = [i for i in range(ts.shape[1]) if i != j]
        basis = jnp.ones_like(at)
        for i in others:
            basis = basis * (at - ts[:, i : i + 1]) / (ts[:, j : j + 1] - ts[:, i : i + 1])
        total = total + y[:, j : j + 1] * basis
    return total


@trace_once
def _peak_times(brackets: _Brackets, heights: Float[Array, "places nodes"]) -> Float[Array, "2"]:
    """The time of the highest point of the polynomials through the nodes, and that of the highest sample."""
    nodes, y = jax.lax.stop_gradient((brackets.nodes, jnp.nan_to_num(heights)))
    dtype = nodes.dtype
    powers, fine = y @ jnp.asarray(_TO_POWERS.T, dtype), jnp.asarray(_FINE, dtype)
    on_fine = jax.vmap(lambda p: jnp.polyval(p, fine))(powers)
    place = jnp.argmax(jnp.max(on_fine, axis=1))
    p, x = powers[place], fine[jnp.argmax(on_fine[place])]
    slope, bend = jnp.polyder(p), jnp.polyder(p, 2)
    step = fine[1] - fine[0]
    low, high = jnp.maximum(x - step, -1.0), jnp.minimum(x + step, 1.0)
    for _ in range(_NEWTON):
        curved = jnp.polyval(bend, x)
        x = jnp.where(
            curved < 0, jnp.clip(x - jnp.polyval(slope, x) / jnp.where(curved < 0, curved, 1.0), low, high), x
        )
    first, last = nodes[place, 0], nodes[place, -1]
    refined = (first + last) / 2 + x * (last - first) / (2 * float(_ON_UNIT[-1]))
    flat, times = y.ravel(), nodes.ravel()
    k = jnp.argmax(flat)
    sampled = jnp.where(flat[k] >= jax.lax.stop_gradient(brackets.height), times[k], brackets.time)
    return jnp.stack([refined, sampled])
