"""Programs for batches whose instances are on several devices."""

import numpy as np

from tests.devices import on_devices

PROGRAMS = """
from jaxmbd.engine.binding.jax_binding import as_program
from jaxmbd.engine.binding.trace_once import trace_once

X, Y, Z = jnp.arange(24.0).reshape(8, 3), jnp.asarray(3.0), jnp.asarray([0.5, 1.5, 2.5, 3.5, 4.5])
law = lambda x, y: jnp.sin(x) * y + x[::-1]
first, ahead = as_program(law), as_program(law, forward=True)
batched = jax.vmap(first, (0, None))

@trace_once
def doubled(x):  # loops begin with numbers that are the same for all instances
    return jax.lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0] + first(x, 1.0), c[1] + 1), (jnp.zeros(3), 0))[0]

cases = {
    "values": lambda x: batched(x, Y),
    "forward": lambda x: jax.vmap(jax.jacfwd(first), (0, None))(x, Y),
    "ahead": lambda x: jax.vmap(lambda x: jax.jvp(ahead, (x, Y), (x, Y)))(x),
    "reverse": lambda x: jax.vmap(jax.jacrev(first), (0, None))(x, Y),
    "gradient": jax.grad(lambda x: jnp.sum(batched(x, Y) ** 2)),
    "by common": lambda x: jax.grad(lambda y: jnp.sum(batched(x, y)))(Y),
    "tangent": lambda x: jax.jvp(lambda x: batched(x, Y), (x,), (jnp.cos(x),))[1],
    "nested": lambda x: jax.vmap(jax.vmap(first, (None, 0)), (0, None))(x, Z),
    "beside": lambda x: jax.vmap(jax.vmap(first, (0, None)), (None, 0))(x, Z),
    "some": lambda x: batched(x[:6], Y),
    "loop": jax.vmap(doubled),
}
found = {}
for kind, mesh in {"auto": AUTO, "explicit": EXPLICIT}.items():
    for name, case in cases.items():
        if name == "some" and kind == "explicit":  # six instances on four devices: JAX refuses
            continue
        results = jax.tree.leaves(jax.jit(case)(over(mesh, X)))
        for k, (x, alone) in enumerate(zip(results, jax.tree.leaves(case(X)))):
            found[f"{name} {k} {kind}"] = [x.tolist(), alone.tolist(), is_over(x) if x.ndim else None]
lines = jax.jit(cases["nested"]).lower(over(AUTO, X)).compile().as_text().splitlines()
found["calls"] = [line.split(" custom-call(")[0].split("= ")[1] for line in lines if "jaxmbd_run" in line]
"""


def test_programs_run_where_their_instances_are() -> None:
    """On four devices, by value against one, with batches in batches and common arguments."""
    found = on_devices(4, PROGRAMS)
    calls = found.pop("calls")
    assert calls == ["f64[10,3]{1,0}"]  # of two of the eight instances, each with five values of the other argument
    divided = {name: is_divided for name, (*_, is_divided) in found.items()}
    for name, (values, alone, _) in found.items():
        np.testing.assert_allclose(values, alone, rtol=1e-14, err_msg=name)
    whole = {name for name, is_divided in divided.items() if not is_divided}
    assert {name.split()[0] for name in whole} == {"by", "beside", "some"}
    assert len(found) == 23
