"""Every argument of public constructors and functions with values that are wrong for it: no error but the library's
own, and nothing accepted that can be no number, name or function."""

import warnings
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from tests import arguments
from tests.arguments import NOWHERE, SOMEWHERE, Call

pytestmark = pytest.mark.usefixtures("as_a_user_runs_it")

OWN = (mbd.MechanismError, mbd.AssemblyError, mbd.SolveError)
PARTS = arguments.in_both_spaces() | arguments.parts()


def outcome(call: Call, place: Any, value: Any) -> str:
    """Empty if a call with another value at one place ends as it should, else what happened."""
    positional, named = list(call.positional), dict(call.named)
    if isinstance(place, int):
        positional[place] = value
    else:
        named[place] = value
    try:
        call.function(*positional, **named)
    except OWN:
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return "accepted"


def faults(call: Call) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call.function(*call.positional, **call.named)  # as it stands it is right
        found = []
        for place in (*range(len(call.positional)), *call.named):
            for kind, value in (NOWHERE | SOMEWHERE).items():
                ended = outcome(call, place, value)
                if ended and not (ended == "accepted" and (kind in SOMEWHERE or place in call.anything)):
                    found.append(f"argument {place!r}, {kind}: {ended}")
    return found


@pytest.mark.parametrize("name", PARTS)
def test_parts(name: str) -> None:
    assert faults(PARTS[name]) == []


def test_no_part_is_left_out() -> None:
    """Each class of a part that can be made has its right call."""
    for space, module in (("planar", pl), ("spatial", sp)):
        made = {name for name in vars(module) if name[0].isupper() and not name.startswith("Abstract")}
        # Made by others, or of all parts.
        others = {"Mechanism", "Frame", "SpatialFrame", "Rate", "SpatialRate", "Solid", "Marker", "EulerAngle"}
        users = {"Constraint", "GlobalConstraint", "NonholonomicConstraint", "UserForce", "Measure"}
        users |= {"GeneralizedSpeeds", "AngularVelocity", "AngularAcceleration"}
        assert {name for name in made - others - users if f"{space}.{name}" not in PARTS} == set()


@pytest.mark.slow
def test_analyses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a text is the name of a file, where one is written
    calls = arguments.analyses(tmp_path)
    assert {name: found for name in calls if (found := faults(calls[name]))} == {}


@pytest.mark.parametrize("put", [object(), jax.ShapeDtypeStruct((), float)])
def test_what_stands_for_a_number_is_refused_by_name_where_it_is_used(put: Any) -> None:
    """A mechanism is a tree, into which a map may put anything; the number that is meant is looked up in such a one."""
    m, state, ts, _ = arguments.pendulum()
    heavier = eqx.tree_at(lambda m: m["O"].markers[1].position, m, 2.0 * m["O"].markers[1].position)
    assert float(heavier["O"].markers[1].position[0]) == -1.0
    without = eqx.tree_at(lambda m: m.bodies[0].mass, m, put)
    for use in (lambda: mbd.assemble(without), lambda: mbd.simulate(without, state, ts)):
        with pytest.raises(mbd.MechanismError, match=r"Body 'b': mass must be numbers, got an? \w+\."):
            use()
