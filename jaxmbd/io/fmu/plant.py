"""A mechanism as functions of one instant, and those as programs: what C code needs of it.

The arguments are the time `t`, the state `x = (q, v, z)`, the memory (a mask of the constraint rows in which the
equations are solved, empty if rows are independent), the inputs `u` and the parameters `p`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.events.parts import are_sides_of, guard_units
from jaxmbd.analyses.simulation.samples import changing_parts
from jaxmbd.arrays import Scalar
from jaxmbd.engine.binding.tracing import TracedFunction, traced
from jaxmbd.engine.machine.c_function import c_functions, dependencies
from jaxmbd.engine.program.schedule import Program
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.kinematic_quantities import KinematicReader
from jaxmbd.errors import MechanismError
from jaxmbd.integrate.formulations.formulation import AbstractFormulation, Projection
from jaxmbd.integrate.formulations.independent_constraints import RowSelection, exchanged_rows
from jaxmbd.integrate.formulations.joint_loads import motion_at
from jaxmbd.integrate.solvers.switching import switches_of
from jaxmbd.model.mechanism.inputs import with_signals
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.parameters.numbers import Number, replaced
from jaxmbd.state.output_channels import Snapshot, channel_values

_AT = ("t", "x", "memory", "u", "p")
_NEAR = 1e-8  # of the size of its quantity, up to which a guard counts as zero


@dataclass(frozen=True)
class Channel:
    """An output: a quantity by name, or with an index one component of it."""

    name: str
    index: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Plant:
    """A mechanism with the names of its inputs, its parameters and its outputs.

    `selection`: the constraint rows in which the equations are solved; `has_events`: whether laws with kinks hold their
    sides, which events change.
    """

    mechanism: Mechanism
    formulation: AbstractFormulation
    selection: RowSelection
    inputs: tuple[str, ...]
    parameters: tuple[Number, ...]
    outputs: tuple[Channel, ...]
    has_events: bool = False
    sizes: tuple[int, ...] = field(init=False)  # of `x, memory, u, p`

    def __post_init__(self) -> None:
        layout, rows = self.mechanism.layout, self.selection.rows
        memory = 0 if rows is None else len(rows)
        object.__setattr__(self, "sizes", (len(layout.names), memory, len(self.inputs), len(self.parameters)))

    def response(self, t: Scalar, x: Array, memory: Array, u: Array, p: Array) -> tuple[Array, Array, Array]:
        """The rates `ẋ`, the outputs `y`, and the state as a `Solution` reports it: with the speeds that satisfy the
        constraints and quaternions of length one."""
        q, v, z = self._split(x)
        equations = self._equations(memory, u, p).with_own_states(z)
        motion = motion_at(self.formulation, equations, t, q, v)
        rates = [motion.qdot, motion.rate, equations.at(t, q).own_rates(motion.v)]
        snapshot = Snapshot(t, q, motion.v, motion.vdot, motion.lam, z)
        values = channel_values(equations, dict.fromkeys(one.name for one in self.outputs), snapshot)
        read = [jnp.reshape(values[one.name][one.index], 1) for one in self.outputs]
        reported = [equations.normalize(q), motion.v, z]
        return jnp.concatenate(rates), jnp.concatenate([*read, x[:0]]), jnp.concatenate(reported)

    def closing(self, t: Scalar, x: Array, memory: Array, u: Array, p: Array) -> tuple[Array, Array]:
        """One step of Newton's method onto the constraints: the state, and the relative size of the change."""
        q, v, z = self._split(x)
        equations = self._equations(memory, u, p).with_own_states(z)
        q, v, change = Projection().closing_step(equations, t, q, v)
        return jnp.concatenate([q, v, z]), change[None]

    def next_memory(self, t: Scalar, x: Array, memory: Array, u: Array, p: Array) -> Array:
        """The constraint rows for the next step."""
        return exchanged_rows(self._equations(memory, u, p), t, self._split(x)[0]).astype(x.dtype)

    def changes(self, t: Scalar, x: Array, memory: Array, u: Array, p: Array) -> tuple[Array, Array, Array]:
        """The heights of laws with kinks, whose zeros are events; the state after the changes of sides that are due;
        and the one at the start of a motion.

        An importer stops on either side of a zero. What is nearly zero is due if it falls away from its side.
        """
        z = self._split(x)[2]

        def reader(t: Array, x: Array) -> KinematicReader:
            q, v, z = self._split(x)
            return KinematicReader(self._equations(memory, u, p).with_own_states(z).at(t, q), v)

        along = jnp.ones_like(t), self.response(t, x, memory, u, p)[0]
        guards, rates = jax.jvp(lambda t, x: reader(t, x).guards(), (t, x), along)
        here, sides = reader(t, x), z[are_sides_of(self.mechanism)]
        sizes = [here.position.equations.scales.quantity(unit) for unit in guard_units(self.mechanism)]
        is_due = jnp.where(jnp.abs(guards) <= _NEAR * jnp.stack(sizes), rates < 0, guards < 0)
        changed = z + jnp.sum(jnp.where(is_due[:, None], here.changed_states() - z[None], 0.0), axis=0)
        motion = x[: len(x) - len(z)]
        after, begun = (jnp.concatenate([motion, own]) for own in (changed, here.begun_states()))
        return jnp.where(sides == 0, 1.0, sides * guards), after, begun  # a guard is a height by its side

    @cached_property
    def heights(self) -> int:
        """The number of heights of laws with kinks, if they hold their sides."""
        return len(guard_units(self.mechanism)) if self.has_events else 0

    def switching_times(self, p: Array) -> Array:
        """The times at which forces or prescribed motions switch, in no order."""
        switches = switches_of(self._with_parameters(p), None)
        assert switches is not None
        return jnp.concatenate([switches.jumps, switches.kinks])

    @cached_property
    def switches(self) -> int:
        """The number of switching times."""
        switches = switches_of(self.mechanism, None)
        return 0 if switches is None else len(switches.jumps) + len(switches.kinks)

    @property
    def values(self) -> np.ndarray:
        """The values of the parameters in the mechanism."""
        return np.array([float(one.value(self.mechanism)) for one in self.parameters])

    def _split(self, x: Array) -> list[Array]:
        nq, nv = self.mechanism.nq, self.mechanism.nv
        return jnp.split(x, [nq, nq + nv])

    def _with_parameters(self, p: Array) -> Mechanism:
        return replaced(self.mechanism, [(one, p[k]) for k, one in enumerate(self.parameters)])

    def _equations(self, memory: Array, u: Array, p: Array) -> Equations:
        mechanism = with_signals(self._with_parameters(p), [(name, u[k]) for k, name in enumerate(self.inputs)])
        rows = None if self.selection.rows is None else jax.lax.stop_gradient(memory) != 0
        return Equations(mechanism).solved_in(self.selection.redundant, rows)


@dataclass(frozen=True)
class PlantCode:
    """The functions of a plant as C text, and on what its rates and outputs depend: for each of them, entries of the
    state and inputs, ("x", 2), ("u", 0), ("t", 0)."""

    text: str
    of_rates: tuple[frozenset[tuple[str, int]], ...]
    of_outputs: tuple[frozenset[tuple[str, int]], ...]


def code_of(plant: Plant, adjoint: bool) -> PlantCode:
    """The functions of a plant as C text: rates, outputs, their tangents, and with `adjoint` their cotangents; how
    joints are closed, the memory after a step, and the switching times.

    **Raises:** `MechanismError` for a part whose law is no program.
    """
    types, results = _types(plant), ("rates_", "outputs_", "")
    response = traced(plant.response, types)
    program = _program(response)
    if program is None:
        raise _no_program(plant)
    tangents = response.derivative((0, 1, 3, 4))
    given = c_functions(
        program, _AT,
        {"rates": ("dx", "", ""), "outputs": ("", "y", ""), "reported_state": ("", "", "reported")},
    )  # fmt: skip
    texts = [given, _text("tangents", tangents, (*_AT, "dt", "dx", "du", "dp"), results)]
    if adjoint:
        cotangents = traced(_without_state(tangents.transpose((5, 6, 7, 8))), [*types, *response.results[:2]])
        texts.append(_text("cotangents", cotangents, (*_AT, *results[:2]), ("bt", "bx", "bu", "bp")))
    if sum(plant.mechanism.constraint_sizes()):
        texts.append(_text("closing_step", traced(plant.closing, types), _AT, ("closed", "change")))
    if plant.heights:
        functions = {
            "heights": ("values", "", ""),
            "changed_states": ("", "changed", ""),
            "begun_states": ("", "", "begun"),
        }
        texts.append(_texts(traced(plant.changes, types), _AT, functions))
    if plant.selection.rows is not None:
        texts.append(_text("next_memory", traced(lambda *at: (plant.next_memory(*at),), types), _AT, ("next",)))
    if plant.switches:
        times = traced(lambda p: (plant.switching_times(p),), types[-1:])
        texts.append(_text("switching_times", times, ("p",), ("times",)))
    else:
        texts.append("static void switching_times(const double *p, double *times) { (void)p; (void)times; }")
    rates, outputs, _ = dependencies(program)
    return PlantCode("\n\n".join(texts), _of_states_and_inputs(rates), _of_states_and_inputs(outputs))


def check_without_discrete_changes(mechanism: Mechanism) -> None:
    """Raise for parts that change at events or instants of their own."""
    for part in changing_parts(mechanism):
        raise MechanismError(
            f"{type(part).__name__} {part.name!r} changes at instants, which an exported mechanism does not. Smooth "
            "friction can be exported, such as JointFriction or LuGreFriction, and so can continuous controllers, such "
            "as PID; what a sampled controller drives can be an input, which the importer computes."
        )


def _types(plant: Plant) -> list[jax.ShapeDtypeStruct]:
    """The types of `t, x, memory, u, p`."""
    return [jax.ShapeDtypeStruct(shape, jnp.result_type(float)) for shape in ((), *((n,) for n in plant.sizes))]


def _program(function: TracedFunction) -> Program | None:
    # No factors are shared between instances of a batch, as straight-line code asks for.
    return function.hoisted_program(0)


def _text(name: str, function: TracedFunction, inputs: Sequence[str], results: Sequence[str]) -> str:
    return _texts(function, inputs, {name: results})


def _texts(function: TracedFunction, inputs: Sequence[str], functions: Mapping[str, Sequence[str]]) -> str:
    program = _program(function)
    if program is None:
        names = " and ".join(functions)
        raise MechanismError(f"The function {names} of this mechanism cannot be written as straight-line code.")
    return c_functions(program, inputs, functions)


def _without_state(cotangents: TracedFunction) -> Callable[..., Sequence[Array]]:
    """The same function without the cotangent of the reported state, which is zero."""
    return lambda *arrays: tuple(cotangents(*arrays, jnp.zeros_like(arrays[1])))


def _of_states_and_inputs(found: Sequence[set[tuple[int, int]]]) -> tuple[frozenset[tuple[str, int]], ...]:
    return tuple(frozenset((_AT[k], element) for k, element in each if _AT[k] in ("t", "x", "u")) for each in found)


def _no_program(plant: Plant) -> MechanismError:
    """The error that names the part without which the mechanism would be a program, if there is one."""
    mechanism = plant.mechanism
    of = lambda m, outputs=(): _is_program(Plant(m, plant.formulation, plant.selection, (), (), outputs))  # noqa: E731
    alone = [(part, ([part], mechanism.drivers, [])) for part in mechanism.forces]
    alone += [(part, ([], [part], [])) for part in mechanism.drivers]
    for part, parts in alone:
        if not of(mechanism.replaced(*parts)):
            return MechanismError(
                f"The law of {type(part).__name__} {part.name!r} is no arithmetic of known size, so it "
                "cannot be written as C: it calls back to Python, or searches with a loop whose length depends on its "
                "input. Write it with jax.numpy, or leave the part out and let an input take its place."
            )
    for one in plant.outputs:
        if not of(mechanism, (one,)):
            return MechanismError(
                f"The output {one.name!r} is no arithmetic of known size, so it cannot be written as C. Leave it out."
            )
    return MechanismError(
        "The equations of motion are no arithmetic of known size, so they cannot be written as C: a "
        "joint or a controller of your own calls back to Python, or searches with a loop whose length depends on its "
        "input."
    )


def _is_program(plant: Plant) -> bool:
    return _program(traced(plant.response, _types(plant))) is not None
