"""A mechanism as one C file with a header: the motion and the derivatives of `simulate` and JAX, in a C program."""

import re
import subprocess
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.errors import MechanismError
from tests.c_code import compiler
from tests.io.fmus import STEP, pendulum, response, solution_of
from tests.numeric import worst

PROGRAM = """
#include <stdio.h>
#include "servo.h"
int main(void) {
  static servo m;
  double x[servo_x_size], y[servo_y_size], dx[servo_x_size], dy[servo_y_size];
  double sx[servo_x_size], su[servo_u_size], sp[servo_p_size], bt, bx[servo_x_size], bu[servo_u_size], bp[servo_p_size];
  if (!servo_start(&m)) return 1;
  m.u[servo_u_O_angle_input] = -2.0;
  m.p[servo_p_servo_kp] = 30.0;
  if (!servo_close(&m)) return 2;
  for (int k = 1; k <= 20; k++)
    if (!servo_advance(&m, 0.01 * k)) return 3;
  servo_state(&m, x), servo_outputs(&m, y);
  for (int k = 0; k < servo_x_size; k++) printf("%.17g ", x[k]), sx[k] = 0.1 * (k + 1);
  for (int k = 0; k < servo_y_size; k++) printf("%.17g ", y[k]);
  for (int k = 0; k < servo_u_size; k++) su[k] = 0.2 * (k + 1);
  for (int k = 0; k < servo_p_size; k++) sp[k] = 0.3 * (k + 1);
  puts("");
  servo_tangents(&m, 0.7, sx, su, sp, dx, dy);
  for (int k = 0; k < servo_x_size; k++) printf("%.17g ", m.x[k]);
  for (int k = 0; k < servo_x_size; k++) printf("%.17g ", dx[k]);
  for (int k = 0; k < servo_y_size; k++) printf("%.17g ", dy[k]);
  servo_cotangents(&m, sx, dy, &bt, bx, bu, bp);
  printf("%.17g ", bt);
  for (int k = 0; k < servo_x_size; k++) printf("%.17g ", bx[k]);
  for (int k = 0; k < servo_u_size; k++) printf("%.17g ", bu[k]);
  for (int k = 0; k < servo_p_size; k++) printf("%.17g ", bp[k]);
  return servo_advance(&m, 0.1) ? 4 : 0; /* not backward */
}
"""


@pytest.mark.slow
@pytest.mark.skipif(compiler() is None, reason="no C compiler")
def test_a_c_program_computes_the_same_motion_and_derivatives(tmp_path: Path) -> None:
    unit = pendulum()
    names: Any = {"inputs": unit.inputs, "outputs": unit.outputs, "parameters": unit.parameters}
    mbd.export_c(unit.mechanism, tmp_path / "servo.c", unit.state, **names, step=STEP)
    (tmp_path / "main.c").write_text(PROGRAM)
    warnings = [
        "-std=c99",
        "-pedantic",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-function",
        "-Wno-unused-const-variable",
    ]
    command = [str(compiler()), "-O1", *warnings, "main.c", "servo.c", "-lm", "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True)
    said = subprocess.run([str(tmp_path / "program")], capture_output=True, text=True, check=True).stdout
    first, second = (np.array(line.split(), float) for line in said.splitlines())
    motion = solution_of(unit, None, {"servo.kp": 30.0}, {"O.angle": -2.0})
    expected = np.concatenate([np.ravel(motion[name][-1]) for name in (*unit.states, *unit.outputs)])
    assert worst(first - expected) < 1e-10
    nx, nu, n = len(unit.states), len(unit.inputs), len(unit.parameters)
    x, dx, dy, pulled = np.split(second, [nx, 2 * nx, 2 * nx + len(expected) - nx])
    at = jnp.asarray(0.2), jnp.asarray(x), jnp.asarray([0.0, -2.0]), jnp.asarray([30.0, 0.5])
    seeds = jnp.asarray(0.7), *(scale * jnp.arange(1.0, k + 1) for scale, k in ((0.1, nx), (0.2, nu), (0.3, n)))
    function = response(unit)
    _, tangents = jax.jvp(function, at, seeds)
    forward = np.concatenate([dx, dy])
    assert worst(forward - np.concatenate(tangents)) < 1e-12 * worst(forward)
    cotangents = jax.vjp(function, *at)[1]((seeds[1], jnp.asarray(dy)))
    assert worst(pulled - np.concatenate([np.ravel(c) for c in cotangents])) < 1e-12 * worst(pulled)


def test_the_path_of_a_c_file() -> None:
    with pytest.raises(MechanismError, match=r"A C file ends with \.c, such as 'crank\.c', got 'crank\.cpp'"):
        mbd.export_c(pendulum().mechanism, "crank.cpp")


def test_no_side_of_a_law_is_held(tmp_path: Path) -> None:
    """C does not look for the instants at which a law changes sides: it takes the signs."""
    wheel = pl.Body("wheel", 1.0, 1.0)
    joint, gear = pl.Revolute("O", pl.ground.at(), wheel.at()), pl.Backlash("gear", "O.angle", 100.0, play=0.2)
    mechanism = pl.Mechanism([wheel], [joint], [gear], coordinates="joint")
    state = mbd.assemble(mechanism, {"O.angle": 0.5})
    told = eqx.tree_at(lambda s: s.z, state, jnp.asarray([1.0, 1.0, 1.0, -1.0, -1.0, -1.0]))
    mbd.export_c(mechanism, tmp_path / "gear.c", told, outputs=["gear.effort"])
    (start,) = re.findall(r"start_states\[STATES \+ 1\] = \{([^}]*)\}", (tmp_path / "gear.c").read_text())
    np.testing.assert_array_equal([*map(float.fromhex, start.split(","))][:8], [0.5, *[0.0] * 7])
