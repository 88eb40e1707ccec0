# pyright: reportArgumentType=false
"""Right calls of public constructors and functions, and values that are wrong for nearly every argument."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd import identification as ident
from jaxmbd import optimal_design as od
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd import sweeps
from tests.io.small_fmus import small_fmu

NOWHERE: dict[str, Any] = {
    "complex": 1 + 2j, "NaN": float("nan"), "NaNs": np.full(3, np.nan), "bytes": b"a", "object": object(),
    "a whole number without end": 10**400, "class": pl.Body,
}  # fmt: skip
"""Never accepted, but for what is listed below."""

SOMEWHERE: dict[str, Any] = {
    "None": None, "text": "x", "infinite": float("inf"), "zero": 0.0, "negative": -1.0, "large": 1e300, "small": 1e-300,
    "empty": [], "dictionary": {}, "True": True, "two": np.ones(2), "six": np.ones((2, 3)), "half": jnp.bfloat16(1.5),
    "single": np.float32(1.5), "whole": 3, "function": lambda *_: None, "texts": ["a", "b"],
}  # fmt: skip
"""Accepted or not, but never with an error that is not the library's own."""


class Call(NamedTuple):
    """A function with arguments that are right; `anything`: those that also take values of `NOWHERE`."""

    function: Callable[..., Any]
    positional: tuple[Any, ...]
    named: dict[str, Any]
    anything: tuple[Any, ...] = ()


def call(function: Callable[..., Any], *positional: Any, anything: tuple[Any, ...] = (), **named: Any) -> Call:
    return Call(function, positional, named, anything)


def law(*given: Any) -> Any:
    return 0.0 * jnp.asarray(given[0])


BALL = sp.shapes.sphere(1.0)
TETRAHEDRON = np.array([(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]), [(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)]
FLAT, SOLID = pl.Body("b", 1.0, 0.1), sp.Body("b", 1.0, (0.1, 0.1, 0.1))


def controllers(space: Any) -> dict[str, Call]:
    """Controllers, filters and delays of a space."""
    return {
        "PID": call(
            space.PID, "p", "O.angle", 1.0, 1.0, 1.0, 1.0, "O.angle", "O.angle_rate", None, (-1.0, 1.0), 0.1, None,
            0.1, 0.1,
        ),
        "LowPass": call(space.LowPass, "p", "O.angle", 1.0, 0.5, "O.angle", 0.1, 0.1),
        "PadeDelay": call(space.PadeDelay, "p", "O.angle", 0.1, 2, "O.angle", np.zeros(2)),
        "StateSpace": call(
            space.StateSpace, "p", "O.angle", np.eye(1), np.eye(1), np.eye(1), np.eye(1), "O.angle", np.zeros(1),
            np.zeros(1), np.zeros(1),
        ),
        "Controller": call(space.Controller, "p", "O.angle", law, "O.angle"),
        "DynamicController": call(space.DynamicController, "p", "O.angle", law, law, np.zeros(1), "O.angle"),
        "SampledPID": call(
            space.SampledPID, "p", "O.angle", 1.0, 0.1, 1.0, 1.0, 1.0, "O.angle", None, (-1.0, 1.0), 1, 0.01, None,
            0.1, 10, 0.1, 0.1, np.zeros(2), 0.0,
        ),
        "SampledController": call(
            space.SampledController, "p", "O.angle", law, 0.1, "O.angle", np.zeros(1), None, 1, 0.01, 0.1, 10,
            np.zeros(2), 0.0, anything=(6,),
        ),
    }  # fmt: skip


def in_both_spaces() -> dict[str, Call]:
    """Parts that the plane and space have."""
    found: dict[str, Call] = {}
    for space, at, body in ((pl, pl.ground.at(), FLAT), (sp, sp.ground.at(), SOLID)):
        on, dim = body.at(), 2 if space is pl else 3
        moments = np.ones(3 if space is pl else 6)
        made = {
            "Revolute": call(space.Revolute, "J", at, on), "Prismatic": call(space.Prismatic, "J", at, on),
            "Weld": call(space.Weld, "J", at, on), "Rod": call(space.Rod, "J", at, on, 1.0),
            "PointConstraint": call(space.PointConstraint, "J", at, on),
            "FixedConstraint": call(space.FixedConstraint, "J", at, on),
            "Gear": call(space.Gear, "J", "A.angle", "B.angle", 2.0, 0.1),
            "PlanetaryGear": call(space.PlanetaryGear, "J", "A.angle", "B.angle", "C.angle", 3.0, 0.1),
            "Differential": call(space.Differential, "J", "A.angle", "B.angle", "C.angle", 0.1),
            "GearMesh": call(
                space.GearMesh, "J", "A.angle", "B.angle", 2.0, 0.1, np.ones(2), np.ones(2), np.ones(2)
            ),
            "GearFriction": call(space.GearFriction, "s", "O.angle", "teeth", 0.9, 0.8, 0.1, 1.0),
            "CubicSpring": call(space.CubicSpring, "s", "O.angle", 1.0, 1.0, 0.1, 0.1),
            "Tendon": call(space.Tendon, "J", ("A.angle", "B.angle"), (0.1, -0.2)),
            "RackAndPinion": call(space.RackAndPinion, "J", "A.angle", "B.displacement", 2.0, 0.1),
            "Driver": call(space.Driver, "d", "O.angle", 1.0, "position"),
            "SpringDamper": call(space.SpringDamper, "s", at, on, 1.0, 1.0, 1.0, 0.5),
            "Bushing": call(space.Bushing, "s", at, on, moments, moments),
            "PointDrag": call(space.PointDrag, "s", on, 1.0, 1.0),
            "PlaneContact": call(space.PlaneContact, "s", at, on, 1.0, 1.0),
            "Force": call(space.Force, "s", on, np.ones(dim), frame="body"),
            "Torque": call(space.Torque, "s", on, 1.0 if dim == 2 else np.ones(3)),
            "JointForce": call(space.JointForce, "s", "O.angle", 1.0),
            "DCMotor": call(space.DCMotor, "s", "O.angle", 1.0, 1.0, 0.1, 0.1, 2.0, 0.5),
            "LuGreFriction": call(space.LuGreFriction, "s", "O.angle", 0.1, 10.0, 0.1, 0.1, 0.1, 0.1, 0.01),
            "DryFriction": call(space.DryFriction, "s", "O.angle", 0.1, 1.0, 0.1, 0.1, 0.1, 1.5, 1.0),
            "LoadFriction": call(
                space.LoadFriction, "s", "O.angle", 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 1.5, 1.0, 1.0
            ),
            "Backlash": call(space.Backlash, "s", "O.angle", 1.0, 0.1, 0.1, 0.1, False),
            "OneWayClutch": call(space.OneWayClutch, "s", "O.angle", 0.1, 1.0),
            "Ratchet": call(space.Ratchet, "s", "O.angle", 0.1, 0.1, 0.1, 1.0, 2.0),
            "BoucWen": call(space.BoucWen, "s", "O.angle", 1.0, 1.0, 0.1, 2.0, 0.5, 0.1, 0.1),
            "HydraulicCylinder": call(
                space.HydraulicCylinder, "s", at, on, 0.1, 1.0, 1.0, 1.0, 1.0, 1e9, 1e-7, 1e7, 1e5, 1.0, 1.0, 1e5, 1e5
            ),
            "JointFriction": call(space.JointFriction, "s", "O.angle", 0.1, 0.1, 0.1, 0.1, 0.1, 0.1),
            "JointSpringDamper": call(space.JointSpringDamper, "s", "O.angle", 1.0, 1.0, 1.0, 0.5),
            "JointStop": call(space.JointStop, "s", "O.angle", -1.0, 1.0, 10.0, 1.0, 1.5),
            "Gravity": call(space.Gravity, 9.81), "GeneralizedForce": call(space.GeneralizedForce, "s", law),
            "Distance": call(space.Distance, "p", at, on), "AngleBetween": call(space.AngleBetween, "p", at, on),
            "Scaled": call(space.Scaled, "p", "O.angle", 2.0, 1.0),
            "MovingMarker": call(space.MovingMarker, "b", lambda t, dim=dim: jnp.zeros(dim) * t),
            **{
                name: call(getattr(space, name), "p", on)
                for name in ("Point", "Accelerometer", "Gyroscope", "PointVelocity", "PointAcceleration")
            },
        }  # fmt: skip
        made |= controllers(space)
        found |= {f"{'planar' if space is pl else 'spatial'}.{name}": made[name] for name in made}
    return found


def shapes() -> dict[str, Call]:
    """Shapes, and the solid of a mesh."""
    return {
        "spatial.Shape": call(sp.Shape, "box", (1.0, 1.0, 1.0), None, np.zeros(3), (1, 0, 0, 0), "#ffffff", 1.0),
        "spatial.mesh": call(sp.mesh, 1.0, TETRAHEDRON, 1.0),
        "spatial.Mechanism": call(sp.Mechanism, [SOLID], floating=True, scenery=BALL),
        "shapes.mesh": call(sp.shapes.mesh, TETRAHEDRON, 1.0, "#ffffff", 1.0),
        "shapes.box": call(sp.shapes.box, 1.0, 1.0, 1.0, "#ffffff", 1.0),
        "shapes.cylinder": call(sp.shapes.cylinder, 1.0, 1.0, "#ffffff", 1.0),
        "shapes.translated": call(BALL.translated, 1.0, 1.0, 1.0),
        "shapes.coloured": call(BALL.coloured, "#ffffff", 0.5),
        "shapes.placed": call(BALL.placed, np.zeros(3), (1.0, 0.0, 0.0, 0.0)),
    }


def parts() -> dict[str, Call]:
    """Constructors of parts, solids and functions."""
    at, on, at3, on3 = pl.ground.at(), FLAT.at(), sp.ground.at(), SOLID.at()
    pins = {name: call(getattr(sp, name), "J", at3, on3) for name in (
        "Spherical", "Universal", "Cylindrical", "Planar", "ConstantVelocity", "ParallelAxes", "PerpendicularAxes",
        "PointOnLine", "PointOnPlane",
    )}  # fmt: skip
    return {
        "planar.Beam": call(pl.Beam, "x", 1.0, 1.0, 1.0, 0.1, {"middle": 0.5}, 1, np.zeros(3), np.zeros(3)),
        "planar.Body": call(pl.Body, "x", 1.0, 1.0, (0.0, 0.0, 0.0)), "planar.at": call(FLAT.at, 0.0, 0.0, 0.0),
        "spatial.Body": call(sp.Body, "x", 1.0, np.eye(3), (0.0, 0.0, 0.0), BALL),
        **shapes(),
        "spatial.at": call(SOLID.at, 0.0, 0.0, 0.0, axis=(1.0, 0.0, 0.0)),
        "spatial.at_world": call(SOLID.at_world, 0.0, 0.0, 0.0, rotation=(1.0, 0.0, 0.0, 0.0)),
        "planar.PinInSlot": call(pl.PinInSlot, "J", at, on),
        "planar.RelativeAngle": call(pl.RelativeAngle, "J", at, on, 0.2),
        "planar.TorsionalSpringDamper": call(pl.TorsionalSpringDamper, "s", at, on, 1.0, 1.0, 1.0, 0.5),
        "planar.Mechanism": call(
            pl.Mechanism, [FLAT], [pl.Revolute("O", at, FLAT.at(-0.5))], [pl.Gravity()], coordinates="joint"
        ),
        "spatial.Screw": call(sp.Screw, "J", at3, on3, 0.1),
        "spatial.RevoluteSpherical": call(sp.RevoluteSpherical, "J", at3, on3, 0.1),
        "spatial.RollingDisc": call(sp.RollingDisc, "J", at3, on3, 0.1),
        **{f"spatial.{name}": pins[name] for name in pins},
        "planar.box": call(pl.box, 1.0, 1.0, 1.0, 1.0), "planar.sphere": call(pl.sphere, 1.0, 1.0),
        "planar.cylinder": call(pl.cylinder, 1.0, 1.0, 1.0), "planar.tube": call(pl.tube, 1.0, 1.0, 0.5, 1.0),
        "spatial.pose": call(sp.pose, 0.0, 0.0, 0.0),
        "Table": call(mbd.Table, [0.0, 1.0, 2.0], [0.0, 1.0, 0.0], 1),
        "Piecewise": call(mbd.Piecewise, [1.0], [1.0, 2.0], 0),
        "FourierSeries": call(mbd.FourierSeries, 2.0, 0.1, [0.1, 0.2], [0.0, 0.1]),
        "SmoothingSpline": call(mbd.SmoothingSpline, np.linspace(0, 1, 9), np.linspace(0, 1, 9), 0.1),
        "Curve": call(mbd.Curve, np.stack([np.arange(6.0), np.sqrt(9 + np.arange(6.0))], 1), 5, False, np.arange(6.0)),
        "Curve by a function": call(mbd.Curve, lambda u: jnp.stack([u, u**2]), closed=False, parameter=(0.0, 1.0)),
        "curve.along": call(mbd.Curve(lambda u: jnp.stack([u, u]), parameter=(0.0, 1.0)).along, law),
        "curve.nearest": call(mbd.Curve(lambda u: jnp.stack([u, u]), parameter=(0.0, 1.0)).nearest, np.ones(2)),
        "Event": call(mbd.Event, "e", "O.angle", below=0.0, then=mbd.LogOnly()), "Bounce": call(mbd.Bounce, 0.5),
        "Change": call(mbd.Change, lambda m: m["s"].stiffness, 1.0), "Switch": call(mbd.Switch, "x", on=False),
        "Latch": call(mbd.Latch, "x"), "Release": call(mbd.Release, "O"),
        "Stabilized": call(mbd.Stabilized, 0.1), "Augmented": call(mbd.Augmented, 5.0, 5.0),
        "CoordinatePartitioning": call(mbd.CoordinatePartitioning, ["O.angle"]), "Radau": call(mbd.Radau, 3),
        "Gauss": call(mbd.Gauss, 2),
        "Rotation": call(mbd.Rotation, 1.0),
        "identification.Parameter": call(ident.Parameter, start=1.0), "identification.Positive": call(ident.Positive),
        "identification.Bounded": call(ident.Bounded, 0.0, 2.0), "identification.Box": call(ident.Box, 0.0, 2.0),
        "identification.Unbounded": call(ident.Unbounded, 1.0), "identification.Normal": call(ident.Normal, 0.0, 1.0),
        "identification.LogNormal": call(ident.LogNormal, 1.0, 1.0),
        "sweeps.Normal": call(sweeps.Normal, 1.0, 0.1, 0.0, 2.0), "sweeps.Uniform": call(sweeps.Uniform, 0.0, 1.0),
        "sweeps.latin_hypercube": call(
            sweeps.latin_hypercube, {"a": (0.0, 1.0)}, 8, seed=0, anything=("seed",)
        ),
        "sweeps.sobol": call(sweeps.sobol, {"a": (0.0, 1.0)}, 8, seed=0, anything=("seed",)),
        "sweeps.tolerances": call(
            sweeps.tolerances, {"a": sweeps.Normal(1.0, 0.1)}, 8, seed=0, anything=("seed",)
        ),
        "Limit": call(mbd.Limit, law, 0.0, 1.0, scale=1.0),
        "Peak": call(mbd.Peak, law, np.linspace(0.0, 1.0, 3), scale=1.0),
        "optimal_design.crank_margins": call(od.crank_margins, 1.0, 2.0, 2.0, 2.0),
    }  # fmt: skip


class Pendulum(NamedTuple):
    """A pendulum, a state and a motion of it."""

    mechanism: pl.Mechanism
    state: mbd.State
    times: np.ndarray
    motion: mbd.Solution


@cache
def pendulum() -> Pendulum:
    pin, tip = pl.Revolute("O", pl.ground.at(), FLAT.at(-0.5)), pl.Point("tip", FLAT.at(0.5))
    mechanism = pl.Mechanism([FLAT], [pin], [pl.Gravity(9.81)], sensors=[tip], coordinates="joint")
    state, ts = mbd.assemble(mechanism, {"O.angle": 0.3}), np.linspace(0.0, 0.2, 5)
    return Pendulum(mechanism, state, ts, mbd.simulate(mechanism, state, ts))


def from_efforts(m: Any, driven: Any, ts: Any) -> dict[str, Call]:
    """Measured motions, regressors, and the identification from efforts."""
    many = np.linspace(0.0, 0.5, 51)
    wave = {"O.angle": np.sin(20.0 * many)}
    return {
        "MeasuredMotion": call(
            mbd.MeasuredMotion, many, wave, wave, wave, smoothing="kalman", noise={"O.angle": 0.1}
        ),
        "a motion as it is": call(mbd.MeasuredMotion, many, wave, wave, wave, smoothing="none"),
        "a filtered motion": call(mbd.MeasuredMotion, many, wave, smoothing="butterworth", cutoff=10.0),
        "an experiment on a motion": call(
            mbd.Experiment, many, {"m.effort": wave["O.angle"]},
            motion=mbd.MeasuredMotion(many, wave, wave, wave, smoothing="none"), actuators={"m": "O.angle"},
        ),
        "regressor": call(ident.regressor, driven, ts, bodies=["b"], numbers=[]),
        "fit_efforts": call(
            ident.fit_efforts, ident.regressor(driven, many), {"d": wave["O.angle"]}, method="weighted", prior=1.0,
            decimate=1, tolerance=1e-8,
        ),
        "optimal_design.excitation": call(
            od.excitation, m, {"m": "O.angle"}, period=1.0, limits={"O.angle": 0.5}, harmonics=1, bodies=["b"],
            numbers=[], criterion="determinant", noise={"m": 1.0}, at_rest=False, samples=4, starts=1, seed=0, steps=1,
            progress=False,
        ),
    }  # fmt: skip


def of_sweeps() -> dict[str, Call]:
    """What is read off a sweep."""
    found = mbd.sweep(lambda x: {"y": x["x"], "z": -x["x"]}, {"x": [1.0, 2.0]}, progress=False)
    return {"pareto_front": call(sweeps.pareto_front, found, {"y": "min", "z": "min"})}


def analyses(folder: Path) -> dict[str, Call]:
    """Analyses of a pendulum, what is read off its motion, and files."""
    m, s, ts, motion = pendulum()
    measured = {"O.angle": np.asarray(motion["O.angle"])}
    mbd.save(m, folder / "a.toml", s)
    lag = small_fmu(folder, "Lag")
    driven = pl.Mechanism(m.bodies, m.joints, m.forces, [pl.Driver("d", "O.angle", lambda t: 0.3 + t)])
    return {
        **from_efforts(m, driven, ts), **of_sweeps(),
        "assemble": call(mbd.assemble, m, {"O.angle": 0.3}, t=0.0, guess={}, speeds={"O.angle_rate": 1.0}),
        "simulate": call(mbd.simulate, m, s, ts, rtol=1e-6, atol=1e-8, dt0=1e-2, max_steps=1000, dtmin=1e-9),
        "Integration": call(
            mbd.Integration, rtol=1e-6, atol=1e-8, dt0=1e-2, max_steps=1000, dtmin=1e-9, formulation=mbd.Stabilized(),
            solver="stiff", accuracy="high", control_speeds=True, adjoint="any", events=(), max_events=3,
            error_weights={"*.theta": 0.5}, switching_times=[0.1], closure_tolerance=1e-3, engine="auto",
        ),
        "simulate by an object": call(mbd.simulate, m, s, ts, mbd.Integration(rtol=1e-6)),
        "step": call(mbd.step, m, s, 0.1, mbd.Integration(rtol=1e-6)),
        "kinematics": call(mbd.kinematics, driven, ts), "inverse_dynamics": call(mbd.inverse_dynamics, driven, ts),
        "equilibrium": call(mbd.equilibrium, m, {"O.angle": -1.4}),
        "equilibrium_path": call(
            mbd.equilibrium_path, m, lambda m: m["b"].mass, [1.0, 2.0], {"O.angle": -1.4}, anything=(1,)
        ),
        "a path by name": call(mbd.equilibrium_path, m, "b.mass", [1.0, 2.0], {"O.angle": -1.4}),
        "linearize": call(mbd.linearize, m, s), "time_scales": call(mbd.time_scales, m, s),
        "describe": call(mbd.describe, m, s), "redundancy": call(mbd.redundancy, m, s),
        "read": call(mbd.read, m, s, ["O.angle"]), "export": call(mbd.export, m),
        "closure_error": call(mbd.closure_error, m, {"O.angle": 0.3}),
        "assembly_modes": call(mbd.assembly_modes, m, {"O.angle": 0.3}, tries=2),
        "export_c": call(mbd.export_c, m, folder / "c.c", s, inputs=["O.angle"], outputs=["O.angle"], step=0.1),
        "export_fmu": call(
            mbd.export_fmu, m, folder / "c.fmu", s, inputs=["O.angle"], outputs=["O.angle"], parameters=["*.mass"],
            version="3.0", solver=mbd.RungeKutta4(), step=0.1, formulation=mbd.Stabilized(), binary=False,
        ),
        "read_fmu": call(mbd.io.read_fmu, lag),
        "import_fmu": call(
            mbd.import_fmu, lag, "lag", {"u": "O.angle"}, ["y"], "O.angle", parameters={"k": 2.0}, period=0.1,
            start=0.0, most=3,
        ),
        "save": call(mbd.save, m, folder / "b.toml", s), "load": call(mbd.load, folder / "a.toml"),
        "load_state": call(mbd.load_state, m, folder / "a.toml"),
        "Experiment": call(mbd.Experiment, ts, measured, start={"O.angle": 0.3}),
        "solution.to_html": call(motion.to_html, folder / "x.html"), "solution[]": call(motion.__getitem__, "O.angle"),
        "solution.state": call(motion.state, 0), "solution.reaction": call(motion.reaction, "O"),
        "state[]": call(s.__getitem__, "O.angle"), "mechanism[]": call(m.__getitem__, "b"),
        "optimal_design.centre_of_mass": call(od.centre_of_mass, m, s),
        "extrema": call(mbd.extrema, lambda ts: mbd.simulate(m, s, ts, throw=False), ts, "O.angle"),
        "sweep": call(mbd.sweep, lambda x: {"y": 2.0 * x["x"]}, {"x": [1.0, 2.0]}, chunk=2),
        "a sweep by name": call(mbd.sweep, lambda m: {"y": m["b"].mass}, {"b.mass": [1.0, 2.0]}, mechanism=m),
        "local_sensitivities": call(
            sweeps.local_sensitivities, lambda m: {"y": m["b"].mass}, ["b.mass"], mechanism=m, units={"y": "kg"}
        ),
        "free": call(lambda free: mbd.identification.Problem(m, mbd.Experiment(ts, measured), free), ["b.mass"]),
        "numbers": call(mbd.numbers, m, ["b.mass"]), "with_numbers": call(mbd.with_numbers, m, {"b.mass": 2.0}),
        "in_space": call(mbd.in_space, m), "state_in_space": call(mbd.state_in_space, m, s),
        "inputs": call(mbd.inputs, m), "with_inputs": call(mbd.with_inputs, m, {"O.angle": 2.0}),
        "Parameter": call(mbd.identification.Parameter, "b.mass", start=2.0),
        "grid": call(sweeps.grid, {"x": [1.0, 2.0]}),
    }  # fmt: skip
