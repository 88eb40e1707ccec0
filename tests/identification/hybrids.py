"""A slider-crank in a horizontal plane whose spring is hidden: with play, harder on one side, hardening."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.identification import Normal, Parameter, Positive

PAYLOAD, FRICTION = 0.5, 1.5
MIDDLE, REACH, FORCE = 0.3, 0.1, 10.0  # scales of the law: [m], [m], [N]
ANGLE_NOISE, REACTION_NOISE = 1e-3, 0.1  # [rad], [N]


class Law(eqx.Module):
    """A straight line and a network, of the slider's place in the scale of its reach."""

    line: Array
    network: eqx.nn.MLP

    def __call__(self, t: Array, x: Array, rate: Array, parameters: Any = None) -> Array:
        u = (x - MIDDLE) / REACH
        return FORCE * (self.line[0] * u + self.line[1] + self.network(u))


def untrained(width: int, seed: int = 1) -> Law:
    """A line of 100 N/m, and a network of which little is known."""
    network = eqx.nn.MLP("scalar", "scalar", width, 1, jnp.tanh, key=jax.random.key(seed))
    last = lambda n: (n.layers[-1].weight, n.layers[-1].bias)  # noqa: E731
    return Law(jnp.array([-1.0, 0.0]), eqx.tree_at(last, network, replace_fn=lambda w: 0.3 * w))


def hidden_force(x: Any) -> Array:
    """15 mm of play on each side of 0.31 m, with ends that are round over 3 mm; then 150 and 80 N/m, both hardening."""
    pulled, pressed = (3e-3 * jax.nn.softplus((side * (x - 0.31) - 0.015) / 3e-3) for side in (1.0, -1.0))
    return 80.0 * pressed + 2e4 * pressed**3 - 150.0 * pulled - 2e4 * pulled**3


def slider_crank(p: dict[str, Any]) -> pl.Mechanism:
    crank = pl.Body("crank", 0.6, 5e-3, pose=(0.018, 0.047, 1.2))
    rod = pl.Body("rod", 0.4, 3e-3, pose=(0.179, 0.047, -0.316))
    slider = pl.Body("slider", p["payload"], 1e-3, pose=(0.321, 0.0, 0.0))
    return pl.Mechanism(
        [crank, rod, slider],
        [
            pl.Revolute("O", pl.ground.at(), crank.at(-0.05)),
            pl.Revolute("A", crank.at(0.05), rod.at(-0.15)),
            pl.Revolute("B", rod.at(0.15), slider.at()),
            pl.Prismatic("rail", pl.ground.at(), slider.at()),
        ],
        [
            pl.JointFriction("friction", "rail.displacement", viscous=p["friction"]),
            pl.JointForce("spring", "rail.displacement", p["spring.law"]),
        ],
        coordinates="joint",
    )


def hidden(t: Array, x: Array, rate: Array, parameters: Any) -> Array:
    return hidden_force(x)


def record(
    angle: float, speed: float, ts: np.ndarray, seed: int, reaction: bool = False, estimate: bool = True
) -> mbd.Experiment:
    """A record of the crank's angle, and of the force in the slider's pin."""
    mechanism = slider_crank({"payload": PAYLOAD, "friction": FRICTION, "spring.law": hidden})
    state = mbd.assemble(mechanism, {"O.angle": angle}, speeds={"O.angle": speed})
    motion, draws = mbd.simulate(mechanism, state, ts), np.random.default_rng(seed)
    levels = {"O.angle": ANGLE_NOISE} | ({"B.fx": REACTION_NOISE} if reaction else {})
    data = {name: np.asarray(motion[name]) + level * draws.normal(size=len(ts)) for name, level in levels.items()}
    start, speeds = {"O.angle": angle}, {"O.angle": speed}
    return mbd.Experiment(ts, data, start=start, speeds=speeds, sigma=levels, estimate=estimate)


def free(law: Law) -> dict[str, Parameter]:
    return {
        "spring.law": Parameter(start=law, prior=Normal(0.0, 5.0)),
        "payload": Parameter(start=0.8, within=Positive(), unit="kg"),
        "friction": Parameter(start=1.0, within=Positive(), unit="N s/m"),
    }
