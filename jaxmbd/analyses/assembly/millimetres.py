"""Millimetres among metres: whether a mechanism that does not close would do so with some of its lengths divided by
1000.

All lengths in one wrong unit are no obstacle, since one shape has one verdict at all sizes; it is a mixture that keeps
parts from reaching each other. Which lengths are suspected follows from their sizes; what is said has been tried.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.assembly.position_solve import is_reading
from jaxmbd.arrays import frozen
from jaxmbd.model.body.body import AbstractMarker, AbstractMovingMarker
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.joint.shared import Rod
from jaxmbd.model.mechanism.mechanism import Mechanism

_MILLI = 1e-3
_APART = 10.0  # ratio of two lengths from which they may have different units: links of one mechanism differ less
_MOST = 8  # mixtures that are tried

Prescribed = dict[str, Array]


class _Length(NamedTuple):
    """A length that takes part in closing the joints: the key by which it is found, whose it is, and its size [m]."""

    key: tuple[Any, ...]
    owner: str
    size: float


def millimetres_text(
    mechanism: Mechanism, prescribed: Prescribed, closes: Callable[[Mechanism, Prescribed], bool]
) -> str:
    """Return the sentence on lengths with which the mechanism closes if they are millimetres, else "".

    `closes(mechanism, prescribed)` tries it.
    """
    for lengths in _mixtures(_lengths(mechanism, prescribed)):
        keys = {length.key for length in lengths}
        if closes(_divided(mechanism, keys), _values_divided(prescribed, keys)):
            sizes = dict.fromkeys(f"{each.size:.4g}" for each in (lengths[0], lengths[-1]))
            owners = " and ".join(dict.fromkeys(length.owner for length in lengths))
            return f" It would fit if {owners} ({' to '.join(sizes)}) were in millimetres: divide by 1000."
    return ""


def _lengths(mechanism: Mechanism, prescribed: Prescribed) -> list[_Length]:
    """Return all lengths that are not zero, the smallest first."""
    found: dict[tuple[Any, ...], _Length] = {}

    def add(key: tuple[Any, ...], owner: str, value: Any) -> None:
        size = float(np.linalg.norm(np.asarray(frozen(value), float)))
        if size > 0:
            found[key] = _Length(key, owner, size)

    for joint in mechanism.joints:
        if not isinstance(joint, AbstractJoint):
            continue
        for marker in joint.markers:
            if _is_fixed(marker):
                add(_key(marker), f"markers on {marker.body!r}", marker.position)
        if isinstance(joint, Rod):
            add((joint.name,), f"the length of {joint.name!r}", joint.length)
    for name, value in prescribed.items():
        if np.ndim(value) == 0 and not is_reading(mechanism, name) and _unit(mechanism, name) == "m":
            add(("fixed", name), f"the value of {name!r}", value)
    return sorted(found.values(), key=lambda length: length.size)


def _unit(mechanism: Mechanism, name: str) -> str:
    return mechanism.coordinate(name).unit(mechanism.space)


def _mixtures(lengths: list[_Length]) -> Iterator[list[_Length]]:
    """Yield lengths that may be millimetres among metres: all above a gap, the widest gap first, then those of one
    owner; each of a size, divided by 1000, that goes with the rest."""
    sizes = np.asarray([length.size for length in lengths])
    gaps = sizes[1:] / sizes[:-1]
    wide = [k for k in np.argsort(-gaps, kind="stable") if gaps[k] >= _APART]
    groups = [lengths[k + 1 :] for k in wide]
    groups += [[each for each in lengths if each.owner == owner] for owner in {each.owner: 0 for each in lengths[::-1]}]
    tried: list[list[_Length]] = []
    for group in groups:
        rest = [length.size for length in lengths if length not in group]
        own = [_MILLI * length.size for length in group]
        if rest and group not in tried and min(own) >= min(rest) / _APART and max(own) <= max(rest) * _APART:
            tried.append(group)
    yield from tried[:_MOST]


def _divided(mechanism: Mechanism, keys: set[tuple[Any, ...]]) -> Mechanism:
    """Return the mechanism with these lengths divided by 1000."""

    def of_marker(part: Any) -> Any:
        if not _is_fixed(part) or _key(part) not in keys:
            return part
        return eqx.tree_at(lambda marker: marker.position, part, _MILLI * part.position)

    def of_joint(joint: Any) -> Any:
        joint = jax.tree.map(of_marker, joint, is_leaf=_is_fixed)
        if isinstance(joint, Rod) and (joint.name,) in keys:
            joint = eqx.tree_at(lambda rod: rod.length, joint, _MILLI * joint.length)
        return joint

    return eqx.tree_at(lambda m: m.joints, mechanism, tuple(map(of_joint, mechanism.joints)))


def _values_divided(prescribed: Prescribed, keys: set[tuple[Any, ...]]) -> Prescribed:
    return {name: _MILLI * value if ("fixed", name) in keys else value for name, value in prescribed.items()}


def _is_fixed(part: Any) -> bool:
    return isinstance(part, AbstractMarker) and not isinstance(part, AbstractMovingMarker)


def _key(marker: Any) -> tuple[Any, ...]:
    return marker.body, np.asarray(frozen(marker.position)).tobytes()
