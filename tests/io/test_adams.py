"""Adams datasets: statements, units, parts, joints, forces and functions, by closed forms and by results of Adams."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
import jaxmbd.spatial as sp
from jaxmbd.errors import MechanismError
from jaxmbd.io import ImportedModel, read
from jaxmbd.io.adams.functions import ANGULAR, LINEAR, Expression
from tests.io.mujoco_bench import accelerations_here
from tests.references.tables import columns, table

REFERENCES = Path(__file__).parent.parent / "references" / "chrono_adams"
SI = "UNITS/FORCE=NEWTON, MASS=KILOGRAM, LENGTH=METER, TIME=SECOND"
GROUND = "PART/1, GROUND\nMARKER/10, PART=1, QP=0.1,0.2,0.3, REULER=20D,30D,40D"
BODY = """PART/2, MASS=2, CM=20, IP=0.3,0.4,0.5, QG=0.5,-0.2,0.1, REULER=10D,50D,-20D
MARKER/20, PART=2, QP=0.1,0,0.2, REULER=0,0.3,0
MARKER/21, PART=2, QP=0.2,0.1,-0.1, REULER=-30D,60D,15D"""


def model(tmp_path: Path, *statements: str, strict: bool = False) -> ImportedModel:
    path = tmp_path / "m.adm"
    path.write_text("\n".join(["a title", *statements, "END", ""]))
    return read(path, strict=strict)


def lost(read_model: ImportedModel) -> list[str]:
    return [str(remark).partition(": ")[2] for remark in read_model.lost]


def frames(mechanism: Any, part: Any) -> list[Any]:
    """The frames of a part's markers in the world, where the bodies are at their poses."""
    poses = {body.name: sp.SpatialFrame(body.pose[:3], sp.rotation.matrix(body.pose[3:])) for body in mechanism.bodies}
    poses["ground"] = sp.SpatialFrame(jnp.zeros(3), jnp.eye(3))
    return [poses[marker.body].compose(marker.local) for marker in part.markers]


def euler(*degrees: float) -> Rotation:
    return Rotation.from_euler("ZXZ", degrees, degrees=True)


# The markers of `GROUND` and `BODY` in the world.
R10, P10 = euler(20, 30, 40), np.array([0.1, 0.2, 0.3])
R2, P2 = euler(10, 50, -20), np.array([0.5, -0.2, 0.1])
R21, P21 = R2 * euler(-30, 60, 15), P2 + R2.apply([0.2, 0.1, -0.1])


def test_parts_are_where_the_file_says(tmp_path: Path) -> None:
    made = model(tmp_path, SI, GROUND, BODY, "ACCGRAV/JGRAV=-9.81").mechanism
    body = made["part_2"]
    np.testing.assert_allclose(body.pose[:3], P2 + R2.apply([0.1, 0.0, 0.2]), atol=1e-12)
    turn = (R2 * Rotation.from_euler("X", 0.3)).as_matrix()
    np.testing.assert_allclose(sp.rotation.matrix(body.pose[3:]), turn, atol=1e-12)
    np.testing.assert_allclose(body.inertia, np.diag([0.3, 0.4, 0.5]), atol=1e-12)
    np.testing.assert_allclose(made["gravity"].acceleration, [0.0, -9.81, 0.0])


def test_inertia_is_about_im_with_positive_integrals(tmp_path: Path) -> None:
    """A dumbbell of two points of 0.5 kg about a marker beside its centre: the tensor of its points."""
    points = np.array([[0.3, 0.2, 0.1], [-0.3, -0.2, -0.1]])
    at = [(euler(30, 40, 50).inv().apply(p - [0.1, 0.2, -0.3])) for p in points]  # in the axes of the marker IM
    xx, yy, zz = (0.5 * sum(p @ p - p[k] ** 2 for p in at) for k in range(3))
    xy, xz, yz = (0.5 * sum(p[i] * p[j] for p in at) for i, j in ((0, 1), (0, 2), (1, 2)))
    numbers = ",".join(repr(float(x)) for x in (xx, yy, zz, xy, xz, yz))
    one = f"PART/2, MASS=1, CM=20, IM=22, IP={numbers}\nMARKER/20, PART=2\nMARKER/22, QP=.1,.2,-.3, REULER=30D,40D,50D"
    J = 0.5 * sum(p @ p * np.eye(3) - np.outer(p, p) for p in points)
    np.testing.assert_allclose(model(tmp_path, SI, GROUND, one).mechanism["part_2"].inertia, J, atol=1e-12)


def test_units_scale_all_to_si(tmp_path: Path) -> None:
    """Millimetres, tonnes, milliseconds and kilonewtons."""
    units = "UNITS/FORCE=KNEWTON, MASS=TONNE, LENGTH=MILLIMETER, TIME=MILLISECOND"
    part = "PART/2, MASS=2, CM=20, IP=1e6,1e6,1e6, QG=100,0,0, VX=3, WM=20, WZ=4D\nMARKER/20, PART=2, QP=10,0,0"
    spring = "SPRINGDAMPER/1, TRANSLATION, I=20, J=10, K=2, C=3, LENGTH=50, FORCE=0.1"
    law = "SFORCE/1, TRANSLATION, I=20, J=10, FUNCTION=TIME*(DM(20,10)-5)+VR(20,10)"
    read_model = model(tmp_path, units, GROUND, part, spring, law, "ACCGRAV/KGRAV=-9.81E-3", strict=True)
    body, own = read_model.mechanism["part_2"], read_model.mechanism["springdamper_1"]
    assert float(body.mass) == 2000.0
    np.testing.assert_allclose(body.inertia, 1e3 * np.eye(3) * 1e6 * 1e-6)
    np.testing.assert_allclose(body.pose[:3], [0.11, 0.0, 0.0])
    np.testing.assert_allclose([own.stiffness, own.damping, own.free_length, own.actuator], [2e6, 3e3, 0.05, -100.0])
    np.testing.assert_allclose(read_model.mechanism["gravity"].acceleration, [0, 0, -9.81], atol=1e-12)
    assert read_model.speeds == pytest.approx({"part_2.vx": 3.0, "part_2.omega_z": np.radians(4) * 1e3})
    pull = read_model.mechanism["sforce_1"].actuator(jnp.asarray(0.002), 0.006, 0.4)
    np.testing.assert_allclose(pull, -1e3 * (2.0 * (6.0 - 5.0) + 0.4), rtol=1e-12)


@pytest.mark.parametrize(
    ("written", "z", "x"),
    [
        ("ZP=0,1,0", (0, 1, 0), (1, 0, 0)),
        ("ZP=0,0,1, XP=0,1,0.3", (0, 0, 1), (0, 1, 0)),
        ("XP=0,2,0, ZP=1,1,0, USEXP", (1, 0, 0), (0, 1, 0)),
    ],
)
def test_orientation_by_points(tmp_path: Path, written: str, z: Any, x: Any) -> None:
    joint = "JOINT/1, FIXED, I=22, J=23\nMARKER/23, PART=1"
    made = model(tmp_path, SI, GROUND, BODY, f"MARKER/22, PART=2, {written}", joint).mechanism
    frame = frames(made, made["joint_1"])[1]
    np.testing.assert_allclose(R2.inv().apply(np.array(frame.z)), z, atol=1e-12)
    np.testing.assert_allclose(R2.inv().apply(np.array(frame.x)), x, atol=1e-12)


def rows(kind: str) -> list[float]:
    """What is zero if a joint is closed, by Adams' description, of the markers I = 21 and J = 10."""
    d, I, J = P21 - P10, R21.as_matrix(), R10.as_matrix()
    along, turned = J.T @ d, J.T @ I  # in the axes of J
    misaligned = [turned[1, 2], turned[2, 0], turned[0, 1]]
    return {
        "CYLINDRICAL": [*along[:2], *turned[:2, 2]],
        "FIXED": [*d, *misaligned],
        "HOOKE": [*d, I[:, 0] @ J[:, 1]],
        "PLANAR": [*turned[:2, 2], along[2]],
        "REVOLUTE": [*d, *turned[:2, 2]],
        "SPHERICAL": [*d],
        "TRANSLATIONAL": [*along[:2], *misaligned],
        "UNIVERSAL": [*d, turned[2, 2]],
        "ATPOINT": [*d],
        "INLINE": [*along[:2]],
        "INPLANE": [along[2]],
        "ORIENTATION": misaligned,
        "PARALLEL_AXES": [*turned[:2, 2]],
        "PERPENDICULAR": [turned[2, 2]],
    }[kind]


PRIMITIVES = ("ATPOINT", "INLINE", "INPLANE", "ORIENTATION", "PARALLEL_AXES", "PERPENDICULAR")
JOINTS = ("CYLINDRICAL", "FIXED", "HOOKE", "PLANAR", "REVOLUTE", "SPHERICAL", "TRANSLATIONAL", "UNIVERSAL")


@pytest.mark.parametrize("kind", [*JOINTS, *PRIMITIVES])
def test_joints_have_the_rows_of_adams(tmp_path: Path, kind: str) -> None:
    keyword = "JPRIM" if kind in PRIMITIVES else "JOINT"
    made = model(tmp_path, SI, GROUND, BODY, f"{keyword}/7, {kind}, I=21, J=10", strict=True).mechanism
    joint = made[f"{keyword.lower()}_7"]
    residual = np.asarray(joint.residual(jnp.zeros(()), frames(made, joint)))
    np.testing.assert_allclose(np.abs(residual), np.abs(rows(kind)), atol=1e-12)


def test_a_screw_advances_by_its_pitch_from_where_it_starts(tmp_path: Path) -> None:
    on_axis = "MARKER/22, PART=3, REULER=20D,30D,40D\nMARKER/30, PART=3"
    part = "PART/3, MASS=1, CM=30, IP=1,1,1, QG=0.1,0.2,0.3"
    made = model(tmp_path, SI, GROUND, part, on_axis, "JOINT/1, SCREW, I=22, J=10, PITCH=0.1", strict=True).mechanism
    a, b = frames(made, made["joint_1"])
    np.testing.assert_allclose(made["joint_1"].residual(jnp.zeros(()), (a, b)), 0.0, atol=1e-12)
    turn = sp.rotation.matrix(sp.rotation.about("z", 0.8))
    moved = sp.SpatialFrame(b.position + 0.1 * 0.8 / (2 * np.pi) * b.z, b.rotation @ turn)
    np.testing.assert_allclose(made["joint_1"].residual(jnp.zeros(()), (a, moved)), 0.0, atol=1e-12)


def test_coordinates_are_those_of_i_relative_to_j(tmp_path: Path) -> None:
    """A motor turns I by its function, and a torsional spring of other markers counts from their angle."""
    door = "PART/3, MASS=1, CM=30, IP=1,1,1\nMARKER/30, PART=3\nMARKER/31, PART=3, REULER=25D,0,0"
    pin = "MARKER/11, PART=1\nJOINT/1, REVOLUTE, I=30, J=11\nMOTION/1, ROTATION, JOINT=1, FUNCTION=30D*SIN(2*TIME)"
    coil = "SPRINGDAMPER/1, ROTATION, I=31, J=11, KT=2, ANGLE=5D, CT=0.3, TORQUE=0.7"
    swapped = "SFORCE/1, ROTATION, I=11, J=31, FUNCTION=-2*(AZ(11,31)-5D)-0.3*WZ(11,31)+0.7"
    made = model(tmp_path, SI, GROUND, door, pin, coil, swapped, strict=True).mechanism
    np.testing.assert_allclose(made["motion_1"].motion(jnp.asarray(0.4)), np.radians(30) * np.sin(0.8), rtol=1e-12)
    c, rate, time = jnp.asarray(0.3), jnp.asarray(0.5), jnp.asarray(0.0)
    angle = 0.3 + np.radians(25)
    effort = -2 * (angle - np.radians(5)) - 0.3 * 0.5 + 0.7
    np.testing.assert_allclose(made["springdamper_1"].effort(time, c, rate), effort, rtol=1e-12)
    swapped_torque = -2 * (-angle - np.radians(5)) + 0.3 * 0.5 + 0.7  # on 11, and the opposite on the door
    np.testing.assert_allclose(made["sforce_1"].effort(time, c, rate), -swapped_torque, rtol=1e-12)


def test_forces_are_those_of_adams(tmp_path: Path) -> None:
    """Wrenches on the body at rest at its pose, in the world."""
    statements = (
        "SPRINGDAMPER/1, TRANSLATION, I=21, J=10, K=3, C=1, LENGTH=0.2, FORCE=0.5",
        "SFORCE/1, TRANSLATION, I=21, J=10, FUNCTION=-3*(DM(21,10)-0.2)+0.5",
        "SFORCE/2, TRANSLATION, ACTIONONLY, I=21, J=10, FUNCTION=2*TIME",
        "SFORCE/3, TRANSLATION, ACTIONONLY, I=21, J=22, FUNCTION=2*TIME\nMARKER/22, PART=2, REULER=0,40D,0",
        "VFORCE/1, I=21, JFLOAT=12, RM=10, FX=1\\FY=2*TIME\nMARKER/12, PART=1, FLOATING",
        "GFORCE/1, I=21, JFLOAT=12, RM=21, FZ=3\\TX=4",
        "VTORQUE/1, I=21, JFLOAT=12, RM=10, TY=5",
        "BUSHING/1, I=21, J=10, K=1,2,3, KT=0,0,0",
    )
    made = model(tmp_path, SI, GROUND, BODY, *statements[:3], "SFORCE/9, ROT, I=21, J=10, FUNCTION=1", *statements[3:])
    assert lost(made) == [
        "SFORCE/9 acts between parts that no revolute or cylindrical joint about its axis joins; it is left out",
    ]
    d = P21 - P10
    length = np.linalg.norm(d)
    push = (-3 * (length - 0.2) + 0.5) * d / length
    expected = {
        "springdamper_1": (push, np.zeros(3)),
        "sforce_1": (push, np.zeros(3)),
        "sforce_3": (1.4 * (R2 * euler(0, 40, 0)).apply([0, 0, 1]), np.zeros(3)),
        "sforce_2": (1.4 * R10.apply([0, 0, 1]), np.zeros(3)),
        "vforce_1": (R10.apply([1, 1.4, 0]), np.zeros(3)),
        "gforce_1": (R21.apply([0, 0, 3]), R21.apply([4, 0, 0])),
        "vtorque_1": (np.zeros(3), R10.apply([0, 5, 0])),
        "bushing_1": (-R10.apply([1, 2, 3] * R10.inv().apply(d)), np.zeros(3)),
    }
    still = sp.SpatialRate(jnp.zeros(3), jnp.zeros(3))
    for name, (force, torque) in expected.items():
        part = made.mechanism[name]
        at = frames(made.mechanism, part)
        wrench = np.asarray(part.wrenches(jnp.asarray(0.7), at, [still] * len(at)))[-1]
        np.testing.assert_allclose(wrench, [*force, *torque], atol=1e-12, err_msg=name)


CRANK_SLIDER = """
!  a slider-crank in the x-y plane, in millimetres
UNITS/ FORCE = NEWTON, MASS = KILOGRAM
, LENGTH = MILLIMETER   ! continued
!
, TIME = SECOND
PART/1, GROU
MARK/1, PART = 1
MARKER/2, REULER = 90D, 90D, 0D          ! z along x
!                adams_view_name='crank'
PART/2, MASS = 1, CM = 20
, IP = 1E2, 1E3, 1E3, REULER = 40D,0,0
MARKER/20, QP = 50, 0, 0
MARKER/21
MARKER/22, QP = 100, 0, 0
!                adams_view_name='rod'
PART/3, MASS = 2, CM = 30, IP = 2E2, 9E3, 9E3, QG = 76.604444, 64.278761, 0, REULER = -12.37073D, 0, 0
MARKER/30, QP = 150, 0, 0
MARKER/31
MARKER/32, QP = 300, 0, 0
!                adams_view_name='slider'
PART/4, MASS = 3, CM = 40, IP = 1E3, 1E3, 1E3, QG = 369.6343, 0, 0
MARKER/40
MARKER/41, REULER = 90D, 90D, 0D
JOINT/1, REVOLUTE, I = 21, J = 1
JOINT/2, REV, I = 31, J = 22
JOINT/3, SPH, I = 32, J = 40
JOINT/4, TRANS, I = 41, J = 2
SFORCE/1, ROTATIONAL, I = 21, J = 1
, FUNCTION = 500*(1 -
, 0.1*WZ(21,1))
, + 200*SIN(30D)
SPRINGDAMPER/1, TRANSLATION, I = 40, J = 1, K = 2, C = 0.1, LENGTH = 300
ACCGRAV/JGRAV = -9806.65
GRAPHICS/1, CYLINDER, CM = 20, LENGTH = 3, RADIUS = 1
REQUEST/1, D, I=20, J=1, C=a comment, with commas
"""


def test_a_slider_crank_is_the_mechanism_in_python(tmp_path: Path) -> None:
    read_model = model(tmp_path, CRANK_SLIDER, strict=True)
    state = read_model.state
    crank, rod, slider = (
        sp.Body(name, mass, np.multiply(inertia, 1e-6))
        for name, mass, inertia in (
            ("crank", 1.0, (1e2, 1e3, 1e3)), ("rod", 2.0, (2e2, 9e3, 9e3)), ("slider", 3.0, (1e3, 1e3, 1e3))
        )
    )  # fmt: skip
    ground = sp.ground
    x_axis: Any = {"rotation": np.array([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]])}
    joints = [
        sp.Revolute("joint_1", ground.at(), crank.at(-0.05)),
        sp.Revolute("joint_2", crank.at(0.05), rod.at(-0.15)),
        sp.Spherical("joint_3", slider.at(), rod.at(0.15)),
        sp.Prismatic("joint_4", ground.at(**x_axis), slider.at(**x_axis)),
    ]
    forces = [
        sp.Gravity((0.0, -9.80665, 0.0)),
        sp.JointForce("motor", "joint_1.angle", lambda t, c, rate, p: 0.5 * (1 - 0.1 * rate) + 0.1),
        sp.SpringDamper("spring", ground.at(), slider.at(), 2000.0, 0.3, 100.0),
    ]
    expected = sp.Mechanism([crank, rod, slider], joints, forces)
    at = mbd.Equations(expected).at(state.t, state.q)
    np.testing.assert_allclose(at.position(), 0.0, atol=1e-9)
    v = np.linalg.svd(np.asarray(at.jacobian))[2][-1]
    v = v * 3.0 / v[5]
    found, there = (
        accelerations_here(m, np.asarray(state.q)[None], v[None])[0] for m in (read_model.mechanism, expected)
    )
    for name, value in there.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-8, err_msg=name)
    assert abs(there["crank.omega_z"]) > 1.0
    assert [str(r).partition(": ")[2] for r in read_model.remarks] == [
        "GRAPHICS is left out (1 statement)", "REQUEST is left out (1 statement)"
    ]  # fmt: skip


CASES = ("revolute_2", "cylindrical_2", "prismatic_2", "spherical_2", "universal_1")


@pytest.mark.parametrize("case", [CASES[0], *(pytest.param(case, marks=pytest.mark.slow) for case in CASES[1:])])
def test_motions_of_datasets_are_those_that_adams_computed(case: str) -> None:
    """Datasets of Project Chrono, and what Adams made of them: 7 digits, and its own error of integration."""
    read_model, data = read(REFERENCES / f"{case}.adm", strict=True), table(f"chrono_adams/{case}")
    times = data["t"][:21]
    names = [f"part_2.{c}" for c in ("x", "y", "z", "vx", "vy", "vz")]
    solution = mbd.simulate(read_model.mechanism, read_model.state, times, rtol=1e-9, atol=1e-10)
    found = np.stack([np.asarray(solution[name]) for name in names], axis=1)
    bounds = table("chrono_adams/tolerances")
    for k, signal in enumerate(("pos", "vel")):
        there = columns(data, *(f"{signal}_{axis}" for axis in "xyz"))[:21]
        row = (bounds["case"] == case) & (bounds["signal"] == signal)
        difference = np.abs(found[:, 3 * k : 3 * k + 3] - there).max()
        assert difference < float(bounds["suggested_tolerance"][row][0]), signal


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2*PI*TIME", 2 * np.pi * 0.3),
        ("-TIME**2+1.5E1", -0.09 + 15.0),
        ("30D", np.radians(30)),
        ("RTOD*DTOR*1.D", np.radians(1)),
        ("STEP(TIME,0.1,1,0.5,3)", 1 + 2 * 0.5**2 * (3 - 2 * 0.5)),
        ("STEP5(TIME,0.1,1,0.5,3)", 1 + 2 * 0.5**3 * (10 - 15 * 0.5 + 6 * 0.25)),
        ("STEP(TIME,1,-2,2,3)", -2.0),
        ("HAVSIN(TIME,0,0,0.6,2)", 1.0),
        ("SHF(TIME,0.1,2,5,0.3,1)", 1 + 2 * np.sin(5 * 0.2 - 0.3)),
        ("POLY(TIME,0.1,1,2,3)", 1 + 2 * 0.2 + 3 * 0.04),
        ("MAX(TIME,0.4)*ABS(-2)+SQRT(4)", 0.8 + 2.0),
        ("ATAN2(1,TIME)", np.arctan2(1, 0.3)),
    ],
)
def test_functions_by_value(text: str, value: float) -> None:
    time = jnp.asarray(0.3)
    np.testing.assert_allclose(Expression(text)(time), value, rtol=1e-12)
    step = 1e-6
    slope = (Expression(text)(time + step) - Expression(text)(time - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(Expression(text))(time), slope, atol=1e-7)


def test_functions_of_markers_and_what_is_refused() -> None:
    t, c, rate = jnp.asarray(0.1), jnp.asarray(0.4), jnp.asarray(-0.3)
    both = "DM(3,004)+10*VR(4,3,3)"
    np.testing.assert_allclose(Expression(both, LINEAR, 3, 4)(t, c, rate), 0.4 - 3.0)
    np.testing.assert_allclose(Expression("AZ(4,3)+10*WZ(3,4,4)", ANGULAR, 3, 4)(t, c, rate), -0.4 - 3.0)
    for text in (
        "DM(3,5)",
        "AZ(3,4)",
        "VARVAL(2)",
        "__import__('os')",
        "TIME.real",
        "IF(TIME:1,2,3)",
        "1e999",
        "SIN()",
    ):
        with pytest.raises(MechanismError, match=r"has no counterpart; known are|is no function that is understood"):
            Expression(text, LINEAR, 3, 4)
    with pytest.raises(MechanismError, match="nests deeper"):
        Expression("-" * 500 + "1")


def test_what_is_not_understood_is_remarked(tmp_path: Path) -> None:
    pin = "MARKER/22, PART=2\nMARKER/11, PART=1\nJOINT/1, REVOLUTE, I=22, J=11, ICROT=1,2"
    read_model = model(
        tmp_path, GROUND, BODY, pin, "CONTACT/1, IGEOM=1, JGEOM=2", "MOTION/1, JOINT=1, ROT, FUNCTION=USER(1,2)",
        "MOTION/2, JOINT=1, TRANS, FUNCTION=1", "ODD/1, X=2", "JPRIM/1, INLINE, I=22, J=20",
        "JOINT/2, RACKPIN, I=22, J=11, PD=2", "MOTION/3, JOINT=1, ROT, ACCEL, FUNCTION=1",
    )  # fmt: skip
    found = lost(read_model)
    for text in (
        "CONTACT/1 has no counterpart and is left out",
        "ODD/1 is no statement that is known; it is left out",
        "JOINT/1 has initial conditions, which are left out: give them to assemble",
        "JPRIM/1 joins 'part_2' to itself and is left out",
        "JOINT/2 is a RACKPIN, which has no counterpart and is left out",
        "MOTION/2 moves 'joint_1', a Revolute, along no coordinate: left out",
        "MOTION/3 prescribes ACCEL, which has no counterpart; it is left out",
    ):
        assert text in found
    assert any(
        text.startswith("MOTION/1 is left out: 'USER(1, 2)' in 'USER(1,2)' has no counterpart") for text in found
    )
    assert "UNITS are not in the file: it is read in newtons, kilograms, metres and seconds" in map(
        str, read_model.remarks
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("MASS=2", "MASS=two", "line 5: PART/2: MASS must hold 1 finite number"),
        ("MASS=2", "MASS=-2", "line 5: PART/2: .*mass must be"),
        ("CM=20", "CM=10", "CM must be one of its own markers, got 10"),
        (", CM=20", "", "it has a mass, and no CM"),
        ("IP=0.3,0.4,0.5", "IP=0.3,0.4", "IP must hold 3 or 6 finite number"),
        ("IP=0.3,0.4,0.5", "IP=0.3,0.4,5", "PART/2: .*no mass distribution"),
        ("MARKER/21, PART=2", "MARKER/21, PART=5", "line 7: MARKER/21: there is no part 5"),
        ("MARKER/21", "MARKER/20", "there is another one of this number in line 6"),
        ("JOINT/1, REVOLUTE", "JOINT/1, R", "it must have one of the types"),
        ("JOINT/1, REVOLUTE", "JOINT/1", "it must have one of the types"),
        ("I=21, J=10", "I=99, J=10", "line 8: JOINT/1: there is no marker 99"),
        ("I=21, J=10", "J=10", "it has no I = id"),
        ("PART/2, MASS", "PART/2, GROUND, MASS", "it has no PART that can move"),
        ("LENGTH=METER", "LENGTH=ELL", "line 2: UNITS: LENGTH must be one of METER"),
        ("JOINT/1, REVOLUTE", "J/1, REVOLUTE", "'J' abbreviates JOINT as well as JPRIM"),
        ("QP=0.1,0,0.2", "QP=0.1,0,0.2, QP=1,2,3", "QP is given twice"),
    ],
)
def test_broken_files_name_the_line_and_the_statement(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = "\n".join([SI, GROUND, BODY, "JOINT/1, REVOLUTE, I=21, J=10"])
    assert old in text
    with pytest.raises(MechanismError, match=said):
        model(tmp_path, text.replace(old, new, 1))
