"""Synthesis of linkages: the benchmarks of the literature, tasks with known answers, and defects."""

import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.optimal_design import _synthesis, crank_margins
from jaxmbd.optimal_design._defects import defect_of, trace
from tests.optimal_design.linkages import four_bar

LINE = [[20.0, y] for y in (20.0, 25.0, 30.0, 35.0, 40.0, 45.0)]
CLOSED = [
    [20.0, 10.0], [17.66, 15.142], [11.736, 17.878], [5.0, 16.928], [0.60307, 12.736], [0.60307, 7.2638],
    [5.0, 3.0718], [11.736, 2.1215], [17.66, 4.8577], [20.0, 10.0],
]  # fmt: skip
# Sums of squares of the distances, computed again from published dimensions in their digits.
PUBLISHED_LINE = 2.06e-4  # Cabrera, Ortiz, Nadal, Castillo, Mech. Mach. Theory 46 (2011), "MUMSA"
PUBLISHED_CLOSED = 4.0199e-4  # the best of the four that Nguyen-Van, Gwak, Symmetry 14 (2022) 381 compare with
TURNING = [2.0, 0.5, 1.5, 1.2]  # a crank and rocker
ROCKING = [2.0, 1.2, 0.7, 0.9]  # its input cannot turn round


def path_four_bar(values: dict[str, Any]) -> pl.Mechanism:
    """The four-bar of the benchmarks: crank pin at `(x0, y0)`, ground link at the angle `t0`, coupler point `P`."""
    bodies = [pl.Body(name, mass=1.0, inertia=1.0) for name in ("crank", "coupler", "rocker")]
    crank, coupler, rocker = bodies
    x0, y0, t0, ground = (values[name] for name in ("x0", "y0", "t0", "r1"))
    pins = [
        pl.Revolute("A", pl.ground.at(x0, y0), crank.at()),
        pl.Revolute("B", crank.at(values["r2"], 0.0), coupler.at()),
        pl.Revolute("C", coupler.at(values["r3"], 0.0), rocker.at(values["r4"], 0.0)),
        pl.Revolute("D", pl.ground.at(x0 + ground * jnp.cos(t0), y0 + ground * jnp.sin(t0)), rocker.at()),
    ]
    sensors = [pl.Point("P", coupler.at(values["rx"], values["ry"]))]
    return pl.Mechanism(bodies, pins, sensors=sensors, coordinates="joint")


def within(limit: float) -> dict[str, tuple[float, float]]:
    """The ranges of the benchmarks: lengths up to a limit."""
    lengths = dict.fromkeys(("r1", "r2", "r3", "r4"), (0.01, limit))
    return {**lengths, **dict.fromkeys(("rx", "ry", "x0", "y0"), (-limit, limit)), "t0": (0.0, 2 * np.pi)}


def margins(mechanism: pl.Mechanism) -> Array:
    """Grashof's condition from the markers."""
    markers = {name: [m.position for m in mechanism[name].markers] for name in "ABCD"}
    ground = jnp.linalg.norm(markers["D"][0] - markers["A"][0])
    return crank_margins(ground, markers["B"][0][0], markers["C"][0][0], markers["C"][1][0])


def turns(margin: float) -> dict[str, mbd.Limit]:
    return {"Grashof": mbd.Limit(margins, lower=margin, scale=10.0)}


def check_path(found: mbd.Synthesis, points: Any) -> None:
    """The result is what assembling the mechanism at the reported inputs gives, in one assembly mode."""
    assert found.is_successful
    assert found.defect == ""
    reached = []
    guess = dict(zip(mbd.assemble(found.mechanism, check=False).coordinate_names, found.q[0], strict=True))
    for angle, q in zip(found.input, found.q, strict=True):
        guess = dict(zip(guess, q, strict=True))
        state = mbd.assemble(found.mechanism, {"crank.theta": float(angle)}, guess=guess)
        reached.append(np.asarray(mbd.read(found.mechanism, state, "P")))
    np.testing.assert_allclose(reached, found.followed["P"], atol=1e-7)
    assert np.sum((np.array(reached) - points) ** 2) == pytest.approx(found.error, rel=1e-3, abs=1e-12)


@pytest.mark.slow
def test_six_points_on_a_straight_line() -> None:
    """Case 1 of Cabrera, Simon, Prado, Mech. Mach. Theory 37 (2002): the crank turns round, no timing. Twelve
    equations for fifteen unknowns: there are exact solutions."""
    found = mbd.synthesise(
        path_four_bar, within(60.0), {"P": LINE}, input="crank.theta", full_turn=True, constraints=turns(0.05),
        starts=64, progress=False,
    )  # fmt: skip
    check_path(found, LINE)
    assert found.error < 1e-20 < PUBLISHED_LINE


@pytest.mark.slow
def test_ten_points_on_a_closed_curve() -> None:
    """Kunjur, Krishnamurty (1997); Acharyya, Mandal, Mech. Mach. Theory 44 (2009): an ellipse, no timing."""
    found = mbd.synthesise(
        path_four_bar, within(80.0), {"P": CLOSED}, input="crank.theta", full_turn=True, constraints=turns(0.05),
        starts=256, seed=3, progress=False,
    )  # fmt: skip
    check_path(found, CLOSED)
    assert found.error < 1.0001 * PUBLISHED_CLOSED
    assert "r1 (upper)" in found.active_bounds  # as in the literature


def positions_of(lengths: list[float], angles: Any, first: float = 1.5, coordinates: str = "joint") -> Array:
    """The coordinates of a four-bar at crank angles, each near the one before."""
    mechanism, guess, found = four_bar(lengths, coordinates), {"rocker.theta": first}, []
    state = mbd.assemble(mechanism, {"crank.theta": angles[0]}, guess=guess)
    for angle in angles:
        state = mbd.assemble(mechanism, {"crank.theta": angle}, guess=state)
        found.append(state.q)
    return jnp.stack(found)


def test_circuit_of_a_crank_rocker_is_closed_and_has_no_dead_points() -> None:
    q = positions_of(TURNING, [0.3])
    circuit = trace(four_bar(TURNING), q[0], 2.0, "crank.theta")
    assert circuit.is_closed
    assert len(set(np.sign(circuit.drive))) == 1
    rocking = trace(four_bar(ROCKING), positions_of(ROCKING, [0.3])[0], 2.0, "crank.theta")
    assert rocking.is_closed
    assert np.sum(np.sign(rocking.drive) != np.sign(np.roll(rocking.drive, 1))) == 2  # the ends of its swing


def test_defects_are_named() -> None:
    mechanism, size = four_bar(TURNING), 2.0
    ahead = positions_of(TURNING, [0.3, 0.9, 1.6, 2.5])
    other = positions_of(TURNING, [0.9], first=-1.5)  # the other way to assemble it

    def defect(q: Any, full_turn: bool = False) -> str:
        return defect_of(mechanism, q, size, "crank.theta", full_turn)

    assert defect(ahead) == ""
    assert defect(ahead[::-1]) == ""  # the crank turns the other way
    assert defect(jnp.roll(ahead, 1, axis=0)) == ""  # from the last one, round, to the first
    assert defect(ahead, full_turn=True) == ""
    assert defect(ahead[jnp.array([0, 2, 1, 3])]) == "order defect"
    assert defect(jnp.concatenate([ahead[:1], other, ahead[2:]])) == "circuit defect"


def test_defects_of_a_linkage_that_rocks() -> None:
    """Both ways to assemble it lie on one circuit, on two branches between which the crank stands still."""
    mechanism = four_bar(ROCKING)
    up, down = positions_of(ROCKING, [0.2, 0.3, 0.4]), positions_of(ROCKING, [0.3], first=-1.5)
    assert defect_of(mechanism, up, 2.0, "crank.theta") == ""
    assert defect_of(mechanism, jnp.concatenate([up[:1], down, up[2:]]), 2.0, "crank.theta") == "branch defect"
    assert defect_of(mechanism, up[jnp.array([0, 2, 1])], 2.0, "crank.theta") == "order defect"
    assert defect_of(mechanism, up, 2.0, "crank.theta", full_turn=True) == "no full turn"


def test_a_circuit_that_does_not_return_decides_little() -> None:
    """A block on an endless rail, followed to one side: what lies on the other side is on no circuit that is known."""
    block = pl.Body("block", mass=1.0, inertia=1.0)
    rail = pl.Mechanism([block], [pl.Prismatic("rail", pl.ground.at(), block.at())])
    ahead = jnp.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    assert not trace(rail, ahead[0], 1.0, "block.x").is_closed
    assert defect_of(rail, ahead, 1.0, "block.x") == ""
    assert defect_of(rail, -ahead, 1.0, "block.x") == "not traced"
    assert defect_of(rail, ahead[jnp.array([0, 2, 1])], 1.0, "block.x") == "not traced"
    assert defect_of(rail, ahead, 1.0, "block.x", full_turn=True) == "not traced"


LENGTHS = {"crank": (0.2, 1.0), "coupler": (0.8, 2.0), "rocker": (0.8, 2.0)}


def of_lengths(values: dict[str, Any]) -> pl.Mechanism:
    return four_bar([2.0, values["crank"], values["coupler"], values["rocker"]])


def test_function_generation_finds_the_linkage_that_made_the_values() -> None:
    """Rocker angles of a known four-bar at prescribed crank angles: three lengths are found again."""
    angles = np.linspace(0.4, 2.4, 7)
    q = positions_of(TURNING, angles)
    rocker = [
        mbd.read(four_bar(TURNING), mbd.assemble(four_bar(TURNING), {"crank.theta": a}), "rocker.theta") for a in angles
    ]
    found = mbd.synthesise(
        of_lengths, LENGTHS, {"rocker.theta": rocker}, input="crank.theta", timing=angles, starts=16, progress=False
    )
    assert found.is_successful
    assert found.error < 1e-16
    np.testing.assert_allclose(found.numbers, [1.5, 0.5, 1.2], rtol=1e-6)  # coupler, crank, rocker
    np.testing.assert_allclose(found.input, angles, atol=1e-9)
    assert len(q) == len(found.q)


@pytest.mark.slow
def test_function_generation_with_free_zeros() -> None:
    """`y = log₁₀ x` for 1 ≤ x ≤ 2 over 60° of crank and 90° of rocker, both zeros free, at Chebyshev's positions: an
    example of the textbooks (Erdman, Sandor, Kota 2001). Three positions and five unknowns: met exactly."""
    share = 0.5 - 0.5 * np.cos(np.pi * (2 * np.arange(3) + 1) / 6)
    outputs = np.log10(1 + share) / np.log10(2.0)
    found = mbd.synthesise(
        of_lengths, dict.fromkeys(LENGTHS, (0.2, 4.0)), {"rocker.theta": np.pi / 2 * outputs},
        input="crank.theta", timing=np.pi / 3 * share, free_zeros=("crank.theta", "rocker.theta"), starts=16,
        progress=False,
    )  # fmt: skip
    assert found.is_successful
    assert found.error < 1e-18
    expected = found.free_zeros["crank.theta"] + np.pi / 3 * share
    np.testing.assert_allclose(found.input, expected, atol=1e-8)
    np.testing.assert_allclose(np.diff(found.followed["rocker.theta"]), np.pi / 2 * np.diff(outputs), atol=1e-8)


def guided(values: dict[str, Any]) -> pl.Mechanism:
    """A four-bar that guides its coupler; the pins at the ground and on the coupler are free."""
    crank = pl.Body("crank", mass=1.0, inertia=1.0)
    coupler = pl.Body("coupler", mass=1.0, inertia=1.0, pose=(0.0, 1.0, 0.0))
    rocker = pl.Body("rocker", mass=1.0, inertia=1.0, pose=(2.0, 0.0, 0.0))
    a, b, c, d = (values[name] for name in "abcd")
    pins = [
        pl.Revolute("A", pl.ground.at(a[0], a[1]), crank.at()),
        pl.Revolute("B", crank.at(values["crank"], 0.0), coupler.at(b[0], b[1])),
        pl.Revolute("C", coupler.at(c[0], c[1]), rocker.at(values["rocker"], 0.0)),
        pl.Revolute("D", pl.ground.at(d[0], d[1]), rocker.at()),
    ]
    return pl.Mechanism([crank, coupler, rocker], pins, coordinates="joint")


def test_motion_generation_through_three_poses() -> None:
    """Three positions of the coupler can be met exactly by a four-bar (Burmester's theory; Erdman, Sandor, Kota)."""
    poses = [[0.0, 1.0, 0.0], [0.4, 1.2, 0.3], [0.9, 1.1, 0.7]]
    pin = mbd.identification.Parameter(start=jnp.zeros(2), within=mbd.identification.Bounded(-3.0, 3.0))
    found = mbd.synthesise(
        guided, {**dict.fromkeys("abcd", pin), "crank": (0.3, 3.0), "rocker": (0.3, 3.0)}, {"coupler": poses},
        input="A.angle", starts=24, progress=False,
    )  # fmt: skip
    assert found.is_successful
    assert found.error < 1e-18
    np.testing.assert_allclose(found.followed["coupler"], poses, atol=1e-8)


def test_an_interrupt_returns_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, whole = [], _synthesis.rounds

    def interrupted(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(*arguments, **options)

    monkeypatch.setattr(_synthesis, "rounds", interrupted)
    angles = np.linspace(0.4, 2.4, 4)
    found = mbd.synthesise(
        of_lengths, LENGTHS, {"rocker.theta": [1.9, 1.95, 2.1, 2.4]}, input="crank.theta", timing=angles, starts=8,
        progress=False,
    )  # fmt: skip
    assert found.outcome == "interrupted"
    assert len(found.candidates) == 8
    assert np.isfinite(found.error)


def test_input_that_is_wrong_is_named() -> None:
    def refused(text: str, **changed: Any) -> None:
        given = {"mechanism": path_four_bar, "variables": within(60.0), "follow": {"P": LINE}, "input": "crank.theta"}
        with pytest.raises(mbd.MechanismError, match=re.escape(text)):
            mbd.synthesise(**{**given, **changed}, progress=False)

    refused("'Q'", follow={"Q": LINE})
    refused("shape ('positions', 2)", follow={"P": [[1.0, 2.0, 3.0]] * 3})
    refused("two positions or more", follow={"P": LINE[:1]})
    refused("as many positions for each name", follow={"P": LINE, "rocker.theta": [0.0, 1.0]})
    refused("follow must name at least one reading", follow={})
    refused("'thta'", input="crank.thta")
    refused("timing", timing=[1.0, 2.0])
    refused("free zero", free_zeros=("P",))

    def loose(values: dict[str, Any]) -> pl.Mechanism:
        whole = path_four_bar(values)
        return pl.Mechanism(whole.bodies, whole.joints[:3], sensors=whole.sensors)

    refused("the mechanism has 3 degrees of freedom", mechanism=loose)
