"""What derivatives cost: a reverse gradient and ten forward sensitivities of `simulate`, over the solve alone.

The four-bars swing for 1 s at the default tolerances. Parameters are all float leaves of the mechanism: masses,
inertias, poses, the positions of all markers, gravity. What is differentiated is the sum of the final coordinates.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

import jaxmbd as mbd
from benchmarks import ours
from benchmarks.compiled import Compiled, compiled
from benchmarks.measure import take_turns
from benchmarks.options import Options, Record, Say
from benchmarks.problems import four_bars
from benchmarks.table import Table, figures

SIZES = (1, 10)
DURATION = 1.0  # s
DIRECTIONS = 10


def measure(options: Options, say: Say) -> list[Record]:
    """Seconds, compile time and memory of solve, gradient and sensitivities."""
    records = []
    for n in SIZES[:1] if options.quick else SIZES:
        for coordinates in ("absolute", "joint"):
            say(f"N = {n}, {coordinates} coordinates: compiling three programs")
            count, programs = derivatives(n, coordinates)
            seconds = take_turns([program.call for program in programs.values()], 2.0, 15)
            for (what, program), time in zip(programs.items(), seconds, strict=True):
                records.append(
                    {
                        "n": n, "coordinates": coordinates, "what": what, "parameters": count, "seconds": time,
                        "ratio": time / seconds[0], "megabytes": program.megabytes,
                        "compile_seconds": program.trace_seconds + program.compile_seconds,
                    }
                )  # fmt: skip
    return records


def derivatives(n: int, coordinates: str) -> tuple[int, dict[str, Compiled]]:
    """The number of parameters, and the compiled programs by what they compute."""
    problem = four_bars(n)
    mechanism = ours.mechanism_of(problem).with_coordinates(coordinates)
    state = ours.parallel_state(mechanism, problem)
    parameters, rest = eqx.partition(mechanism, eqx.is_inexact_array)

    def final(derivative: Any) -> Callable[[Any], jax.Array]:
        def solve(parameters: Any) -> jax.Array:
            whole = eqx.combine(parameters, rest)
            ts = jnp.array([0.0, DURATION])
            return mbd.simulate(whole, state, ts, adjoint=derivative, throw=False).q[-1].sum()

        return solve

    def sensitivities(parameters: Any, tangents: Any) -> Any:
        along = lambda tangent: jax.jvp(final("forward"), (parameters,), (tangent,))  # noqa: E731
        return jax.vmap(along, out_axes=(None, 0))(tangents)

    programs = {
        "solve": compiled(final("reverse"), parameters),
        "reverse gradient": compiled(jax.value_and_grad(final("reverse")), parameters),
        "ten forward sensitivities": compiled(sensitivities, parameters, directions(parameters)),
    }
    return sum(leaf.size for leaf in jax.tree.leaves(parameters)), programs


def directions(parameters: Any) -> Any:
    """Ten random directions of all parameters together, each leaf with a leading axis of ten."""
    leaves, structure = jax.tree.flatten(parameters)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    made = [jax.random.normal(k, (DIRECTIONS, *x.shape), x.dtype) for k, x in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, made)


def tables(records: Sequence[Record]) -> list[Table]:
    """Times over the solve's, memory and compile time."""
    rows = [
        [
            f"N = {r['n']}, {r['coordinates']}", r["what"], str(r["parameters"]), figures(1e3 * r["seconds"]),
            figures(r["ratio"], 2), figures(r["megabytes"]), figures(r["compile_seconds"], 2),
        ]
        for r in records
    ]  # fmt: skip
    heads = ("four-bars", "what", "parameters", "run [ms]", "over the solve", "memory [MB]", "compile [s]")
    return [Table("Derivatives of a solve of 1 s", heads, rows)]
