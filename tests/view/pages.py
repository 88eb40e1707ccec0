"""Mechanisms on motions that nobody has to integrate, and the data of a page, read back without a browser."""

import base64
import json
import re
import zlib
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.integrate.formulations.formulation import Stabilized
from jaxmbd.state.state import rank_number
from jaxmbd.view import Page

ENDED = jnp.asarray(False), {}, mbd.RESULTS.successful, rank_number(-1)  # as `simulate` ends a motion

RATE = 3.0  # [rad/s]
LENGTH = 1.0  # [m]


def rod_in_space(name: str = "rod") -> sp.Mechanism:
    """A rod on a hinge along y, with a spring and damper to its tip, along which a force acts."""
    rod = sp.Body(name, 1.0, (1e-4, 0.083, 0.083), (0.5, 0, 0))
    hinge = sp.Revolute("O", sp.ground.at(axis=(0, 1, 0)), rod.at(-0.5, axis=(0, 1, 0)))
    tip = rod.at(0.5, 0, 0)
    spring = sp.SpringDamper("spring", sp.ground.at(1.0, 0, 0.4), tip, 100.0, 0.5, 5.0)
    wind = sp.Force("wind", tip, (0, 0, 0.5))
    return sp.Mechanism([rod], [hinge], [sp.Gravity(), spring, wind], [], [sp.Point("tip", at=tip)])


def rod_in_the_plane(name: str = "rod") -> pl.Mechanism:
    rod = pl.Body(name, mass=1.0, inertia=0.1, pose=(0.5, 0.0, 0.0))
    spring = pl.SpringDamper("spring", pl.ground.at(1.0, 0.6), rod.at(0.5), 100.0, 0.5, 5.0)
    hinge = pl.Revolute("O", pl.ground.at(), rod.at(-0.5, 0.0))
    return pl.Mechanism([rod], [hinge], [pl.Gravity(9.81), spring], sensors=[pl.Point("tip", rod.at(0.5, 0.0))])


def turning(mechanism: Any, ts: Any, rate: float = RATE) -> mbd.Solution:
    """The motion of a rod that turns evenly about its hinge, by closed formulas."""
    ts = jnp.asarray(ts)
    c, s, zero, angle = jnp.cos(rate * ts), jnp.sin(rate * ts), jnp.zeros(len(ts)), rate * ts
    if mechanism.space.dim == 2:
        q = jnp.stack([0.5 * c, -0.5 * s, -angle], axis=1)
        v = jnp.stack([-0.5 * rate * s, -0.5 * rate * c, jnp.full(len(ts), -rate)], axis=1)
    else:
        q = jnp.stack([0.5 * c, zero, -0.5 * s, jnp.cos(angle / 2), zero, jnp.sin(angle / 2), zero, angle], axis=1)
        v = jnp.stack([-0.5 * rate * s, zero, -0.5 * rate * c, zero, jnp.full(len(ts), rate), zero], axis=1)
    return mbd.Solution(mechanism, Stabilized(), ts, q, v, jnp.zeros((len(ts), 0)), {}, *ENDED)


def tumbling(count: int, ts: Any) -> mbd.Solution:
    """Free bodies with markers on all sides, each turning evenly about an axis of its own while it moves on."""
    shapes = [(0.3, 0.0, 0.0), (0.0, 0.2, 0.1), (-0.1, 0.1, 0.4), (-0.2, -0.3, 0.0)]
    bodies = [sp.Body(f"stone {k}", 1.0, (0.1, 0.2, 0.25), (k, 0, 0)) for k in range(count)]
    corners = [sp.Point(f"P{k}{i}", body.at(*p)) for k, body in enumerate(bodies) for i, p in enumerate(shapes)]
    mechanism = sp.Mechanism(bodies, sensors=corners, floating=True)
    poses, twists = [], []
    for k in range(count):
        axis, rate = np.array([1.0, 2.0, 2.0 + k]) / np.linalg.norm([1.0, 2.0, 2.0 + k]), 2.0 + 0.3 * k
        place = [k + 0.2 * ts, 0.5 * np.sin(rate * ts), 0.3 * np.cos(2 * ts)]
        moving = [np.full(len(ts), 0.2), 0.5 * rate * np.cos(rate * ts), -0.6 * np.sin(2 * ts)]
        poses += [*place, np.cos(rate * ts / 2), *np.outer(axis, np.sin(rate * ts / 2))]
        twists += [*moving, *np.outer(rate * axis, np.ones(len(ts)))]
    q, v = (jnp.asarray(np.stack(columns, axis=1)) for columns in (poses, twists))
    return mbd.Solution(mechanism, Stabilized(), jnp.asarray(ts), q, v, jnp.zeros((len(ts), 0)), {}, *ENDED)


class Content:
    """What a page holds: its data and its arrays."""

    def __init__(self, page: Page) -> None:
        self.data = json.loads(script(page.html, "data"))
        self.block = zlib.decompress(base64.b64decode(script(page.html, "numbers")))

    def array(self, reference: dict[str, Any]) -> np.ndarray:
        count = int(np.prod(reference["shape"]))
        planes = np.frombuffer(self.block, np.uint8, 4 * count, reference["at"]).reshape(4, count)
        words = np.ascontiguousarray(planes.T).view("<u4")[:, 0].reshape(reference["shape"])
        if reference["kind"] == "float":
            return words.view("<f4")
        steps = (words >> 1).astype(np.int64) * (1 - 2 * (words & 1).astype(np.int64)) - (words & 1)
        for _ in range(reference["order"]):
            steps = np.cumsum(steps, axis=0)
        return np.reshape(reference["first"], words.shape[1:]) + reference["quantum"] * steps


def script(html: str, name: str) -> str:
    """The text of an element that holds data."""
    (found,) = re.findall(rf'<script id="{name}" type="[^"]*">(.*?)</script>', html, re.DOTALL)
    return found
