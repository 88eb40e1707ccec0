"""Analyses of batches whose instances are on two devices: sharded arguments of `jax.jit`, and `jax.shard_map`.

Values are those of the same analyses for one instance after the other, away from t = 0.
"""

import re

import numpy as np
import pytest

from tests.devices import on_devices

MODELS = """
def pendulum(coordinates, **parts):
    bar = pl.Body("bar", 1.0, 1 / 12)
    return pl.Mechanism(
        [bar], [pl.Revolute("A", pl.ground.at(), bar.at(-0.5, 0))], [pl.Gravity(9.81)], coordinates=coordinates, **parts
    )

def linkage():
    crank = sp.Body("crank", 0.2, (2e-4, 2e-5, 2e-4), pose=(0.0, 0.05, 0.0))
    rod = sp.Body("rod", 0.6, (2e-5, 8e-3, 8e-3), pose=(0.2, 0.1, 0.0))
    slider = sp.Body("slider", 0.7, (2e-4, 3e-4, 3e-4), pose=(0.4, 0.1, 0.0))
    joints = [
        sp.Revolute("A", sp.ground.at(axis="x"), crank.at(0, -0.05, 0, axis="x")),
        sp.Spherical("B", crank.at(0, 0.05, 0), rod.at(-0.2)),
        sp.Universal("C", slider.at(axis="x"), rod.at(0.2, axis="x")),
        sp.Prismatic("D", sp.ground.at(0.0, 0.1, 0.0, axis="x"), slider.at(axis="x")),
    ]
    return sp.Mechanism([crank, rod, slider], joints, [sp.Gravity(9.81)], coordinates="joint")

A, TIMES = jnp.linspace(0.1, 0.6, 6), jnp.linspace(0.2, 0.5, 5)

def mapped(function, mesh=AUTO):  # with the defaults of `jax.shard_map`
    return jax.shard_map(jax.vmap(function), mesh=mesh, in_specs=P("batch"), out_specs=P("batch"))

def state(mechanism, angle):
    return mbd.assemble(mechanism, {"A.angle": angle}, speeds={"A.angle": 1.0}, t=0.2)

def motion(mechanism, angle, **settings):
    return mbd.simulate(mechanism, state(mechanism, angle), TIMES, **settings)

def compared(function, *ways):
    alone = [jax.tree.leaves(function(a)) for a in A]
    batches = [jax.tree.leaves(jax.jit(way(function))(over(AUTO, A))) for way in ways]
    assert all(is_over(x) for x in sum(batches, []))
    return [[x.tolist() for x in batch] for batch in ([jnp.stack(x) for x in zip(*alone)], *batches)]
"""
QUICK = f"""{MODELS}
from jaxmbd.numerics.linear_solve import rank_of
model, rows = pendulum("absolute"), lambda a: jnp.asarray([[a, 0.3, 0.0], [0.3, 0.3, 0.0]])
found = {{
    "assemble": compared(lambda a: state(model, a).q, jax.vmap, mapped),
    "rank": compared(lambda a: rank_of(rows(a)), jax.vmap, mapped),
}}
"""
SLOW = f"""{MODELS}
absolute, joint, spatial = pendulum("absolute"), pendulum("joint"), linkage()
bounce = mbd.Event("wall", "A.angle", below=-0.1, then=mbd.Bounce(0.5))
driven = pendulum("joint", drivers=[pl.Driver("motor", "A.angle", lambda t: 0.5 * t**2)])

def end(angle, mechanism=absolute):
    return motion(mechanism, angle)["A.angle"][-1]

def read_out(solution):
    return solution["bar.position"], solution.reaction("A").force

both, sharded, local = (jax.vmap, mapped), (jax.vmap,), (mapped,)
cases = {{
    "explicit": (lambda a: read_out(motion(absolute, a)), both),
    "space": (lambda a: motion(spatial, a)["slider.position"], sharded),
    "implicit": (lambda a: motion(joint, a, solver="stiff")["A.angle"], sharded),
    "events": (lambda a: motion(joint, a, events=[bounce])["A.angle"], local),
    "gradient": (jax.value_and_grad(end), both),
    "tangent": (lambda a: jax.jvp(end, (a,), (2.0,)), sharded),
    "kinematics": (lambda a: mbd.kinematics(driven, TIMES * (1 + a))["bar.position"], sharded),
    "equilibrium": (lambda a: mbd.equilibrium(joint, state(joint, a - 1.5))["A.angle"], local),
    "linearize": (lambda a: mbd.linearize(joint, state(joint, a), independent=["A.angle"]).A, local),
    "read": (lambda a: mbd.read(joint, state(joint, a), ["bar.position", "kinetic_energy"]), both),
}}
found = {{name: compared(function, *ways) for name, (function, ways) in cases.items()}}

# Derivatives by what all instances have in common: an array of its own, or one that is the same on all devices.
def total(length, angles, batch=jax.vmap):
    return jnp.sum(batch(lambda a: end(a * length))(angles))

def summed(length, angles):
    inside = lambda length, angles: jax.lax.psum(total(length, angles), "batch")
    return jax.shard_map(inside, mesh=AUTO, in_specs=(P(), P("batch")), out_specs=P())(length, angles)

alone = sum(float(jax.grad(lambda s: end(a * s))(1.1)) for a in A)
common = [float(jax.jit(jax.grad(f))(1.1, over(AUTO, A))) for f in (total, summed)]
explicit = jax.jit(jax.grad(total, 1))(1.1, over(EXPLICIT, A))
assert is_over(explicit)
own = [float(jax.grad(lambda s: end(s * 1.1))(a)) for a in A]
found["common"], found["explicit mesh"] = [alone, *common], [own, explicit.tolist()]

compiled = jax.jit(jax.vmap(end)).lower(over(AUTO, A)).compile()
found["text"] = [line for line in compiled.as_text().splitlines() if "jaxmbd_solve" in line]
late = jnp.where(A == A[4], 500.0, 0.1)  # this motion alone needs more steps than it may take
try:
    jax.block_until_ready(jax.jit(jax.vmap(lambda a, v: mbd.simulate(
        joint, mbd.assemble(joint, {{"A.angle": a}}, speeds={{"A.angle": v}}), TIMES - 0.2, max_steps=30
    )["A.angle"]))(over(AUTO, A), over(AUTO, late)))
except Exception as error:
    found["error"] = str(error)
"""


def _check(found: dict[str, list[list[list[float]]]]) -> None:
    for name, (alone, *batches) in found.items():
        for batch in batches:
            for one, x in zip(alone, batch, strict=True):
                np.testing.assert_allclose(x, one, rtol=1e-9, atol=1e-12, err_msg=name)


def test_assembly() -> None:
    found = on_devices(2, QUICK)
    _check(found)
    assert {name: len(x) for name, x in found.items()} == {"assemble": 3, "rank": 3}
    assert found["rank"][2] == [[2, 2, 1, 2, 2, 2]]


@pytest.mark.slow
def test_analyses_and_their_derivatives() -> None:
    found = on_devices(2, SLOW)
    (line,) = found.pop("text")
    assert re.search(r"f64\[3,5,6\]", line), line  # three of six motions, at five times, with six states
    assert not re.search(r"\[6,", line)
    assert "1 of 6 instances of the batch failed." in found["error"]
    assert "Instance 4: The maximum number of steps" in found.pop("error")
    for name in ("common", "explicit mesh"):
        alone, *others = found.pop(name)
        for x in others:
            np.testing.assert_allclose(x, alone, rtol=1e-9, err_msg=name)
    _check(found)
    assert len(found) == 10
