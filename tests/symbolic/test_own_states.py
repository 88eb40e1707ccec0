"""States of parts among the exported equations: as symbols, and in `A Y = B`."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import sympy

import jaxmbd as mbd
from tests.motors import CONSTANT, GEAR, INDUCTANCE, RESISTANCE, held_arm, slider_crank


def test_pieces_with_a_state_of_a_part() -> None:
    mechanism = slider_crank("joint")
    state = mbd.assemble(mechanism, {"O.angle": 0.7}, speeds={"O.angle": 2.0})
    current, speed = 1.3, 2.0
    state = eqx.tree_at(lambda s: s.z, state, jnp.asarray([current]))
    pieces = mbd.export(mechanism).at(state)
    assert float(state["motor.current"]) == current
    expected = (24.0 - RESISTANCE * current - CONSTANT * GEAR * speed) / INDUCTANCE
    np.testing.assert_allclose(pieces["g"], [expected], rtol=1e-12)
    solved = np.linalg.solve(pieces["A"], pieces["B"])
    np.testing.assert_allclose(solved, np.append(pieces["vXdot"], pieces["vReactions"]), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(pieces["vXdot"][-1], expected, rtol=1e-12)


def test_formulas_of_a_motor() -> None:
    system = mbd.SymbolicSystem(
        mbd.export(held_arm("joint")),
        symbols={"O.angle": "theta", "motor.current": "i"},
        parameters={"L": lambda m: m["motor"].inductance, "k": lambda m: m["motor"].constant},
    )
    i, inductance, k, speed = (sympy.Symbol(name, real=True) for name in ("i", "L", "k", "thetadot"))
    (rate,) = system.g
    assert sympy.simplify(rate - (4 - i - 10 * k * speed) / inductance) == 0
    assert sympy.simplify(system.vF[0].diff(i) - 10 * k) == 0
    assert [str(x) for x in system.vXdot] == ["thetaddot", "thetadot", "idot"]
    A, Y, B = system.ode()
    assert (A.shape, Y.shape, B.shape) == ((3, 3), (3, 1), (3, 1))
    assert len(system.dae()) == 3
    namespace: dict[str, object] = {}
    exec(system.source("numpy", ["g", "vF"]), namespace)
    found = namespace["equations"](0.0, np.array([0.3]), np.array([2.0]), 1.5, 0.02, 0.05)  # pyright: ignore
    np.testing.assert_allclose(np.ravel(found["g"]), (4 - 1.5 - 0.5 * 2.0) / 0.02, rtol=1e-12)
    assert "states of parts: i" in str(system)
