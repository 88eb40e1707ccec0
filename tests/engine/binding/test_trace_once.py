"""Functions that are traced once: where their arrays are, and leaves that have no hash."""

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.engine.binding.trace_once import trace_once
from jaxmbd.equations.equations import Equations

DEVICES = """
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
from jaxmbd.engine.binding.trace_once import trace_once
first, second = jax.devices()
double = trace_once(lambda x: {"twice": 2 * x})
for device in (first, second, first):
    found = double(jax.device_put(jnp.arange(3.0), device))["twice"]
    assert found.devices() == {device}, (found.devices(), device)
    assert found.tolist() == [0.0, 2.0, 4.0]
"""


def test_results_are_on_the_device_of_the_arguments() -> None:
    variables = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", DEVICES], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Law:
    """A law that can be compared, and so has no hash."""

    def __init__(self, stiffness: float) -> None:
        self.stiffness = stiffness

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Law) and other.stiffness == self.stiffness

    def __call__(self, t: Any, length: Any, rate: Any) -> Any:
        return self.stiffness * length


def test_a_leaf_without_a_hash_is_traced_once_for_each_object() -> None:
    calls = list[float]()

    @trace_once
    def pulled(law: Any, x: Any) -> Any:
        calls.append(law.stiffness)
        return law(0.0, x, 0.0)

    one, other = Law(2.0), Law(3.0)
    for law in (one, other, one):
        np.testing.assert_array_equal(pulled(law, jnp.arange(3.0)), law.stiffness * np.arange(3.0))
        np.testing.assert_array_equal(jax.jit(lambda x, law=law: pulled(law, x))(np.arange(2.0)), [0.0, law.stiffness])
    assert sorted(set(calls)) == [2.0, 3.0]
    assert len(calls) == 4  # for known values, and inside of `jit`


def test_methods_of_equations_of_a_law_without_a_hash() -> None:
    """10 N/m · 1.5 m, away from t = 0."""
    body = pl.Body("b", 1.0, 0.1)
    guide = pl.Prismatic("J", pl.ground.at(0, 0), body.at(0, 0))
    spring = pl.SpringDamper("s", pl.ground.at(-1, 0), body.at(0, 0), 0.0, 0.0, 0.0, Law(10.0))
    model = pl.Mechanism([body], [guide], [spring])
    state = mbd.assemble(model, {"b.x": 0.5})
    np.testing.assert_allclose(
        Equations(model).force(jnp.asarray(0.3), state.q, state.v), [-15.0, 0.0, 0.0], rtol=1e-14
    )
