"""What the laws are tested on: the tables of both spaces as mechanisms, at a state that is not fitted.

Frames and motions are computed here with NumPy, apart from the code under test.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.engine import as_program
from jaxmbd.equations.reactions import reactions
from jaxmbd.state.output_channels import Snapshot, channel_values
from tests.model import laws, laws_planar, laws_spatial
from tests.model.laws import Case, base

SPACES = {"planar": laws_planar.LAWS, "spatial": laws_spatial.LAWS}
KINDS = ("joints", "forces", "sensors")

EXACT = 1e-12  # the same sum in another order
T = 0.37  # [s]
STEP = 1e-3  # of time [s] or a coordinate, for differences of fourth order
OFFSETS = (-2, -1, 1, 2)
FIRST, SECOND = np.asarray([1, -8, 8, -1]) / 12, np.asarray([-1, 16, 16, -1]) / 12  # and −5/2 of the middle


def case_of(space: str, name: str) -> Case:
    """The case that a part under test belongs to."""
    tables = (SPACES[space].table(kind) for kind in KINDS)
    return next(table[base(name)] for table in tables if base(name) in table)


def over(kind: str, keep: Callable[[Case], bool] = lambda case: True) -> list[Any]:
    """The parts under test of both spaces, those whose case keeps a promise."""
    found = [(space, n) for space in SPACES for n in laws.names(SPACES[space].table(kind)) if keep(case_of(space, n))]
    return [pytest.param(space, name, id=f"{space}-{name}") for space, name in found]


def values(kind: str, mechanism: Any, t: Array, q: Array, v: Array, a: Array, lam: Array) -> dict[str, Any]:
    """Everything that the equations say of a kind at one instant."""
    equations = mbd.Equations(mechanism)
    inertia = equations.at(t, q).inertia
    found: dict[str, Any] = {"momentum": inertia.times(v), "accelerations": inertia.solve(a)}
    if kind == "joints":
        found |= {
            "phi": equations.position(t, q),
            "C": equations.jacobian(t, q),
            "velocity": equations.velocity(t, q, v),
            "gamma": equations.gamma(t, q, v),
            "reactions": reactions(equations.at(t, q), lam),
        }
    elif kind == "forces":
        energy = lambda step: equations.potential_energy(t, equations.retract(t, q, step))  # noqa: E731
        potential, slope = jax.value_and_grad(energy)(jnp.zeros_like(v))
        found |= {"force": equations.force(t, q, v), "potential": potential, "slope": slope}
        names = equations.mechanism.layout.z.names
        found |= {"own rates": dict(zip(names, equations.at(t, q).own_rates(v), strict=True))}
    else:
        names = [sensor.name for sensor in mechanism.sensors]
        found |= {"readings": channel_values(equations, names, Snapshot(t, q, v, a, lam))}
    return found


class Bench:
    """A mechanism with the examples, a state (not fitted), and what the equations say there."""

    def __init__(self, space: str, kind: str) -> None:
        self.space, self.kind = space, kind
        self.mechanism: Any = laws.bench(SPACES[space], kind)
        self.arrays, static = eqx.partition(self.mechanism, eqx.is_inexact_array)
        rng = np.random.default_rng(8)
        poses = np.stack([body.pose for body in self.mechanism.bodies])
        # Some joint angles have whole turns behind them; those of joints that have to be fitted have none.
        turns = 2 * np.pi * (np.arange(len(self.mechanism.turns)) % 3 - 1) * (kind != "joints")
        self.turns = turns
        self.q = np.append(poses, turns)
        self.v, self.a = rng.normal(size=self.mechanism.nv), rng.normal(size=self.mechanism.nv)
        parts, sizes = self.mechanism.constraints(), self.mechanism.constraint_sizes()
        self.constraints = {part.name: part for part in parts}
        ends = np.cumsum(sizes)
        self.rows = {p.name: np.arange(e - n, e) for p, e, n in zip(parts, ends, sizes, strict=True)}
        self.lam = rng.uniform(0.5, 1.5, sum(sizes)) * rng.choice([-1, 1], sum(sizes))
        self.width = len(self.mechanism.space.speeds)

        def of(arrays: Any, t: Array, q: Array, v: Array, a: Array) -> dict[str, Any]:
            return values(kind, eqx.combine(arrays, static), t, q, v, a, jnp.asarray(self.lam))

        self.function = of
        self.compiled = jax.jit(as_program(of))
        self.at = self(T, self.q, self.v)

    def __call__(self, t: float, q: np.ndarray, v: np.ndarray, arrays: Any = None) -> dict[str, Any]:
        """What the equations say at another state, or of other numbers."""
        found = self.compiled(self.arrays if arrays is None else arrays, np.asarray(t), q, v, self.a)
        return jax.tree.map(np.asarray, found)

    def columns(self, name: str) -> np.ndarray:
        """The speeds of the bodies that belong to a part under test."""
        owned = [i for i, body in enumerate(self.mechanism.bodies) if laws.unit(body.name) == name]
        return (self.width * np.asarray(owned)[:, None] + np.arange(self.width)).reshape(-1)

    def moved(self, step: np.ndarray, q: np.ndarray | None = None) -> np.ndarray:
        """The coordinates after each body has moved by a step and turned by a vector in its own axes: exactly."""
        poses, steps = np.split(self.q if q is None else q, [len(self.q) - len(self.turns)])[0], step
        poses, steps = poses.reshape(-1, 7 if self.width == 6 else 3), steps.reshape(-1, self.width)
        if self.space == "planar":
            return (poses + steps).reshape(-1)
        turned = _multiply(poses[:, 3:], _exponential(steps[:, 3:]))
        return np.append(np.concatenate([poses[:, :3] + steps[:, :3], turned], axis=1), self.turns)

    def along(self, s: float) -> tuple[float, np.ndarray, np.ndarray]:
        """A motion through the bench's state, with its speeds and accelerations: time, coordinates and speeds."""
        return T + s, self.moved(s * self.v + 0.5 * s * s * self.a), self.v + s * self.a

    def places(self, markers: Any, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions and axes of markers in the world."""
        index = {body.name: i for i, body in enumerate(self.mechanism.bodies)}
        size = 7 if self.space == "spatial" else 3
        found = []
        for marker in markers:
            i = index.get(marker.body)
            pose = np.asarray(self.mechanism.space.rest) if i is None else q[size * i : size * (i + 1)]
            found.append(_place(pose, marker))
        return np.stack([p for p, _ in found]), np.stack([R for _, R in found])

    def speeds(self, markers: Any, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Velocities of markers and angular velocities of their bodies, in world axes."""
        index = {body.name: i for i, body in enumerate(self.mechanism.bodies)}
        where, _ = self.places(markers, q)
        size, found = len(q) // len(index) if self.space == "planar" else 7, []
        for marker, place in zip(markers, where, strict=True):
            if marker.body not in index:
                found.append(np.zeros(self.width))
                continue
            i = index[marker.body]
            pose, twist = q[size * i : size * (i + 1)], v[self.width * i : self.width * (i + 1)]
            if self.space == "planar":
                arm = place - pose[:2]
                found.append([twist[0] - twist[2] * arm[1], twist[1] + twist[2] * arm[0], twist[2]])
            else:
                omega = rotation_matrix(pose[3:]) @ twist[3:]
                found.append(np.append(twist[:3] + np.cross(omega, place - pose[:3]), omega))
        return np.asarray(found)

    def at_markers(self, markers: Any, q: np.ndarray, v: np.ndarray) -> tuple[Any, Any]:
        """Frames and rates of markers as laws see them."""
        (where, axes), speeds = self.places(markers, q), self.speeds(markers, q, v)
        if self.space == "spatial":
            frames = [sp.Frame(jnp.asarray(p), jnp.asarray(R)) for p, R in zip(where, axes, strict=True)]
            return frames, [sp.Rate(jnp.asarray(s[:3]), jnp.asarray(s[3:])) for s in speeds]
        angles = [jnp.asarray(a) for a in self._angles(markers, q)]
        frames = [pl.Frame(jnp.asarray(p), angle) for p, angle in zip(where, angles, strict=True)]
        return frames, [pl.Frame(jnp.asarray(s[:2]), jnp.asarray(s[2])) for s in speeds]

    def _angles(self, markers: Any, q: np.ndarray) -> list[float]:
        index = {body.name: i for i, body in enumerate(self.mechanism.bodies)}
        return [(q[3 * index[m.body] + 2] if m.body in index else 0.0) + float(m.angle) for m in markers]


def _multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Products of quaternions, `(n, 4)`."""
    scalar = a[:, :1] * b[:, :1] - np.sum(a[:, 1:] * b[:, 1:], axis=1, keepdims=True)
    return np.concatenate([scalar, a[:, :1] * b[:, 1:] + b[:, :1] * a[:, 1:] + np.cross(a[:, 1:], b[:, 1:])], axis=1)


def _exponential(theta: np.ndarray) -> np.ndarray:
    """Quaternions of rotation vectors, `(n, 3)`."""
    half = np.linalg.norm(theta, axis=1, keepdims=True) / 2
    return np.concatenate([np.cos(half), 0.5 * np.sinc(half / np.pi) * theta], axis=1)


def rotation_matrix(e: np.ndarray) -> np.ndarray:
    """The rotation matrix of Euler parameters (Shabana's `E Gᵀ`)."""
    w, x, y, z = e / np.linalg.norm(e)
    E = np.asarray([[-x, w, -z, y], [-y, z, w, -x], [-z, -y, x, w]])
    G = np.asarray([[-x, w, z, -y], [-y, -z, w, x], [-z, y, -x, w]])
    return E @ G.T


def _place(pose: np.ndarray, marker: Any) -> tuple[np.ndarray, np.ndarray]:
    """A marker's position and axes in the world."""
    if len(pose) == 7:
        R = rotation_matrix(pose[3:])
        return pose[:3] + R @ np.asarray(marker.position), R @ rotation_matrix(np.asarray(marker.rotation))
    body, frame = (np.asarray([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in (pose[2], marker.angle))
    return pose[:2] + body @ np.asarray(marker.position), body @ frame


def cross(r: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Moments of forces, `(n, dim)`: `(n, 1)` in the plane."""
    return (r[:, :1] * f[:, 1:] - r[:, 1:] * f[:, :1]) if r.shape[1] == 2 else np.cross(r, f)


def resultant(wrenches: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The sum of wrenches, moments about the world's origin."""
    dim = places.shape[1]
    forces, moments = wrenches[:, :dim], wrenches[:, dim:]
    return np.append(forces.sum(axis=0), (moments + cross(places, forces)).sum(axis=0))


bench = cache(Bench)


@cache
def stencil(space: str, kind: str) -> dict[str, Any]:
    """What the equations say at four instants along the bench's motion."""
    b = bench(space, kind)
    return jax.tree.map(lambda *x: np.stack(x), *(b(*b.along(k * STEP)) for k in OFFSETS))
