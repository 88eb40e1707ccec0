"""Which numbers an output depends on: over ranges (Sobol' indices, Morris' screening), and at one point (derivatives).

Sobol' indices are parts of the variance of an output: `S1` of one number alone, `ST` with all its interactions. Morris'
method takes steps of one number at a time: `mu_star` is the mean size of their effects, `sigma` their spread.

Source: Saltelli et al., *Global Sensitivity Analysis: The Primer* (2008), chapters 3 and 4.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxmbd.arrays import as_float
from jaxmbd.checks import check_count, check_finite, check_mapping, checked_names
from jaxmbd.errors import MechanismError, SolveError, check_known, needs
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.parameters.numbers import find, with_numbers
from jaxmbd.printing import format_number, table
from jaxmbd.sweeps._outputs import RESULT, Function, OfMechanism, name_of, of_one, result_texts
from jaxmbd.sweeps._samples import VARIANT, bounds
from jaxmbd.sweeps._sweep import Sweep

if TYPE_CHECKING:
    import xarray as xr

Method = Literal["sobol", "morris"]

# The indices of each method with the half widths of their 95 % confidence intervals.
_INDICES = {
    "sobol": {"S1": "S1_conf", "ST": "ST_conf"},
    "morris": {"mu_star": "mu_star_conf", "mu": None, "sigma": None},
}


@dataclass(frozen=True)
class SensitivityIndices:
    """Indices of one output to each number; `print` shows them as a table.

    - `names`: the numbers; `output`; `method`; `variants`: how many were computed;
    - `indices`: arrays by name: `S1` and `ST`, or `mu_star`, `mu` and `sigma` (in the unit of the output);
    - `confidence`: half widths of the 95 % confidence intervals by bootstrap, for those that have one.
    """

    names: tuple[str, ...]
    output: str
    method: Method
    variants: int
    indices: dict[str, np.ndarray]
    confidence: dict[str, np.ndarray]

    def __repr__(self) -> str:
        rows = [["", *self.indices]]
        for k, name in enumerate(self.names):
            cells = []
            for index, values in self.indices.items():
                width = f" ± {self.confidence[index][k]:.2g}" if index in self.confidence else ""
                cells.append(f"{values[k]:.4g}{width}")
            rows.append([name, *cells])
        title = {"sobol": "Sobol' indices", "morris": "Morris' elementary effects"}[self.method]
        return f"{title} of {self.output}, {self.variants} variants\n{table(rows)}"


def sensitivity_indices(
    function: Function,
    ranges: Mapping[str, tuple[float, float]],
    output: str,
    *,
    count: int,
    seed: int,
    method: Method = "sobol",
    **options: Any,
) -> SensitivityIndices:
    """Return how much an output depends on each number, over the whole of their ranges.

    **Arguments:** `function`: as for `sweep`; `ranges`: the least and largest value by name; `output`: the name of a
    scalar output; `count`: with `"sobol"` a power of two, of which `count (n + 2)` variants for `n` numbers follow,
    with `"morris"` the number of trajectories, of `n + 1` variants each; `seed`: of the samples and of the bootstrap;
    `options`: of `sweep`, such as `store`, or the `mechanism` whose numbers are named.

    **Returns:** indices with their confidence, to be printed.

    **Raises:** `MechanismError` if an argument is invalid; `SolveError` if variants failed, with their number: the
    indices cannot be computed from a part of the variants.

    **Example:** `sensitivity_indices(function, {"length": (0.5, 1.0), "g": (9.7, 9.9)}, "period", count=256, seed=0)`

        >>> def period(x):
        ...     return {"period": 2 * jnp.pi * jnp.sqrt(x["length"] / x["g"])}
        >>> ranges = {"length": (0.9, 1.1), "g": (9.7, 9.9)}
        >>> found = mbd.sweeps.sensitivity_indices(period, ranges, "period", count=64, seed=0)
    """
    lower, upper = bounds("sensitivity_indices", ranges)
    check_known("method", [method], _INDICES)
    check_count("sensitivity_indices: count", count, 2)
    check_count("sensitivity_indices: seed", seed, 0)
    if method == "sobol" and count & (count - 1):
        raise MechanismError(f"sensitivity_indices: count must be a power of two for Sobol' indices, got {count}.")
    needs("sensitivity_indices", "SALib", "sweeps")
    names = tuple(ranges)
    problem = {"num_vars": len(names), "names": list(names), "bounds": list(map(list, zip(lower, upper, strict=True)))}
    points = _sample(problem, method, count, seed)
    space = {name: (VARIANT, points[:, k].copy()) for k, name in enumerate(names)}
    planned = Sweep(function, space, **options)
    shapes = {x.name: x.shape for x in planned.outputs if x.name != RESULT}
    check_known("output", [output], shapes)
    if shapes[output]:
        raise MechanismError(
            f"sensitivity_indices: {output!r} has shape {shapes[output]} for a variant; a scalar is needed."
        )
    found = planned.run()
    values = np.asarray(found[output].values, float)
    failed = ~np.isfinite(values)
    if RESULT in found:
        failed |= found[RESULT].values != 0
    if failed.any():
        at = ", ".join(f"{name} = {points[np.argmax(failed), k]:.6g}" for k, name in enumerate(names))
        raise SolveError(
            f"sensitivity_indices: {failed.sum()} of {len(values)} variants of {name_of(function)} failed or gave no "
            f"finite {output!r}, the first one with {at}. Choose ranges in which none fails."
        )
    indices = _analyse(problem, method, points, values, seed)
    found_indices = {name: np.asarray(indices[name], float) for name in _INDICES[method]}
    widths = {name: np.asarray(indices[conf], float) for name, conf in _INDICES[method].items() if conf}
    return SensitivityIndices(names, output, method, len(values), found_indices, widths)


def _sample(problem: dict[str, Any], method: Method, count: int, seed: int) -> np.ndarray:
    from SALib.sample import morris, sobol

    if method == "sobol":
        return np.asarray(sobol.sample(problem, count, calc_second_order=False, seed=seed))
    return np.asarray(morris.sample(problem, count, seed=seed))


def _analyse(problem: dict[str, Any], method: Method, points: np.ndarray, values: np.ndarray, seed: int) -> Any:
    from SALib.analyze import morris, sobol

    if np.ptp(values) == 0:
        raise MechanismError(
            f"sensitivity_indices: the output is {values[0]:.6g} for all variants: it depends on none of the numbers "
            f"{', '.join(problem['names'])}."
        )
    if method == "sobol":
        return sobol.analyze(problem, values, calc_second_order=False, seed=seed)
    return morris.analyze(problem, points, values, seed=seed)


@dataclass(frozen=True)
class LocalSensitivities:
    """Derivatives of outputs with respect to numbers at one point; `print` shows them as a table.

    - `numbers`, `values`: the point, and the outputs there, by name (entries of arrays as `"path[2]"`);
    - `derivatives`: `∂y/∂x` as `derivatives["y"]["x"]`, in the units of both;
    - `elasticities`: `(x / y) ∂y/∂x`, per cent of `y` for one per cent of `x`; NaN where `y` is zero;
    - `units`: those that were given, by the names of numbers and of outputs.
    """

    numbers: dict[str, float]
    values: dict[str, float]
    derivatives: dict[str, dict[str, float]]
    elasticities: dict[str, dict[str, float]]
    units: dict[str, str]

    def unit(self, output: str, number: str) -> str:
        """Return the unit of `∂y/∂x`: `"s/m"`; empty unless the units of both are known."""
        known = [self.units.get(name, "") for name in (_of_array(output, self.units), number)]
        return _quotient(*known) if all(known) else ""

    def dataset(self) -> "xr.Dataset":
        """Return the table as an `xarray.Dataset` with the dimensions `output` and `number`.

        Variables: `at (number)`, `value (output)`, `derivative` and `elasticity (output, number)`; their units are the
        coordinates `number_unit (number)`, `output_unit (output)` and `derivative_unit (output, number)`.
        """
        import xarray as xr

        outputs, numbers, both = list(self.values), list(self.numbers), ("output", "number")

        def entries(of: Callable[[str, str], object]) -> list[list[object]]:
            return [[of(output, number) for number in numbers] for output in outputs]

        variables = {
            "at": ("number", [self.numbers[name] for name in numbers]),
            "value": ("output", [self.values[name] for name in outputs]),
            "derivative": (both, entries(lambda y, x: self.derivatives[y][x])),
            "elasticity": (both, entries(lambda y, x: self.elasticities[y][x])),
        }
        coordinates = {
            "output": outputs,
            "number": numbers,
            "number_unit": ("number", [self.units.get(name, "") for name in numbers]),
            "output_unit": ("output", [self.units.get(_of_array(name, self.units), "") for name in outputs]),
            "derivative_unit": (both, entries(self.unit)),
        }
        return xr.Dataset(variables, coordinates)

    def __repr__(self) -> str:
        rows = [["output", "number", "at", "derivative", "elasticity"]]
        for output, parts in self.derivatives.items():
            for name, slope in parts.items():
                at = _with_unit(self.numbers[name], self.units.get(name, ""))
                derivative = _with_unit(slope, self.unit(output, name))
                rows.append([output, name, at, derivative, format_number(self.elasticities[output][name])])
        return table(rows, words=2)


def _of_array(label: str, units: Mapping[str, str]) -> str:
    """Return the name under which an output's unit was given: entries of an array have that of the array."""
    return label if label in units else label.partition("[")[0]


def _quotient(upper: str, lower: str) -> str:
    """Return the unit of a quotient; `"1"` is the unit of a number without dimension."""
    if upper == lower:
        return "1"
    if lower == "1":
        return upper
    return f"{upper}/({lower})" if set(lower) & set("/· *") else f"{upper}/{lower}"


def _with_unit(value: float, unit: str) -> str:
    return format_number(value) + f" {unit}" * (unit not in ("", "1"))


def _of_mechanism(mechanism: Mechanism, names: object) -> tuple[Mapping[str, PyTree], dict[str, str]]:
    """The values of numbers by name, and their units; of names alone those that the mechanism has."""
    check_mechanism(mechanism)
    if isinstance(names, Mapping):
        with_numbers(mechanism, names)  # its checks
        units = {name: {one.unit(mechanism) for one in find(mechanism, name)} for name in names}
        return names, {name: one.pop() for name, one in units.items() if len(one) == 1}
    listed = (names,) if isinstance(names, str) else checked_names("local_sensitivities: numbers", names, "rod.mass")
    each = [number for name in listed for one in find(mechanism, name) for number in one.elements(mechanism)]
    return {one.name: one.value(mechanism) for one in each}, {one.name: one.unit(mechanism) for one in each}


def local_sensitivities(
    function: Function,
    numbers: Mapping[str, float] | Sequence[str] | str,
    *,
    units: Mapping[str, str] | None = None,
    mechanism: Mechanism | None = None,
) -> LocalSensitivities:
    """Return the derivatives of all outputs with respect to all numbers, `∂y_i/∂x_k`, in forward mode.

    **Arguments:** `function`: as for `sweep`; `numbers`: the point, by name; `units`: texts by the names of numbers and
    outputs, `{"length": "m", "period": "s"}`, `"1"` for one without dimension: the table then shows units; `mechanism`:
    as in `sweep`, a mechanism whose numbers are named. They may then be names or patterns alone, `["*.mass"]`, each
    number at its value in the mechanism, and their units are known.

    **Returns:** derivatives and elasticities by name, to be printed, or as an `xarray.Dataset` by `dataset()`. Integers
    and booleans are left out.

    **Raises:** `MechanismError` if an argument is invalid; `SolveError` if the verdict at the point is not successful.

    **Example:** `local_sensitivities(function, {"length": 1.0, "g": 9.81}).elasticities["period"]["length"]`

        >>> def period(x):
        ...     return {"period": 2 * jnp.pi * jnp.sqrt(x["length"] / x["g"])}
        >>> slopes = mbd.sweeps.local_sensitivities(period, {"length": 1.0, "g": 9.81})
        >>> print(f"{slopes.elasticities['period']['length']:.3f}")  # per cent for one per cent
        0.500
        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> def height(mechanism):
        ...     return {"y": mbd.assemble(mechanism, {"O.angle": 1.0}, check=False)["rod.y"]}
        >>> names = ["O.b.position[0]"]
        >>> print(mbd.sweeps.local_sensitivities(height, names, mechanism=pendulum, units={"y": "m"}))
        output  number               at  derivative  elasticity
        y       O.b.position[0]  -0.5 m   -0.841471           1
    """
    units = {} if units is None else units
    check_mapping("local_sensitivities: units", units, '{"length": "m"}')
    if mechanism is not None:
        function = OfMechanism(function, mechanism)
        numbers, known = _of_mechanism(mechanism, numbers)
        units = {**known, **units}
    check_mapping("local_sensitivities: numbers", numbers, '{"length": 1.0}')
    if not numbers or not isinstance(numbers, Mapping):
        raise MechanismError('local_sensitivities: numbers is empty. Give at least one, such as {"length": 1.0}.')
    point = {name: as_float(value) for name, value in numbers.items()}
    for name, value in point.items():
        check_finite("local_sensitivities", name, value)
    for name, unit in units.items():
        if not isinstance(unit, str):
            raise MechanismError(f'local_sensitivities: the unit of {name!r} must be a text such as "m", got {unit!r}.')
    one = of_one(function)

    def real(x: dict[str, Array]) -> tuple[dict[str, Array], tuple[dict[str, Array], Array]]:
        found = one(x)
        verdict = found.pop(RESULT, jnp.zeros((), jnp.int32))
        kept = {name: jnp.ravel(value) for name, value in found.items() if value.dtype.kind == "f"}
        return kept, (kept, verdict)

    slopes, (values, verdict) = jax.jit(jax.jacfwd(real, has_aux=True))(point)
    if int(verdict) != 0:
        text = result_texts()[int(verdict)]
        raise SolveError(f"local_sensitivities: {name_of(function)} failed at this point. {text}")
    check_known("number or output", units, [*numbers, *values])
    flat, derivatives, elasticities = {}, {}, {}
    for output, entries in values.items():
        for k, y in enumerate(np.asarray(entries).tolist()):
            label = output if len(entries) == 1 else f"{output}[{k}]"
            flat[label] = y
            derivatives[label] = {name: float(slopes[output][name][k]) for name in numbers}
            elasticities[label] = {
                name: slope * float(numbers[name]) / y if y else float("nan")
                for name, slope in derivatives[label].items()
            }
    at = {name: float(x) for name, x in numbers.items()}
    return LocalSensitivities(at, flat, derivatives, elasticities, dict(units))
