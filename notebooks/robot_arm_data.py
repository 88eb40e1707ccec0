"""The records of the robot arm in `jaxmbd/data/robot_arm`: a simulation with more in it than a user would model.

    python notebooks/robot_arm_data.py [folder]

Hidden from the model that is identified: gears that yield and have play, so that motors and links turn differently;
friction with a Stribeck effect, and friction in the rods' bearings; centres of mass off the links' axes, inertia
tensors with all entries; encoders with noise and steps, currents with noise.
"""

import gzip
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd import spatial as sp

SEED = 2024
RATE = 200.0  # [Hz] of the records
LEAD = 1.0  # [s] before a record, in which the gears settle
RECORDS = {"identification": (30.0, 12, 0), "held_out": (10.0, 4, 1)}  # duration [s], harmonics, stream of the seed
AXES = ("A1", "A2", "A3", "A4", "A5", "A6", "A7")

# Mass [kg], centre of mass [m] in the drawing, principal moments [kg m²], and their rotation vector [rad].
LINKS = {
    "column": (29.0, (0.04, 0.03, 0.37), (0.95, 0.88, 0.61), (0.1, -0.2, 0.1)),
    "upper arm": (23.5, (0.17, 0.06, 0.90), (1.35, 1.28, 0.16), (0.05, 0.12, -0.1)),
    "crank": (8.2, (0.07, -0.10, 0.61), (0.031, 0.085, 0.079), (-0.1, 0.05, 0.2)),
    "rod": (5.1, (-0.05, -0.10, 0.93), (0.19, 0.19, 0.006), (0.0, 0.03, 0.0)),
    "forearm": (18.3, (0.24, 0.02, 1.29), (0.17, 0.58, 0.55), (0.1, -0.05, 0.1)),
    "wrist": (9.6, (0.71, 0.02, 1.24), (0.034, 0.16, 0.15), (0.0, 0.1, 0.05)),
    "hand": (6.2, (0.98, -0.02, 1.26), (0.022, 0.031, 0.028), (0.2, 0.0, 0.1)),
    "spindle": (5.4, (1.09, 0.01, 1.25), (0.015, 0.024, 0.022), (0.0, 0.1, -0.1)),
    "tool": (5.2, (1.24, 0.03, 1.28), (0.019, 0.035, 0.030), (0.1, 0.2, 0.0)),
}
# By motor: inertia of the rotor [kg m²], gear ratio, viscous [N m s], Coulomb and breakaway friction [N m], Stribeck
# speed [rad/s], stiffness of the gear [N m/rad], and the noise of the torque that the current says [N m].
DRIVES = {
    "A1": (5.6e-4, 121.0, 24.0, 31.0, 11.0, 0.10, 4.0e5, 2.5),
    "A2": (5.6e-4, 121.0, 29.0, 36.0, 13.0, 0.09, 4.5e5, 3.0),
    "A3": (4.1e-4, 110.0, 21.0, 27.0, 9.0, 0.10, 3.0e5, 2.5),
    "A4": (1.1e-4, 80.0, 3.8, 6.5, 2.2, 0.12, 4.0e4, 0.5),
    "A5": (0.6e-4, 100.0, 3.1, 5.2, 1.6, 0.12, 3.0e4, 0.4),
    "A6": (0.4e-4, 80.0, 1.6, 2.9, 1.0, 0.15, 1.5e4, 0.2),
    "A7": (0.3e-4, 60.0, 1.1, 1.9, 0.6, 0.15, 1.0e4, 0.15),
}
WIDTH = 0.012  # [rad/s] over which friction changes its sign
PLAY = 1.5e-4  # [rad] to either side, about half a minute of arc
LOSS = 6e-4  # [s], damping of a gear over its stiffness
GEAR = (0.4, 0.003)  # mass [kg] and moments of inertia [kg m²] of the wheel between motor and link
BEARINGS = {"elbow": 2.0, "rod end": 0.6}  # viscous friction [N m s] of joints without motor
ENCODER = 8192  # steps of the motor's encoder in a turn
FLUTTER = 0.6  # standard deviation of an encoder's noise, in its steps
AMPLITUDES = (1.3, 0.45, 0.40, 1.6, 1.4, 1.6, 1.5)  # largest deviation [rad] from the middle of each motor's range
MIDDLES = (0.0, 0.10, 0.15, 0.0, 0.25, 0.0, 0.2)
FASTEST = (1.8, 1.1, 1.1, 3.0, 3.0, 4.0, 4.0)  # [rad/s]
BANDWIDTH, DAMPING = 40.0, 0.7  # of the control loops [rad/s], [1]
INERTIAS = (45.0, 32.0, 22.0, 1.2, 1.0, 0.35, 0.2)  # [kg m²] that the controller assumes about each axis
FED_FORWARD = 1.5  # [Hz] up to which the torques of the model are fed forward

SHOULDER, ELBOW, HEEL, CRANK_PIN = (0.15, 0.0, 0.60), (0.15, 0.0, 1.25), (-0.05, 0.0, 1.25), (-0.05, 0.0, 0.60)
# Joints of motors: inner link, outer link, point and axis.
JOINTS = {
    "A1": (None, "column", (0.0, 0.0, 0.0), "z"),
    "A2": ("column", "upper arm", SHOULDER, "y"),
    "A3": ("column", "crank", SHOULDER, "y"),
    "A4": ("forearm", "wrist", (0.55, 0.0, 1.25), "x"),
    "A5": ("wrist", "hand", (0.95, 0.0, 1.25), "y"),
    "A6": ("hand", "spindle", (1.05, 0.0, 1.25), "x"),
    "A7": ("spindle", "tool", (1.15, 0.0, 1.25), "y"),
}
PASSIVE = {"elbow": ("upper arm", "forearm", ELBOW), "rod pin": ("crank", "rod", CRANK_PIN)}


@dataclass(frozen=True)
class Series:
    """A finite Fourier series by motor: `a₀ + Σ a_k cos(k ω t) + b_k sin(k ω t)`; `coefficients (motors, 1 + 2 n)`."""

    omega: float
    coefficients: np.ndarray

    def of(self, motor: int, t: jax.Array) -> jax.Array:
        """The value at one time. Cosines and sines of multiples follow from the first ones, which all series share."""
        a = self.coefficients[motor]
        n = len(a) // 2
        once = (jnp.cos(self.omega * t), jnp.sin(self.omega * t))
        value, here = a[0], once
        for k in range(1, n + 1):
            value = value + a[k] * here[0] + a[n + k] * here[1]
            here = (here[0] * once[0] - here[1] * once[1], here[1] * once[0] + here[0] * once[1])
        return value

    def at(self, ts: np.ndarray) -> np.ndarray:
        """Values, rates and second rates `(3, motors, times)`."""
        n = self.coefficients.shape[1] // 2
        rate = self.omega * np.arange(1, n + 1)
        phases = rate[:, None] * ts
        a, b = np.split(self.coefficients[:, 1:], 2, axis=1)
        c, s = np.cos(phases), np.sin(phases)
        value = self.coefficients[:, :1] + a @ c + b @ s
        return np.stack([value, (b * rate) @ c - (a * rate) @ s, -(a * rate**2) @ c - (b * rate**2) @ s])


def excitation(duration: float, harmonics: int, draws: np.random.Generator) -> Series:
    """A random series that keeps each motor within its range and speed; all begin anew after `duration`."""
    omega = 2 * np.pi / duration
    coefficients = draws.normal(size=(7, 1 + 2 * harmonics))
    coefficients[:, 0] = 0.0
    values, rates, _ = np.abs(Series(omega, coefficients).at(np.linspace(0.0, duration, 2001))).max(axis=2)
    coefficients *= np.minimum(np.array(AMPLITUDES) / values, np.array(FASTEST) / rates)[:, None]
    coefficients[:, 0] = MIDDLES
    return Series(omega, coefficients)


def bodies() -> dict[str, sp.Body]:
    """The links as they lie in the drawing."""
    found = {}
    for name, (mass, centre, moments, turned) in LINKS.items():
        R = np.asarray(sp.rotation.matrix(sp.rotation.from_vector(jnp.asarray(turned))))
        found[name] = sp.Body(name, mass, R @ np.diag(moments) @ R.T, pose=centre)
    return found


def passive_joints(links: dict[str, sp.Body]) -> list:
    """The joints without motors: the parallelogram."""
    pins = [
        sp.Revolute(name, links[a].at_world(*point, axis="y"), links[b].at_world(*point, axis="y"))
        for name, (a, b, point) in PASSIVE.items()
    ]
    ends = [links[name].at_world(*HEEL, axis="y") for name in ("forearm", "rod")]
    return [*pins, sp.PointOnLine("rod end", *ends)]


def rigid_arm() -> sp.Mechanism:
    """The arm with stiff gears and without friction, by which the controller feeds torques forward."""
    links, joints = bodies(), []
    for name, (a, b, point, axis) in JOINTS.items():
        inner = sp.ground if a is None else links[a]
        rotor, ratio, *_ = DRIVES[name]
        ends = [body.at_world(*point, axis=axis) for body in (inner, links[b])]
        joints.append(sp.Revolute(name, *ends, armature=rotor * ratio**2))
    joints += passive_joints(links)
    return sp.Mechanism(list(links.values()), joints, [sp.Gravity(9.81)], coordinates="joint")


def hidden_arm(reference: Series, forward: Series) -> sp.Mechanism:
    """The arm whose motors turn wheels, which turn the links through gears with play, under control."""
    links, wheels, joints, forces = bodies(), [], [], [sp.Gravity(9.81)]
    for k, (name, (a, b, point, axis)) in enumerate(JOINTS.items()):
        inner = sp.ground if a is None else links[a]
        rotor, ratio, viscous, coulomb, breakaway, stribeck, stiffness, _ = DRIVES[name]
        wheel = sp.Body(f"wheel {name}", GEAR[0], GEAR[1] * np.ones(3), pose=point)
        wheels.append(wheel)
        first, second = (
            [body.at_world(*point, axis=axis) for body in pair] for pair in ((inner, wheel), (wheel, links[b]))
        )
        joints += [sp.Revolute(name, *first, armature=rotor * ratio**2), sp.Revolute(f"gear {name}", *second)]
        control = partial(controlled, k, reference, forward)
        forces += [
            sp.JointForce(f"drive {name}", f"{name}.angle", lambda t, angle, rate, _, law=control: law(t, angle, rate)),
            sp.JointFriction(f"friction {name}", f"{name}.angle", viscous, coulomb, WIDTH, 0.0, breakaway, stribeck),
            sp.JointForce(f"teeth {name}", f"gear {name}.angle", teeth, jnp.array([stiffness, PLAY, LOSS * stiffness])),
        ]
    forces.append(sp.JointSpringDamper("friction elbow", "elbow.angle", damping=BEARINGS["elbow"]))
    forces.append(sp.JointSpringDamper("friction rod pin", "rod pin.angle", damping=BEARINGS["rod end"]))
    everything = [*links.values(), *wheels]
    return sp.Mechanism(everything, joints + passive_joints(links), forces, coordinates="joint")


def controlled(
    motor: int, reference: Series, forward: Series, t: jax.Array, angle: jax.Array, rate: jax.Array
) -> jax.Array:
    """The torque [N m] of a motor: what the model asks for, and a correction of angle and rate."""
    wanted, speed = jax.jvp(lambda s: reference.of(motor, s), (t,), (jnp.ones_like(t),))
    correction = BANDWIDTH**2 * (wanted - angle) + 2 * DAMPING * BANDWIDTH * (speed - rate)
    return forward.of(motor, t) + INERTIAS[motor] * correction


def teeth(t: jax.Array, angle: jax.Array, rate: jax.Array, gear: jax.Array) -> jax.Array:
    """The torque [N m] of a gear: none within its play, smoothly a spring beyond."""
    stiffness, play, damping = gear
    return -stiffness * (angle - play * jnp.tanh(angle / play)) - damping * rate


def torques_ahead(arm: sp.Mechanism, reference: Series, duration: float) -> Series:
    """The torques of the rigid arm along the reference, as a series up to a frequency."""
    count = int(duration * 20)
    ts = np.arange(count) * duration / count
    samples = reference.at(ts)
    motion = mbd.MeasuredMotion(
        ts, *({f"{name}.angle": one[k] for k, name in enumerate(AXES)} for one in samples), smoothing="none"
    )
    found = mbd.inverse_dynamics(arm, motion, {f"motor {name}": f"{name}.angle" for name in AXES})
    spectrum = np.fft.rfft(np.stack([np.asarray(found.effort(f"motor {name}")) for name in AXES]), axis=1) / count
    use = spectrum[:, 1 : 1 + int(FED_FORWARD * duration)]
    return Series(reference.omega, np.hstack([spectrum[:, :1].real, 2 * use.real, -2 * use.imag]))


def record(arm: sp.Mechanism, duration: float, harmonics: int, draws: np.random.Generator) -> np.ndarray:
    """Times, angles and torques of the motors as they are measured, `(times, 15)`."""
    reference = excitation(duration, harmonics, draws)
    forward = torques_ahead(arm, reference, duration)
    hidden = hidden_arm(reference, forward)
    ts = np.arange(-LEAD, duration - 0.5 / RATE, 1 / RATE)
    (angles, speeds, _), names = reference.at(ts[:1]), [f"{name}.angle" for name in AXES]
    held = {**dict(zip(names, angles[:, 0], strict=True)), **{f"gear {name}.angle": 0.0 for name in AXES}}
    moving = {**dict(zip(names, speeds[:, 0], strict=True)), **{f"gear {name}.angle": 0.0 for name in AXES}}
    start = mbd.assemble(hidden, held, speeds=moving, t=float(ts[0]))
    begun = time.perf_counter()
    solution = mbd.simulate(hidden, start, ts, rtol=1e-7, atol=1e-9)
    steps, took = int(solution.stats["num_steps"]), time.perf_counter() - begun
    print(f"{duration:g} s: {steps} steps in {took:.1f} s by {solution.engine}", flush=True)
    columns = [ts]
    for name in AXES:
        angle, step = np.asarray(solution[f"{name}.angle"]), 2 * np.pi / ENCODER / DRIVES[name][1]
        columns.append(step * np.round(angle / step + FLUTTER * draws.normal(size=len(ts))))
    for k, name in enumerate(AXES):
        torque = jax.vmap(partial(controlled, k, reference, forward))(
            jnp.asarray(ts), solution[f"{name}.angle"], solution[f"{name}.angle_rate"]
        )
        columns.append(np.asarray(torque) + DRIVES[name][-1] * draws.normal(size=len(ts)))
    return np.column_stack(columns)[ts > -0.5 / RATE]


def main(folder: Path) -> None:
    """Write the records."""
    jax.config.update("jax_enable_x64", True)
    arm = rigid_arm()
    header = ["t [s]", *(f"{name}.angle [rad]" for name in AXES), *(f"motor {name} [N m]" for name in AXES)]
    for name, (duration, harmonics, stream) in RECORDS.items():
        values = record(arm, duration, harmonics, np.random.default_rng([SEED, stream]))
        rows = (("%.3f" + ",%.6f" * 7 + ",%.2f" * 7) % tuple(row) for row in values)
        text = "\n".join([",".join(header), *rows, ""])
        with (folder / f"{name}.csv.gz").open("wb") as file:
            file.write(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "jaxmbd" / "data" / "robot_arm")
