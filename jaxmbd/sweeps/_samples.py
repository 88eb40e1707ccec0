"""Spaces of variants that are drawn: designs that fill ranges evenly, and parts within their tolerances."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy

from jaxmbd.checks import check_count, check_instance, check_mapping
from jaxmbd.errors import MechanismError

VARIANT = "variant"
Samples: TypeAlias = dict[str, tuple[str, np.ndarray]]


@dataclass(frozen=True)
class Normal:
    """A normal distribution with `mean` and standard `deviation`, in the unit of the number; with `lower` and `upper`
    only the part between them, as of parts that an inspection has let through (`deviation` is that of the whole)."""

    mean: float
    deviation: float
    lower: float = -math.inf
    upper: float = math.inf

    def __post_init__(self) -> None:
        if not (_is_finite(self.mean) and _is_finite(self.deviation) and self.deviation > 0):
            raise MechanismError(f"Normal: mean and deviation must be finite and deviation > 0; got {self}.")
        if not (_is_number(self.lower) and _is_number(self.upper) and self.lower < self.upper):
            raise MechanismError(f"Normal: lower and upper must be numbers and lower < upper; got {self}.")
        if not scipy.stats.norm(self.mean, self.deviation).cdf([self.lower, self.upper]) @ [-1.0, 1.0] > 0:
            raise MechanismError(f"Normal: no part of the distribution lies between lower and upper; got {self}.")


@dataclass(frozen=True)
class Uniform:
    """A uniform distribution between `lower` and `upper`, in the unit of the number."""

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not (_is_finite(self.lower) and _is_finite(self.upper) and self.lower < self.upper):
            raise MechanismError(f"Uniform: lower and upper must be finite and lower < upper; got {self}.")


def latin_hypercube(ranges: Mapping[str, tuple[float, float]], count: int, seed: int) -> Samples:
    """Return a Latin hypercube: each of `count` equal parts of each range has one variant.

    **Arguments:** `ranges`: the least and largest value by name; `count`: the number of variants; `seed`: the same seed
    gives the same variants.

    **Returns:** a space for `sweep` with the dimension `"variant"`.

    **Raises:** `MechanismError` if a range is no pair of increasing finite numbers.

    **Example:** `latin_hypercube({"length": (0.1, 0.2), "mass": (1.0, 3.0)}, 100, seed=0)`

        >>> space = mbd.sweeps.latin_hypercube({"length": (0.5, 1.0), "mass": (1.0, 2.0)}, 8, seed=0)
        >>> space["length"][0], space["length"][1].shape
        ('variant', (8,))
    """
    lower, upper = bounds("latin_hypercube", ranges)
    _check_draw("latin_hypercube", count, seed)
    unit = scipy.stats.qmc.LatinHypercube(len(lower), rng=np.random.default_rng(seed)).random(count)
    return _named(ranges, scipy.stats.qmc.scale(unit, lower, upper))


def sobol(ranges: Mapping[str, tuple[float, float]], count: int, seed: int) -> Samples:
    """Return the points of a scrambled Sobol' sequence, which fill the ranges more evenly than random ones.

    **Arguments:** `ranges`: the least and largest value by name; `count`: the number of variants, a power of two;
    `seed`: of the scrambling.

    **Returns:** a space for `sweep` with the dimension `"variant"`.

    **Raises:** `MechanismError` if a range is no pair of increasing finite numbers, or `count` is no power of two.

    **Example:** `sobol({"length": (0.1, 0.2), "mass": (1.0, 3.0)}, 128, seed=0)`

        >>> space = mbd.sweeps.sobol({"length": (0.5, 1.0), "mass": (1.0, 2.0)}, 8, seed=0)
        >>> space["length"][0], space["length"][1].shape
        ('variant', (8,))
    """
    lower, upper = bounds("sobol", ranges)
    _check_draw("sobol", count, seed)
    if count & (count - 1):
        near = 2 ** round(math.log2(count))
        raise MechanismError(
            f"sobol: count must be a power of two, for the points to be balanced; got {count}. Near: {near}."
        )
    unit = scipy.stats.qmc.Sobol(len(lower), rng=np.random.default_rng(seed)).random_base2(count.bit_length() - 1)
    return _named(ranges, scipy.stats.qmc.scale(unit, lower, upper))


def tolerances(parts: Mapping[str, Normal | Uniform], count: int, seed: int) -> Samples:
    """Return variants drawn at random from independent distributions, such as those of a production.

    **Arguments:** `parts`: a `Normal` or `Uniform` by name; `count`: the number of variants; `seed`: the same seed
    gives the same variants.

    **Returns:** a space for `sweep` with the dimension `"variant"`.

    **Raises:** `MechanismError` if something else than `Normal` or `Uniform` is given.

    **Example:** `tolerances({"length": Normal(0.3, 1e-4), "gap": Uniform(0.0, 1e-3)}, 1000, seed=0)`

        >>> space = mbd.sweeps.tolerances({"length": mbd.sweeps.Normal(0.5, 1e-3)}, 100, seed=0)
        >>> space["length"][0], space["length"][1].shape
        ('variant', (100,))
    """
    check_instance("tolerances: parts", parts, Mapping, 'a dictionary, such as {"length": Normal(0.3, 1e-4)}')
    check_mapping("tolerances: parts", parts, '{"length": Normal(0.3, 1e-4)}')
    _check_draw("tolerances", count, seed)
    draws, rng = {}, np.random.default_rng(seed)
    for name, part in parts.items():
        if isinstance(part, Normal):
            is_cut = np.isfinite([part.lower, part.upper]).any()
            ends = [(end - part.mean) / part.deviation for end in (part.lower, part.upper)]
            family, inspected = (scipy.stats.truncnorm, ends) if is_cut else (scipy.stats.norm, ())
            law: Any = family(*inspected, part.mean, part.deviation)
        elif isinstance(part, Uniform):
            law = scipy.stats.uniform(part.lower, part.upper - part.lower)
        else:
            raise MechanismError(
                f"tolerances: {name!r} must be Normal(mean, deviation), Normal(mean, deviation, lower, upper) or "
                f"Uniform(lower, upper), got {part!r}."
            )
        draws[name] = (VARIANT, np.asarray(law.rvs(size=count, random_state=rng), float))
    return draws


def _named(ranges: Mapping[str, object], points: np.ndarray) -> Samples:
    return {name: (VARIANT, points[:, k].copy()) for k, name in enumerate(ranges)}


def _check_draw(what: str, count: object, seed: object) -> None:
    check_count(f"{what}: count", count, 1)
    check_count(f"{what}: seed", seed, 0, most=None)


def _is_number(x: object) -> bool:
    try:
        return isinstance(x, int | float | np.number) and not math.isnan(x)
    except OverflowError:  # a whole number beyond the range of floats
        return False


def _is_finite(x: Any) -> bool:
    return _is_number(x) and math.isfinite(x)


def bounds(what: str, ranges: Mapping[str, tuple[float, float]]) -> tuple[list[float], list[float]]:
    """The least and the largest values of checked ranges."""
    check_mapping(f"{what}: ranges", ranges, '{"length": (0.1, 0.2)}')
    if not ranges:
        raise MechanismError(f'{what}: ranges names no numbers. Give at least one, such as {{"length": (0.1, 0.2)}}.')
    for name, pair in ranges.items():
        ok = isinstance(pair, tuple | list) and len(pair) == 2 and all(map(_is_finite, pair)) and pair[0] < pair[1]
        if not ok:
            raise MechanismError(
                f"{what}: the range of {name!r} must be a pair of finite numbers, the smaller one first; got {pair!r}."
            )
    return [float(a) for a, _ in ranges.values()], [float(b) for _, b in ranges.values()]
