"""A program of a motion as functions of a kernel (`erk_kernel.py`).

What it computes has one of three levels: what is the same for all instances is computed once, by a kernel of one
thread, and is in the constant memory of the main kernel; what depends on an instance's parameters is computed before
its time loop; the rest at each stage.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from jaxmbd.engine.machine.straight_line import Value, gather_function, owners, statements, values_of
from jaxmbd.engine.program.opcodes import GATHER
from jaxmbd.engine.program.schedule import Program

_UNIFORM, _INSTANCE, _MOVING = range(3)  # levels


class Role(NamedTuple):
    """What a program is evaluated for: the name of the function, and its parameters after the motion."""

    name: str
    parameters: tuple[str, ...]

    @property
    def arguments(self) -> str:
        """The names of the parameters."""
        return ", ".join(each.split()[-1].lstrip("*") for each in self.parameters)


# The programs of a motion, as `motion.h` numbers them.
PROGRAMS = (
    "RATE", "DERIVATIVE", "AFTER", "GUARD", "EVENT", "EVENT_DERIVATIVE", "CLOSING", "CLOSING_DERIVATIVE", "GUESS",
    "LINEARIZE", "REACH", "REACH_DERIVATIVE", "ADJOINT",
)  # fmt: skip

_AT = ("V *x", "const V *t", "const V *y")
_INSTANCES = "const int64_t *instances"
BEGIN = Role("begin", ("V *x", _INSTANCES))
SLOPE = Role("slope", (*_AT, _INSTANCES, "V *f"))
TANGENT = Role("tangent", (*_AT, "const V *dt", "const V *dy", _INSTANCES, "V *f", "V *df"))
PULL = Role("pull", (*_AT, "const V *dy", _INSTANCES, "const V on", "V *bar", "V *tbar", "V *bars"))


class Buffer(NamedTuple):
    """An operand or a result: its numbers per instance, and whether each instance has its own."""

    size: int
    varies: bool


class Part(NamedTuple):
    """A program of a motion, one of `PROGRAMS` by its `name`.

    `moving`: the inputs that are no operands, as their names in the kernel: `t`, `y`, `dt`, `dy`; `results`: the names
    of the outputs, empty for the cotangent of a parameter; `first`: the place of its first operand; `condition`: the
    input that is zero where nothing happens, -1 for none.
    """

    name: str
    program: Program
    role: Role
    moving: dict[int, str]
    results: tuple[str, ...]
    first: int
    condition: int = -1

    def place(self, given: int) -> int:
        """The place of an input among the operands."""
        return self.first + given - sum(given > k for k in self.moving)

    @property
    def end(self) -> int:
        """The place after its last operand."""
        return self.first + len(self.program.input_sizes) - len(self.moving)

    @property
    def parameters(self) -> int:
        """The number of cotangents of parameters."""
        return sum(int(n) for n, name in zip(self.program.output_sizes, self.results, strict=True) if not name)


class PartText(NamedTuple):
    """The functions of a part, the statements for its uniform values, and the numbers of these and of values carried
    from the start of a motion to its stages, one at least."""

    functions: str
    prepare: str
    uniform: int
    carried: int


def part_text(part: Part, buffers: Sequence[Buffer], offset: int, limit: int) -> PartText:
    """The text of a part; its uniform values begin at `offset`, and there may be `limit` of all parts together."""
    name, levels = part.name, _Levels(part, buffers, _UNIFORM)
    if offset + len(levels.kept(_UNIFORM)) > limit:
        levels = _Levels(part, buffers, _INSTANCE)
    values, uniform, carried = levels.values, levels.kept(_UNIFORM), levels.kept(_INSTANCE)
    inputs = {k: levels.input_text(value) for k, value in enumerate(values) if value.name == "slot"}
    before = inputs | {k: f"uniform[{offset + i}]" for i, k in enumerate(uniform)}
    moving = before | {k: f"x[{i}]" for i, k in enumerate(carried)}
    prepare = statements(values, {f"results[{offset + i}]": k for i, k in enumerate(uniform)}, inputs)
    begin = statements(values, {f"x[{i}]": k for i, k in enumerate(carried)}, before)
    at_stage = statements(values, levels.results, moving)
    gather = gather_function(name, "const Motion *m", part.program, levels.operand_text)
    head, tail = f"{gather}\n#define gather_lanes gather_{name}", "#undef gather_lanes\n"
    functions = [
        head, *function(BEGIN, name), *_lines(begin), "}", *_stage_function(part, at_stage), tail,
    ]  # fmt: skip
    once = [f"#define gather_lanes gather_{name}", "{", *_lines(prepare), "}", tail]
    return PartText("\n".join(functions), "\n".join(once), len(uniform), max(len(carried), 1))


def _stage_function(part: Part, body: Iterator[str]) -> list[str]:
    """The function that is called at each stage."""
    first, last, count = [], [], part.parameters
    if part.role is PULL:
        first = [f"V own[{max(count, 1)}];"]
        first += [] if "bar" in part.results else ["for (int k = 0; k < STATES(m); k++) bar[k] = 0;"]
        last = [f"for (int k = 0; k < {count}; k++) bars[k] += select_lanes(on, own[k], ALL(0));"]
    return [*function(part.role, part.name), *first, *_lines(body), *last, "}"]


def function(role: Role, program: str) -> list[str]:
    """The beginning of a function."""
    return [f"INLINE void {role.name}_{program}(const Motion *m, {', '.join(role.parameters)}) {{"]


class _Levels:
    """The values of a part, with their levels. `least`: the lowest one that is used."""

    def __init__(self, part: Part, buffers: Sequence[Buffer], least: int) -> None:
        self.part, self.buffers = part, buffers
        self.values, stored = values_of(part.program)
        program = part.program
        inputs = zip(program.loads.tolist(), owners(program.input_ends), strict=True)
        self._inputs = {slot: (k, element) for (element, slot), k in inputs}
        self.results, starts = dict[str, int](), self._starts()
        for (element, slot), output in zip(program.stores.tolist(), owners(program.output_ends), strict=True):
            name = part.results[output]
            target = f"{name}[{element}]" if name else f"own[{starts[output] + element}]"
            self.results[target] = stored[slot]
        self.level: list[int] = []
        for value in self.values:
            self.level.append(max(least, self._own_level(value), *(self.level[k] for k in value.sources)))

    def _starts(self) -> list[int]:
        """The index of the first of the cotangents of each output."""
        pairs = zip(self.part.program.output_sizes, self.part.results, strict=True)
        sizes = [0 if name else int(size) for size, name in pairs]
        return [sum(sizes[:k]) for k in range(len(sizes))]

    def _own_level(self, value: Value) -> int:
        if value.name == "slot":
            return self._input_level(self._inputs[value.operands[0]][0])
        return self._input_level(self.part.program.gathers[value.operands[1]][0]) if value.name == GATHER else 0

    def _input_level(self, k: int) -> int:
        if k in self.part.moving:
            return _MOVING
        return _INSTANCE if self.buffers[self.part.place(k)].varies else _UNIFORM

    @cached_property
    def _needed(self) -> set[int]:
        """The values on which the results depend."""
        needed, stack = set(), list(self.results.values())
        while stack:
            k = stack.pop()
            if k not in needed:
                needed.add(k)
                stack += self.values[k].sources
        return needed

    def kept(self, level: int) -> list[int]:
        """The values of a level that values of a higher one need, or the results, without constants."""
        users = [(self.values[k].sources, self.level[k]) for k in self._needed]
        users.append((tuple(self.results.values()), _MOVING))
        kept = {k for sources, above in users if above > level for k in sources if self.level[k] == level}
        return sorted(k for k in kept if self.values[k].name != "constant")

    def input_text(self, value: Value) -> str:
        """The text of an input."""
        k, element = self._inputs[value.operands[0]]
        return f"{self.part.moving.get(k) or self.operand_text(k)}[{element}]"

    def operand_text(self, k: int) -> str:
        """The text of a pointer to an input of the instance."""
        size, varies = self.buffers[self.part.place(k)]
        return f"OF({self.part.place(k)}, {size if varies else 0})"


def _lines(statements: Iterator[str]) -> Iterator[str]:
    """Statements with the motion in the place of a call."""
    return (f"  {line.replace('(call, ', '(m, ')}" for line in statements)
