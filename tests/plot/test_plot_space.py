"""Pictures of mechanisms in space: what they show, in numbers, not only that they are drawn."""

import math
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.animation import FuncAnimation
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Line3D, Poly3DCollection, Text3D
from PIL import Image

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import plot
from jaxmbd import spatial as sp
from jaxmbd.integrate.formulations.formulation import Stabilized
from jaxmbd.plot._space import lit
from jaxmbd.scene.geometry import Geometry
from jaxmbd.scene.motion import place_of, poses_of, rates_of
from jaxmbd.scene.parts import pieces_of
from jaxmbd.scene.pieces import BODIES, INK, REACTION
from jaxmbd.scene.scene import SHARE
from jaxmbd.scene.surfaces import equivalent_solid, hull_faces, normals, spread
from jaxmbd.state.state import rank_number

ENDED = jnp.asarray(False), {}, mbd.RESULTS.successful, rank_number(-1)  # as `simulate` ends a motion

ON_A_PIXEL = 1e-9  # [m]: points that a picture computes from the same numbers as the test
END = 0.5  # [s]
RATE = 3.0  # [rad/s]


def pendulum() -> sp.Mechanism:
    rod = sp.Body("rod", 1.0, (1e-4, 0.083, 0.083), (0.5, 0, 0))
    hinge = sp.Revolute("O", sp.ground.at(axis=(0, 1, 0)), rod.at(-0.5, axis=(0, 1, 0)))
    tip = rod.at(0.5, 0, 0)
    return sp.Mechanism(
        [rod], [hinge], [sp.Gravity(), sp.Force("wind", tip, (0, 0, 0.5))], [], [sp.Point("tip", at=tip)]
    )


def at_poses(mechanism: sp.Mechanism) -> np.ndarray:
    """The coordinates of the bodies' rough poses, carried angles zero."""
    return np.concatenate([*(np.asarray(body.pose) for body in mechanism.bodies), np.zeros(len(mechanism.turns))])


@pytest.fixture(scope="module")
def swing() -> mbd.Solution:
    """The pendulum turned at a constant rate: a motion that nobody has to compile."""
    ts = jnp.linspace(0.0, END, 6)
    c, s, zero = jnp.cos(RATE * ts), jnp.sin(RATE * ts), jnp.zeros(6)
    half = [jnp.cos(RATE * ts / 2), zero, jnp.sin(RATE * ts / 2), zero]
    q = jnp.stack([0.5 * c, zero, -0.5 * s, *half, RATE * ts], axis=1)
    v = jnp.stack([-0.5 * RATE * s, zero, -0.5 * RATE * c, zero, jnp.full(6, RATE), zero], axis=1)
    return mbd.Solution(pendulum(), Stabilized(), ts, q, v, jnp.zeros((len(ts), 0)), {}, *ENDED)


def geometry_of(mechanism: sp.Mechanism) -> Geometry:
    return Geometry(mechanism, np.zeros(1), at_poses(mechanism)[None])


def surface(mechanism: sp.Mechanism, part: str, colour: str | None = None) -> np.ndarray:
    """The corners `(k, 3)` of all faces of a part, or of those of one colour."""
    geometry = geometry_of(mechanism)
    pieces = [piece for piece in pieces_of(geometry) if piece.part == part]
    if colour is not None:
        pieces = [piece for piece in pieces if piece.colour == colour]
    assert pieces, part
    return np.concatenate([piece.shape(geometry.motion.at(0)).reshape(-1, 3) for piece in pieces])


def collections(axes: Axes) -> list[Poly3DCollection]:
    return [artist for artist in axes.get_children() if isinstance(artist, Poly3DCollection)]


def corners_of(collection: Poly3DCollection) -> np.ndarray:
    faces: Any = collection._faces  # pyright: ignore[reportAttributeAccessIssue]
    return np.asarray(faces).reshape(-1, 3)


def distances(points: np.ndarray, start: Any, stop: Any) -> np.ndarray:
    """How far points are from a line segment."""
    a, d = np.asarray(start, dtype=float), np.subtract(stop, start)
    share = np.clip((points - a) @ d / np.dot(d, d), 0.0, 1.0)
    return np.linalg.norm(points - a - share[:, None] * d, axis=1)


# --- a mechanism at rest ------------------------------------------------------------------------------------


def test_draw_puts_a_bar_between_markers_in_equal_scales() -> None:
    mechanism = pendulum()
    q = np.array([0.0, 0.0, -0.5, math.cos(math.pi / 4), 0.0, math.sin(math.pi / 4), 0.0, 0.0])
    axes = plot.draw(mechanism, q, labels=True)
    assert isinstance(axes, Axes3D)
    geometry = Geometry(mechanism, np.zeros(1), q[None])
    bars = [p for p in pieces_of(geometry) if p.part == "rod" and p.colour == BODIES[0]]
    (bar,) = (piece.shape(geometry.motion.at(0)).reshape(-1, 3) for piece in bars)
    assert distances(bar, (0, 0, 0), (0, 0, -1)).max() < 0.5 * geometry.size
    assert bar[:, 2].min() == pytest.approx(-1.0, abs=0.5 * geometry.size)
    drawn_corners = corners_of(collections(axes)[-1])
    assert np.abs(drawn_corners[:, None] - bar[:20]).max(axis=2).min(axis=0).max() < ON_A_PIXEL
    limits = np.array([axes.get_xlim(), axes.get_ylim(), axes.get_zlim()])
    assert (drawn_corners > limits[:, 0]).all()
    assert (drawn_corners < limits[:, 1]).all()
    sides = limits[:, 1] - limits[:, 0]
    aspect: Any = axes._box_aspect  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(aspect / sides, aspect[0] / sides[0])
    assert [axis.get_label_text() for axis in (axes.xaxis, axes.yaxis, axes.zaxis)] == ["x [m]", "y [m]", "z [m]"]
    texts = [text.get_text() for text in axes.get_children() if isinstance(text, Text3D)]
    assert texts == ["rod", "O"]


def test_symbols_are_small_and_a_hinge_lies_along_its_axis() -> None:
    mechanism = pendulum()
    size = geometry_of(mechanism).size
    assert size == pytest.approx(0.021, rel=0.1)
    hinge = surface(mechanism, "O")
    assert distances(hinge, (0, -2 * size, 0), (0, 2 * size, 0)).max() < size
    assert np.ptp(hinge[:, 1]) > 3 * size


def test_the_view_is_chosen_and_the_axes_may_be_given() -> None:
    given = plt.figure().add_subplot(projection="3d")
    mechanism = pendulum()
    axes = plot.draw(mechanism, at_poses(mechanism), axes=given, elev=30, azim=40.0)
    assert isinstance(axes, Axes3D)
    assert axes is given
    assert (axes.elev, axes.azim) == (30.0, 40.0)
    assert len(plt.get_fignums()) == 1


def test_names_and_numbers_stay_inside_the_figure() -> None:
    for mechanism in (pendulum(), stewart()):
        axes = plot.draw(mechanism, at_poses(mechanism), azim=25)
        figure = axes.get_figure(root=True)
        assert figure is not None
        figure.canvas.draw()
        found: Any = axes
        for axis in (found.xaxis, found.yaxis, found.zaxis):
            box = axis.get_tightbbox()
            assert np.all(box.min > figure.bbox.min)
            assert np.all(box.max < figure.bbox.max)


def test_a_notebook_cuts_no_empty_rest_out(tmp_path: Path) -> None:
    """The square axes are larger than the figure; `bbox_inches="tight"` adds its padding alone."""
    mechanism = pendulum()
    figure = plot.draw(mechanism, at_poses(mechanism)).get_figure(root=True)
    assert figure is not None
    width, height = figure.get_size_inches()
    assert height < 0.7 * width
    figure.savefig(tmp_path / "tight.png", dpi=50, bbox_inches="tight", pad_inches=0)
    with Image.open(tmp_path / "tight.png") as image:
        np.testing.assert_allclose(image.size, [50 * width, 50 * height], atol=2)


def test_draw_shows_reactions_and_applied_forces_to_scale() -> None:
    force = np.array([0.0, -3.0, 4.0])
    mechanism = pendulum()
    axes = plot.draw(mechanism, at_poses(mechanism), reactions={"O": force})
    collection = collections(axes)[-1]
    colours = np.asarray(collection._facecolor3d)[:, :3]  # pyright: ignore[reportAttributeAccessIssue]
    hue = np.array(to_rgb(REACTION))
    faces = corners_of(collection).reshape(len(colours), -1, 3)
    # Light changes the brightness of the colour and whitens it, but keeps the order of red, green and blue.
    arrow = faces[(colours[:, 0] > 2 * colours[:, 1]) & (colours[:, 1] > colours[:, 2])].reshape(-1, 3)
    assert hue[0] > 2 * hue[1]
    bare = sp.Mechanism(mechanism.bodies, mechanism.joints, [], [], mechanism.sensors)
    plain = plot.draw(bare, at_poses(bare))
    assert isinstance(plain, Axes3D)
    side = max(float(np.ptp(limits)) for limits in (plain.get_xlim(), plain.get_ylim(), plain.get_zlim()))
    tip = SHARE * side * force / 5.0
    assert np.linalg.norm(arrow - tip, axis=1).min() < ON_A_PIXEL
    assert distances(arrow, (0, 0, 0), tip).max() < 0.1 * np.linalg.norm(tip) + ON_A_PIXEL
    assert any(text.get_text() == "5 N   reaction of O on rod" for text in axes.texts)
    up = corners_of(collection)
    assert np.linalg.norm(up - (1.0, 0.0, SHARE * side), axis=1).min() < ON_A_PIXEL


def test_draw_refuses_what_does_not_fit() -> None:
    mechanism = pendulum()
    q = at_poses(mechanism)
    with pytest.raises(mbd.MechanismError, match=r"q must have 8 entries \(rod\.x, .*O\.angle\), got shape \(7,\)"):
        plot.draw(mechanism, q[:7])
    with pytest.raises(mbd.MechanismError, match="not finite"):
        plot.draw(mechanism, q * np.nan)
    with pytest.raises(mbd.MechanismError, match="Euler parameters that are all zero"):
        plot.draw(mechanism, np.zeros(8))
    with pytest.raises(mbd.MechanismError, match="no joint or driver named 'Q'"):
        plot.draw(mechanism, q, reactions={"Q": (1.0, 0.0, 0.0)})
    with pytest.raises(mbd.MechanismError, match=r"'O': expected a force \(fx, fy, fz\) \[N\], got shape \(2,\)"):
        plot.draw(mechanism, q, reactions={"O": (1.0, 0.0)})
    with pytest.raises(mbd.MechanismError, match="needs 3-D axes"):
        plot.draw(mechanism, q, axes=plt.figure().add_subplot())


def test_a_view_is_for_space_alone() -> None:
    mechanism = pl.Mechanism([pl.Body("disc", 1.0, 0.1)], floating=True)
    with pytest.raises(mbd.MechanismError, match="lies in the plane"):
        plot.draw(mechanism, np.zeros(3), elev=20)


# --- bodies -------------------------------------------------------------------------------------------------


def test_hulls_of_planes_boxes_and_many_points(rng: np.random.Generator) -> None:
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 2) for z in (0, 3)], dtype=float)
    faces = hull_faces(np.concatenate([corners, [[0.5, 1.0, 1.5]]]), 3)
    assert sorted(len(face) for face in faces) == [4] * 6
    unit = np.concatenate([normals(face[None]) for face in faces])
    outward = [face.mean(axis=0) - (0.5, 1.0, 1.5) for face in faces]
    assert (np.sum(unit * outward, axis=1) > 0).all()
    (flat,) = hull_faces(np.array([[0, 0, 1], [1, 0, 1], [0.2, 0.2, 1], [0, 1, 1.0]]), 2)
    np.testing.assert_allclose(sorted(flat.tolist()), [[0, 0, 1], [0, 1, 1], [1, 0, 1]], atol=1e-12)
    cloud = rng.normal(size=(200, 3))
    assert all(len(face) == 3 for face in hull_faces(cloud, 3))


def test_points_span_a_point_a_line_a_plane_or_space() -> None:
    points = np.array([[0, 0, 0], [1, 1, 0], [0, 1, 0], [0.3, 0.2, 1.0]])
    assert [spread(points[:k], 1e-3) for k in (1, 2, 3, 4)] == [0, 1, 2, 3]
    assert spread(points, 10.0) == 0


def stewart() -> sp.Mechanism:
    platform = sp.Body("platform", 5.0, (0.3, 0.3, 0.5), (0, 0, 1.0))
    angles = np.deg2rad([0, 100, 120, 220, 240, 340])
    ring = np.stack([0.5 * np.cos(angles), 0.5 * np.sin(angles)], axis=1)
    rods = [
        sp.Rod(f"leg{k}", sp.ground.at(2 * x, 2 * y, 0), platform.at(x, y, -0.1), math.hypot(0.5, 0.9))
        for k, (x, y) in enumerate(ring)
    ]
    return sp.Mechanism([platform], rods)


def test_a_platform_is_a_translucent_hull_with_rods_to_the_ground() -> None:
    mechanism = stewart()
    axes = plot.draw(mechanism, at_poses(mechanism))
    (solids,) = collections(axes)
    alphas = np.asarray(solids._facecolor3d)[:, 3]  # pyright: ignore[reportAttributeAccessIssue]
    faces = corners_of(solids).reshape(len(alphas), -1, 3)
    hull = faces[alphas < 1]
    assert len(hull) == 7  # the hexagon of the markers, and its sides up to the centre of mass
    assert {round(float(z), 9) for z in hull[..., 2].ravel()} == {0.9, 1.0}
    leg = surface(mechanism, "leg1", INK)
    x, y = 0.5 * math.cos(math.radians(100)), 0.5 * math.sin(math.radians(100))
    assert distances(leg, (2 * x, 2 * y, 0), (x, y, 0.9)).max() < geometry_of(mechanism).size
    assert surface(mechanism, "ground")[:, 2].max() < 1e-9


@pytest.mark.parametrize(
    ("solid", "kind", "halves"),
    [
        (sp.sphere(1000, 0.1), "ball", (0.1, 0.1, 0.1)),
        (sp.cylinder(1000, 0.2, 0.06), "cylinder", (0.2, 0.2, 0.03)),
        (sp.cylinder(1000, 0.1, 1.0), "cylinder", (0.1, 0.1, 0.5)),
        (sp.box(1000, 0.3, 0.2, 0.1), "box", (0.15, 0.1, 0.05)),
    ],
)
def test_the_equivalent_solid_is_the_solid_itself(solid: sp.Solid, kind: str, halves: tuple[float, ...]) -> None:
    turned = solid.rotated(sp.rotation.along(jnp.array([1.0, 2.0, 3.0])))
    found = equivalent_solid(float(turned.mass), np.asarray(turned.inertia))
    assert found.kind == kind
    order = slice(None) if kind == "cylinder" else slice(None, None, -1)
    np.testing.assert_allclose(np.sort(found.halves)[::-1] if kind == "box" else found.halves[order], halves, rtol=1e-9)
    assert np.linalg.det(found.axes) == pytest.approx(1.0) or kind == "ball"
    points = found.faces().reshape(-1, 3)
    if kind == "cylinder":
        along = points @ (np.array([1.0, 2.0, 3.0]) / math.sqrt(14))
        assert np.ptp(along) == pytest.approx(2 * halves[2])


def test_a_free_body_and_a_top_are_drawn_as_their_solids() -> None:
    book = sp.box(500, 0.3, 0.2, 0.05)
    free = sp.Mechanism([sp.Body("book", book.mass, book.inertia, (1.0, 0, 0))], floating=True)
    np.testing.assert_allclose(np.ptp(surface(free, "book"), axis=0), [0.3, 0.2, 0.05])
    disc = sp.disc(7800, 0.2, 0.02)
    body = sp.Body("top", disc.mass, disc.inertia, (0, 0, 0.5))
    top = sp.Mechanism(
        [body], [sp.Spherical("O", sp.ground.at(), body.at(0, 0, -0.5))], sensors=[sp.Point("P", at=body.at(0, 0, 0.1))]
    )
    points = surface(top, "top")
    np.testing.assert_allclose(np.hypot(*points.T[:2]).max(), 0.2, rtol=0.01)
    huge = sp.Body("top", 1.0, (9.0, 9.0, 9.0), (0, 0, 0.5))
    limited = sp.Mechanism([huge], [sp.Spherical("O", sp.ground.at(), huge.at(0, 0, -0.5))])
    assert np.hypot(*surface(limited, "top").T[:2]).max() < 0.25


@pytest.mark.parametrize("mass", [1.0, 0.0])
def test_a_body_without_inertia_is_a_ball(mass: float) -> None:
    bob = sp.Body("bob", mass, (0.0, 0.0, 0.0))
    slide = sp.Prismatic("slide", sp.ground.at(), bob.at())
    geometry = Geometry(sp.Mechanism([bob], [slide], coordinates="joint"), np.zeros(1), np.array([[1.0]]))
    (ball,) = (piece for piece in pieces_of(geometry) if piece.part == "bob")
    radii = np.linalg.norm(ball.shape(geometry.motion.at(0)) - (0.0, 0.0, 1.0), axis=-1)
    np.testing.assert_allclose(radii, 0.9 * geometry.size)


def test_bodies_about_one_centre_are_seen_through() -> None:
    outer, inner = sp.Body("outer", 1.0, (0.1, 0.1, 0.1)), sp.Body("inner", 1.0, (0.01, 0.01, 0.01))
    joints = [sp.Spherical("A", sp.ground.at(), outer.at()), sp.Spherical("B", outer.at(), inner.at())]
    mechanism = sp.Mechanism([outer, inner], joints)
    geometry = geometry_of(mechanism)
    alphas = {piece.part: piece.alpha for piece in pieces_of(geometry)}
    assert alphas["outer"] < 1
    assert alphas["inner"] == 1
    assert np.linalg.norm(surface(mechanism, "outer"), axis=1).max() == pytest.approx(0.5)  # r² = 5/2 J / m


# --- joints and forces --------------------------------------------------------------------------------------


def rolling() -> sp.Mechanism:
    upright = sp.rotation.along(jnp.array([0.0, 1.0, 0.0]))
    wheel = sp.Body("wheel", 1.0, (0.06, 0.06, 0.12), (*(1.0, 2.0, 0.5), *np.asarray(upright)))
    return sp.Mechanism([wheel], [sp.RollingDisc("roll", sp.ground.at(), wheel.at(), 0.5)], floating=True)


def test_a_rolling_disc_stands_on_its_patch() -> None:
    mechanism = rolling()
    rim = surface(mechanism, "wheel", BODIES[0])
    assert np.hypot(rim[:, 0] - 1.0, rim[:, 2] - 0.5).max() == pytest.approx(0.5, rel=1e-2)
    assert np.ptp(rim[:, 1]) < 0.1
    assert np.unique(surface(mechanism, "roll")[:, 2]) == pytest.approx([0.0])
    floor, solids = collections(plot.draw(mechanism, at_poses(mechanism)))
    assert floor.get_zorder() < solids.get_zorder()


def test_a_spring_is_a_helix_about_its_damper() -> None:
    body = sp.Body("body", 1.0, (0.1, 0.1, 0.1), (0, 3, 4))
    spring = sp.SpringDamper("spring", sp.ground.at(), body.at(), 10.0, 1.0, damping=2.0)
    mechanism = sp.Mechanism([body], forces=[spring])
    size = geometry_of(mechanism).size
    coil = surface(mechanism, "spring", INK)
    away = distances(coil, (0, 0, 0), (0, 3, 4))
    assert away.max() == pytest.approx(1.17 * size, rel=0.05)
    axial = coil @ np.array([0.0, 0.6, 0.8])
    assert (axial.min(), axial.max()) == pytest.approx((0.0, 5.0), abs=0.2 * size)
    assert distances(surface(mechanism, "spring"), (0, 0, 0), (0, 3, 4)).min() < 0.3 * size
    lone = sp.Mechanism([body], forces=[sp.SpringDamper("spring", sp.ground.at(), body.at(), 10.0)])
    assert len(surface(lone, "spring")) == len(coil)


def test_a_slide_is_as_long_as_its_travel() -> None:
    block = sp.Body("block", 1.0, (0.1, 0.1, 0.1))
    joint = sp.Prismatic("slide", sp.ground.at(axis=(1, 0, 0)), block.at(axis=(1, 0, 0)))
    mechanism = sp.Mechanism([block], [joint])
    qs = np.zeros((5, 7))
    qs[:, 0], qs[:, 3] = np.linspace(-1.0, 2.0, 5), 1.0
    geometry = Geometry(mechanism, np.zeros(len(qs)), qs)
    rail, *_ = (p for p in pieces_of(geometry) if p.part == "slide")
    points = rail.shape(geometry.motion.at(0)).reshape(-1, 3)
    assert points[:, 0].min() == pytest.approx(-1.0, abs=5 * geometry.size)
    assert points[:, 0].max() == pytest.approx(2.0, abs=5 * geometry.size)
    assert points[:, 0].min() < -1.0
    assert points[:, 0].max() > 2.0


def test_every_part_has_its_place() -> None:
    """Gravity, friction and gears have no symbol; a user's joint is a dashed line."""
    a, b = sp.Body("a", 1.0, (0.1, 0.1, 0.1), (0, 0, 1)), sp.Body("b", 1.0, (0.1, 0.2, 0.25), (1, 0, 1))
    on_a, on_b, fixed = a.at(0.2, 0, 0), b.at(-0.2, 0, 0.1), sp.ground.at(1, 1, 0)
    pair = (on_a, on_b)
    joints = [
        *(kind(kind.__name__, *pair) for kind in (sp.Spherical, sp.Universal, sp.ConstantVelocity, sp.Planar)),
        *(kind(kind.__name__, *pair) for kind in (sp.PointOnLine, sp.PointOnPlane, sp.Cylindrical, sp.Weld)),
        *(
            kind(kind.__name__, *pair)
            for kind in (sp.ParallelAxes, sp.PointConstraint, sp.FixedConstraint, sp.Revolute)
        ),
        sp.Screw("Screw", *pair, 0.1),
        sp.RevoluteSpherical("RevoluteSpherical", fixed, on_b, 1.0),
        sp.Gear("Gear", "Revolute.angle", "Cylindrical.angle", 2.0),
        sp.Constraint("own", function=lambda t, f, p: f[0].position - f[1].position, a=on_a, b=on_b),
    ]
    forces = [
        sp.Gravity(),
        sp.JointFriction("friction", "Revolute.angle", viscous=0.1),
        sp.JointSpringDamper("coil", "Revolute.angle", 1.0),
        sp.JointSpringDamper("push", "Cylindrical.displacement", 1.0),
        sp.Torque("torque", on_a, (0, 0, 1.0)),
        sp.Bushing("bushing", fixed, on_b, np.ones(6)),
        sp.PlaneContact("contact", sp.ground.at(), on_b, 1e4, 0.05),
    ]
    drivers = [
        sp.Driver("turn", "Revolute.angle", 0.0),
        sp.Driver("pull", "Cylindrical.displacement", 0.0),
        sp.Driver("lift", "a.z", 1.0, prescribes="speed"),
    ]
    mechanism = sp.Mechanism([a, b], joints, forces, drivers)
    geometry = geometry_of(mechanism)
    pieces = pieces_of(geometry)
    for piece in pieces:
        faces = piece.shape(geometry.motion.at(0))
        assert np.isfinite(faces).all(), piece.part
        assert lit(piece, faces, np.array([0.0, 0.0, 1.0])).shape == (len(faces), 4)
    shown = {piece.part for piece in pieces}
    silent = {"gravity", "friction", "Gear"}
    parts = {part.name for part in (*mechanism.joints, *mechanism.forces, *mechanism.drivers)}
    assert shown == (parts - silent) | {"a", "b", "ground"}
    axes = plot.draw(mechanism, at_poses(mechanism), labels=True)
    assert np.isfinite(corners_of(collections(axes)[-1])).all()


# --- animations ---------------------------------------------------------------------------------------------


def drawn(animation: FuncAnimation) -> Axes3D:
    """The axes of an animation, which is marked as drawn: matplotlib warns of those that never are."""
    animation._draw_was_started = True  # pyright: ignore[reportAttributeAccessIssue]
    return animation._fig.axes[0]  # pyright: ignore[reportAttributeAccessIssue]


def test_rates_of_poses_are_their_derivatives(rng: np.random.Generator) -> None:
    mechanism = pendulum()
    q, v = rng.normal(size=(1, 8)), rng.normal(size=(1, 6))
    q[:, 3:7] /= np.linalg.norm(q[:, 3:7])
    expected = mechanism.space.rate(jnp.asarray(q[0, :7]), jnp.asarray(v[0]))
    np.testing.assert_allclose(rates_of(mechanism, np.zeros(1), q, v)[0], np.append(expected, 0.0), atol=1e-12)
    frame = mechanism["O"].b.frame(mechanism.space.place(jnp.asarray(q[0, :7])))
    place = place_of(mechanism, mechanism["O"].b)
    poses = poses_of(mechanism, np.zeros(1), q).at(0)
    np.testing.assert_allclose(place.point(poses), frame.position, atol=1e-12)
    np.testing.assert_allclose(place.axes(poses), frame.rotation, atol=1e-12)


def test_animation_moves_bodies_reactions_paths_and_clock(swing: mbd.Solution) -> None:
    film = plot.animate(swing, reactions=["O"], trace=["tip"], fps=10, azim=-80)
    axes = drawn(film)
    assert axes.azim == -80
    assert list(film.new_frame_seq()) == list(range(6))
    whole, travelled = (line for line in axes.get_children() if isinstance(line, Line3D))
    force, tips = np.asarray(swing.reaction("O").force), np.asarray(swing["tip"])
    limits = np.array([axes.get_xlim(), axes.get_ylim(), axes.get_zlim()])
    for k in (5, 2):
        film._func(k)  # pyright: ignore[reportAttributeAccessIssue]
        corners = corners_of(collections(axes)[-1])
        assert np.linalg.norm(corners - tips[k], axis=1).min() < 0.02
        assert (corners > limits[:, 0]).all()
        assert (corners < limits[:, 1]).all()
        np.testing.assert_allclose(np.array(travelled.get_data_3d())[:, -1], tips[k], atol=1e-6)
        ends = np.linalg.norm(corners, axis=1)
        assert ends.max() > np.linalg.norm(force[k]) / np.linalg.norm(force, axis=1).max() * SHARE
        figure = axes.get_figure(root=True)
        assert figure is not None
        assert figure.texts[0].get_text() == f"$t$ = {0.1 * k:.1f} s"
    np.testing.assert_allclose(np.linalg.norm(np.array(whole.get_data_3d()), axis=0), 1.0, atol=1e-3)
    (key,) = (line for line in axes.get_children() if type(line) is Line2D)
    assert np.ptp(np.asarray(key.get_xdata())) > 0


def test_animation_is_saved_as_gif(swing: mbd.Solution, tmp_path: Path) -> None:
    path = plot.save_animation(plot.animate(swing, fps=10), tmp_path / "swing.gif", dpi=40)
    with Image.open(path) as image:
        assert image.n_frames == 6  # pyright: ignore[reportAttributeAccessIssue]
        assert image.info["duration"] == 100


def test_animate_refuses_what_does_not_fit(swing: mbd.Solution) -> None:
    with pytest.raises(mbd.MechanismError, match=r"no point sensor or body named 'tap'.*Did you mean 'tip'"):
        plot.animate(swing, trace=["tap"])
    with pytest.raises(mbd.MechanismError, match="no joint or driver named 'P'"):
        plot.animate(swing, reactions=["P"])


# --- other pictures -----------------------------------------------------------------------------------------


def test_channels_name_three_components(swing: mbd.Solution) -> None:
    (axes,) = plot.channels(swing, "tip")
    assert [line.get_label() for line in axes.get_lines()] == ["tip.x", "tip.y", "tip.z"]


def test_spy_shows_blocks_of_six(swing: mbd.Solution) -> None:
    axes = plot.spy(swing.mechanism, swing.state(0))
    (image,) = axes.get_images()
    shown = np.asarray(image.get_array())
    assert shown.shape == (11, 11)
    np.testing.assert_array_equal(np.diag(shown)[:6], 3)
    np.testing.assert_array_equal(shown[6:, 6:], 0)
