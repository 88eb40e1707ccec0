"""What is said of JAX's primitives and their parameters is so in the installed version, and is all that is used.

A new version of JAX is met here: what it has renamed, dropped or added fails with its name.
"""

import ast
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax.extend.core import Literal, Primitive

from jaxmbd.engine.binding import lookups, tracing
from jaxmbd.engine.calls import identity
from jaxmbd.engine.numpy_code import functions, translation
from jaxmbd.engine.program.equation import Equation
from jaxmbd.engine.program.lowering import RULES, Interpreter
from jaxmbd.engine.program.ssa_builder import SSABuilder
from jaxmbd.symbolic.graph import trace
from jaxmbd.upstream import primitives
from jaxmbd.upstream.primitives import PRIMITIVES, SINCE, UNTIL
from tests.upstream.primitive_examples import examples

PACKAGE = Path(primitives.__file__).parents[1]
VERSION = tuple(map(int, jax.__version__.split(".")[:2]))
OURS = ("jaxmbd_", "symmetric_")  # how the names of our own primitives begin
OUR_PARAMETERS = {"call"}  # which JAX has as the name of a primitive, until 0.11
# Those that no example shows: JAX makes them inside of what it compiles for several devices, or of errors.
HIDDEN = {"closed_call"}
# Their other parameters belong to the function that is called, or to the devices.
UNREAD = {
    *("num_consts", "num_res", "fun_jaxpr_thunk", "update_jaxpr", "update_consts"),
    *primitives.PLACES, *primitives.MANNER, *primitives.DERIVATIVES, *primitives.TREES, *primitives.ONLY_NONE,
}  # fmt: skip
TABLES: list[Any] = [
    RULES, tracing._RULES, trace.RULES, functions.FUNCTIONS, translation._RULES, translation.CALL_RULES,
    identity.EXPANSIONS, lookups._SAME, primitives.LABELLED,
]  # fmt: skip


def is_of_this_version(name: str) -> bool:
    """True if a primitive, or a parameter of it (`scan.ft_in`), is in the installed version of JAX."""
    return SINCE.get(name, (0, 0)) <= VERSION < UNTIL.get(name, (9, 9))


def read_of(name: str) -> set[str]:
    """The parameters of a primitive that are said to be read."""
    return {key for key in PRIMITIVES[name] if is_of_this_version(f"{name}.{key}")}


@cache
def shown() -> dict[str, list[Any]]:
    return examples()


@cache
def installed() -> set[str]:
    """The names of all primitives of JAX."""
    modules = [module for name, module in [*sys.modules.items()] if name.partition(".")[0] == "jax"]
    return {x.name for module in modules for x in [*vars(module).values()] if isinstance(x, Primitive)}


def test_each_primitive_is_there() -> None:
    assert {"add", "scan", "gather"} <= installed()
    missing = sorted(name for name in PRIMITIVES if is_of_this_version(name) and name not in installed())
    assert not missing, f"jax {jax.__version__} has no primitives {missing}"
    early = sorted(name for name in PRIMITIVES if name in UNTIL and not is_of_this_version(name))
    assert not installed() & {*early}


PARAMETRISED = [name for name in PRIMITIVES if PRIMITIVES[name] and is_of_this_version(name) and name not in HIDDEN]


@pytest.mark.parametrize("name", PARAMETRISED)
def test_its_parameters_are_there_and_no_others(name: str) -> None:
    for equation in shown()[name]:
        missing, new = read_of(name) - {*equation.params}, {*equation.params} - read_of(name) - UNREAD
        assert not missing, f"'{name}' of jax {jax.__version__} has no parameters {missing}"
        assert not new, f"'{name}' of jax {jax.__version__} has parameters {new}: what do they mean to the rules?"


def test_the_others_have_no_parameters_that_mean_something() -> None:
    for name in {*PRIMITIVES} & {*shown()} - {name for name in PRIMITIVES if PRIMITIVES[name]}:
        for equation in shown()[name]:
            new = {*equation.params} - UNREAD
            assert not new, f"'{name}' of jax {jax.__version__} has parameters {new}: what do they mean to the rules?"


class Recorder(dict):
    """The parameters of an equation, and which of them were read."""

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read |= {name} & {*self}
        return super().get(name, default)


def recorded(equation: Any) -> tuple[Any, Recorder]:
    """The equation, with parameters that record what is read."""
    params = Recorder(equation.params)
    fields = {name: getattr(equation, name) for name in ("primitive", "effects", "invars", "outvars")}
    return SimpleNamespace(**fields, params=params), params


def numbers_for(equation: Any) -> list[np.ndarray]:
    """Operands: its literals, and ones."""
    values = [x.val if isinstance(x, Literal) else np.ones(x.aval.shape) for x in equation.invars]
    return [np.asarray(x, var.aval.dtype) for x, var in zip(values, equation.invars, strict=True)]


def read_by_programs(equation: Any) -> set[str]:
    """The parameters that the rule of programs reads; none if it hands all of them to JAX."""
    copy, params = recorded(equation)
    builder = SSABuilder()
    interpreter = Interpreter(builder, "it", tracing._RULES)
    if equation.primitive.name not in interpreter.rules:
        return set()
    operands = [builder.constants(x) for x in numbers_for(equation)]

    def by_jax(*_: Any) -> None:
        params.read.clear()
        raise NotImplementedError

    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"), suppress(NotImplementedError):
        patch.setattr(Equation, "evaluate", by_jax)
        interpreter._apply(Equation(builder, copy, interpreter.run, "it"), operands)
    return params.read


def read_by_numpy_code(equation: Any) -> set[str]:
    """The parameters that the rule of NumPy code reads."""
    copy, params = recorded(equation)
    name, translator = equation.primitive.name, translation.Translator(())
    if name in functions.FUNCTIONS or name in translation._RULES or name in primitives.CALLS:
        translator._equation(copy, [translator.constant(x) for x in numbers_for(equation)])
    return params.read


def test_rules_read_the_parameters_that_are_listed() -> None:
    """Those of programs and those of NumPy code read no others, and together all."""
    for name in sorted({*PRIMITIVES} & {*shown()}):
        read = {x for each in shown()[name] for x in read_by_programs(each) | read_by_numpy_code(each)}
        unlisted = read - read_of(name) - {*primitives.ONLY_NONE}
        assert not unlisted, f"rules for '{name}' read {unlisted}"
        assert read_of(name) <= read, f"no rule for '{name}' reads {read_of(name) - read}"


def test_no_table_names_another_primitive() -> None:
    named = {name for table in TABLES for name in table}
    others = sorted(name for name in named - {*PRIMITIVES} if not name.startswith(OURS))
    assert not others, f"they have rules, and are not in {primitives.__name__}: {others}"
    idle = {*PRIMITIVES} - named - {"pure_callback", "ffi_call", *primitives.CALLS}
    assert not idle, f"nothing knows {sorted(idle)}"


def reads_jaxprs(tree: ast.AST) -> bool:
    """True if a module looks into equations of jaxprs, or has rules for them."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr in ("primitive", "eqns", "params"))
        or (isinstance(node, ast.ImportFrom) and node.module == "jaxmbd.engine.program.equation")
        for node in ast.walk(tree)
    )


def test_no_file_spells_another_primitive_or_parameter() -> None:
    """In files that read jaxprs each text that names a primitive of JAX, or a parameter of an example, is listed."""
    parameters = {name for each in shown().values() for equation in each for name in equation.params}
    listed = {*PRIMITIVES, *UNREAD, *OUR_PARAMETERS, *(name for names in PRIMITIVES.values() for name in names)}
    read, found = [], []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if path == Path(primitives.__file__) or not reads_jaxprs(tree):
            continue
        read.append(path.name)
        texts = {(node.value, node.lineno) for node in ast.walk(tree) if isinstance(node, ast.Constant)
                 and isinstance(node.value, str)}  # fmt: skip
        found += [f"{path}:{line}: '{text}'" for text, line in sorted(texts, key=lambda x: x[1])
                  if text in (installed() | parameters) - listed]  # fmt: skip
    assert {"lowering.py", "translation.py", "identity.py", "lookups.py"} <= {*read}
    assert not found, "\n".join(found)
