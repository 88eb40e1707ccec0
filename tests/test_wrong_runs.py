# pyright: reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
"""Assembly, simulation and events with inputs that cannot be right: what is given, and the exact text of the error."""

import diffrax as dfx
import jax
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from tests.wrong_inputs import GRIP, NAN, ROD, TS, Cases, M, S, check_text, motion, pend

pytestmark = pytest.mark.usefixtures("as_a_user_runs_it")

CASES: Cases = {
    "event name": (
        lambda: mbd.Event("a\nb", "rod.x", below=0),
        "A name must be one line without spaces at its ends, got 'a\\nb' for the Event; perhaps 'a_b'.",
    ),
    "Release()": (
        lambda: mbd.Release(),
        "Release() opens nothing: name the events whose latches it opens, Release('catch').",
    ),
    "Release(1)": (
        lambda: mbd.Release(1),
        "Release: each argument must be the name of an event that latches, such as 'catch', got 1.",
    ),
    "Release same latch list": (
        lambda: mbd.Release(["a"]),
        "Release: each argument must be the name of an event that latches, such as 'catch', got ['a'].",
    ),
    "Augmented nan": (
        lambda: mbd.Augmented(NAN, 1),
        "Augmented: alpha must be finite, got nan.",
    ),
    "Augmented neg": (
        lambda: mbd.Augmented(-5, -5),
        "Augmented: alpha must be zero or positive [1/s] and finite, got -5.",
    ),
    "Augmented text": (
        lambda: mbd.Augmented("x"),
        "Augmented: alpha must be a number, got 'x'.",
    ),
    "Stabilized x": (
        lambda: mbd.Stabilized("x"),
        "Stabilized: rate must be a number, got 'x'.",
    ),
    "Stabilized neg": (
        lambda: mbd.Stabilized(-1),
        "Stabilized: rate must be zero or positive [1/s] and finite, got -1.",
    ),
    "Stabilized inf": (
        lambda: mbd.Stabilized(float("inf")),
        "Stabilized: rate must be finite, got inf.",
    ),
    "Stabilized vec": (
        lambda: mbd.Stabilized([1.0, 2.0]),
        "Stabilized: rate must be a number, got shape (2,).",
    ),
    "Projection x": (
        lambda: mbd.Projection("x"),
        "Projection: base must be a formulation such as Augmented(0, 0), got 'x'.",
    ),
    "assemble t nan": (
        lambda: mbd.assemble(M, t=NAN),
        "assemble: t must be finite, got nan.",
    ),
    "assemble t text": (
        lambda: mbd.assemble(M, t="0"),
        "assemble: t must be a number, got '0'.",
    ),
    "assemble t vec": (
        lambda: mbd.assemble(M, t=[0.0, 1.0]),
        "assemble: t must be a number, got shape (2,).",
    ),
    "assemble t none": (
        lambda: mbd.assemble(M, t=None),
        "assemble: t must be a number, got None.",
    ),
    "assemble mech none": (
        lambda: mbd.assemble(None),
        "mechanism must be a Mechanism, such as jaxmbd.planar.Mechanism(bodies, joints), got None.",
    ),
    "assemble mech body": (
        lambda: mbd.assemble(ROD),
        "mechanism must be a Mechanism, such as jaxmbd.planar.Mechanism(bodies, joints), got a Body.",
    ),
    "assemble fixed list": (
        lambda: mbd.assemble(M, ["rod.theta"]),
        "fixed must be a dictionary of values by name, such as {'crank.theta': 0.3}, got ['rod.theta'].",
    ),
    "assemble fixed str": (
        lambda: mbd.assemble(M, "rod.theta"),
        "fixed must be a dictionary of values by name, such as {'crank.theta': 0.3}, got 'rod.theta'.",
    ),
    "assemble fixed state": (
        lambda: mbd.assemble(M, S),
        "fixed must be a dictionary of values by name, such as {'crank.theta': 0.3}, got a State.",
    ),
    "assemble speeds list": (
        lambda: mbd.assemble(M, speeds=[1.0]),
        "speeds must be a dictionary of values by name, such as {'crank.theta': 0.3}, got [1.0].",
    ),
    "assemble guess list": (
        lambda: mbd.assemble(M, guess=[1.0]),
        "guess must be a dictionary of values by name, such as {'crank.theta': 0.3}, got [1.0].",
    ),
    "assemble guess str": (
        lambda: mbd.assemble(M, guess="x"),
        "guess must be a dictionary of values by name, such as {'crank.theta': 0.3}, got 'x'.",
    ),
    "assemble weights list": (
        lambda: mbd.assemble(M, weights=[1.0]),
        "weights must be a dictionary of values by name, such as {'crank.theta': 0.3}, got [1.0].",
    ),
    "assemble fixed intkey": (
        lambda: mbd.assemble(M, {1: 1.0}),
        "The names in fixed must be strings, such as {'crank.theta': 0.3}, got 1.",
    ),
    "assemble fixed dict": (
        lambda: mbd.assemble(M, {"rod.theta": {}}),
        "fixed: 'rod.theta' must be a number, got a dict.",
    ),
    "assemble locked int": (
        lambda: mbd.assemble(M, locked=3),
        "locked must be a sequence of names, such as ['crank.theta'], got 3.",
    ),
    "assemble locked [int]": (
        lambda: mbd.assemble(M, locked=[3]),
        "locked must be a sequence of names, such as ['crank.theta']; 3 is no string.",
    ),
    "sim rtol neg": (
        lambda: mbd.simulate(M, S, TS, rtol=-1e-6),
        "simulate: rtol must be zero or positive [1] and finite, got -1e-06.",
    ),
    "sim atol neg": (
        lambda: mbd.simulate(M, S, TS, atol=-1e-6),
        "simulate: atol must be zero or positive [m or rad] and finite, got -1e-06.",
    ),
    "sim rtol 0": (
        lambda: mbd.simulate(M, S, TS, rtol=0, atol=0),
        "simulate: rtol and atol must not both be zero: no step is small enough for that.",
    ),
    "sim rtol nan": (
        lambda: mbd.simulate(M, S, TS, rtol=NAN),
        "simulate: rtol must be finite, got nan.",
    ),
    "sim rtol text": (
        lambda: mbd.simulate(M, S, TS, rtol="1e-6"),
        "simulate: rtol must be a number, got '1e-6'.",
    ),
    "sim max_steps 0": (
        lambda: mbd.simulate(M, S, TS, max_steps=0),
        "max_steps must be at least 1, got 0.",
    ),
    "sim max_steps -5": (
        lambda: mbd.simulate(M, S, TS, max_steps=-5),
        "max_steps must be at least 1, got -5.",
    ),
    "sim max_steps 1.5": (
        lambda: mbd.simulate(M, S, TS, max_steps=1.5),
        "max_steps must be a whole number, got 1.5.",
    ),
    "sim max_steps text": (
        lambda: mbd.simulate(M, S, TS, max_steps="x"),
        "max_steps must be a whole number, got 'x'.",
    ),
    "sim formulation class": (
        lambda: mbd.simulate(M, S, TS, formulation=mbd.Projection),
        "formulation must be one such as Stabilized(), Augmented(alpha, beta), Projection() or "
        "CoordinatePartitioning(); got the class Projection itself: write Projection(...).",
    ),
    "sim formulation text": (
        lambda: mbd.simulate(M, S, TS, formulation="projection"),
        "formulation must be one such as Stabilized(), Augmented(alpha, beta), Projection() or "
        "CoordinatePartitioning(), got 'projection'.",
    ),
    "sim controller text": (
        lambda: mbd.simulate(M, S, TS, stepsize_controller="pid"),
        "stepsize_controller must be a diffrax step-size controller such as diffrax.PIDController(rtol=1e-8, "
        "atol=1e-10), got 'pid'.",
    ),
    "sim controller class": (
        lambda: mbd.simulate(M, S, TS, stepsize_controller=dfx.PIDController),
        "stepsize_controller must be a diffrax step-size controller such as diffrax.PIDController(rtol=1e-8, "
        "atol=1e-10); got the class PIDController itself: write PIDController(...).",
    ),
    "sim events one": (
        lambda: mbd.simulate(M, S, TS, events=mbd.Event("e", "rod.y", below=-9.0)),
        "events must be a sequence of events, such as [e], got one Event.",
    ),
    "sim events class": (
        lambda: mbd.simulate(M, S, TS, events=mbd.Event),
        "events must be a sequence of events, such as [Event(name, quantity, below=0.0)], got the class Event.",
    ),
    "sim events None": (
        lambda: mbd.simulate(M, S, TS, events=None),
        "events must be a sequence of events, such as [Event(name, quantity, below=0.0)], got None.",
    ),
    "sim max_events 1.5": (
        lambda: mbd.simulate(M, S, TS, events=[mbd.Event("e", "rod.y", below=-9.0)], max_events=1.5),
        "max_events must be a whole number, got 1.5.",
    ),
    "sim accuracy+controller": (
        lambda: mbd.simulate(M, S, TS, accuracy="low", stepsize_controller=dfx.PIDController(1e-6, 1e-6)),
        "accuracy must be 'standard' or 'high', got 'low'.",
    ),
    "sim quadratures vector": (
        lambda: (lambda m: mbd.simulate(m, mbd.assemble(m), TS, quadratures=["P"]))(
            pend(sensors=[pl.Point("P", GRIP)])
        ),
        "quadratures takes scalar quantities, and 'P' has shape (2,).",
    ),
    "sim dt0 text": (
        lambda: mbd.simulate(M, S, TS, dt0="x"),
        "simulate: dt0 must be a number, got 'x'.",
    ),
    "sim dtmin negative": (
        lambda: mbd.simulate(M, S, TS, dtmin=-1e-6),
        "simulate: dtmin must be positive [s] and finite, got -1e-06.",
    ),
    "sim dtmin text": (
        lambda: mbd.simulate(M, S, TS, dtmin="x"),
        "simulate: dtmin must be a number, got 'x'.",
    ),
    "sim dtmin+controller": (
        lambda: mbd.simulate(M, S, TS, stepsize_controller=dfx.PIDController(1e-6, 1e-6), dtmin=1e-6),
        "simulate: dtmin has no effect beside a controller of your own: give the tolerances, the smallest step and the "
        "norm to that.",
    ),
    "sim dt0 vec": (
        lambda: mbd.simulate(M, S, TS, dt0=[0.1, 0.2]),
        "simulate: dt0 must be a number, got shape (2,).",
    ),
    "sim ts text": (
        lambda: mbd.simulate(M, S, "0 1"),
        "ts must be a sequence of at least two times [s], real numbers, got '0 1'.",
    ),
    "sim ts texts": (
        lambda: mbd.simulate(M, S, ["a", "b"]),
        "ts must be a sequence of at least two times [s], real numbers, got ['a', 'b'].",
    ),
    "sim ts complex": (
        lambda: mbd.simulate(M, S, [0, 1j]),
        "ts must be a sequence of at least two times [s], real numbers, got [0, 1j].",
    ),
    "sim mech none": (
        lambda: mbd.simulate(None, S, TS),
        "mechanism must be a Mechanism, such as jaxmbd.planar.Mechanism(bodies, joints), got None.",
    ),
    "sol.state 99": (
        lambda: motion().state(99),
        "solution.state: there are 3 times, numbered from 0 to 2; got 99.",
    ),
    "sol.state -4": (
        lambda: motion().state(-4),
        "solution.state: there are 3 times, numbered from 0 to 2; got -4.",
    ),
    "sol.state text": (
        lambda: motion().state("x"),
        "solution.state: an index must be a whole number, got 'x'.",
    ),
    "sol.state float": (
        lambda: motion().state(1.0),
        "solution.state: an index must be a whole number, got 1.0.",
    ),
    "sol[int]": (
        lambda: motion()[0],
        "A quantity is named by a string, got 0. ",
    ),
    "sol[None]": (
        lambda: motion()[None],
        "A quantity is named by a string, got None. ",
    ),
    "sol reaction int": (
        lambda: motion().reaction(0),
        "A joint or driver is named by a string, got 0. ",
    ),
    "state[int]": (
        lambda: S[0],
        "A coordinate or speed is named by a string, got 0. ",
    ),
    "state, a joint's rate in absolute coordinates": (
        lambda: S["O.angle_rate"],
        "There is no coordinate or speed named 'O.angle_rate'. Known names: 'rod.x', 'rod.y', 'rod.theta', 'rod.vx', "
        "'rod.vy', 'rod.omega'. A state holds these alone; all else is read with the mechanism, which has the lengths: "
        "jaxmbd.read(mechanism, state, 'O.angle_rate').",
    ),
    "assemble check": (
        lambda: mbd.assemble(M, check="no"),
        "assemble: check must be True or False, got 'no'.",
    ),
    "kin throw": (
        lambda: mbd.kinematics(M, TS, throw="no"),
        "kinematics: throw must be True or False, got 'no'.",
    ),
    "sim throw": (
        lambda: mbd.simulate(M, S, TS, throw="no"),
        "simulate: throw must be True or False, got 'no'.",
    ),
    "sim throw traced": (
        lambda: jax.jit(lambda throw: mbd.simulate(M, S, TS, throw=throw).q)(True),
        "simulate: throw must be True or False, got a traced value; name it in static_argnames of jax.jit.",
    ),
    "sim progress": (
        lambda: mbd.simulate(M, S, TS, progress="no"),
        "simulate: progress must be True or False, got 'no'.",
    ),
    "sim control_speeds": (
        lambda: mbd.simulate(M, S, TS, control_speeds=1e-6),
        "simulate: control_speeds must be True or False, got 1e-06.",
    ),
    "sim error weights": (
        lambda: mbd.simulate(M, S, TS, error_weights={"rod.theta": -1.0}),
        "error_weights['rod.theta'] must be a number from 0 (does not count) on, got -1.0.",
    ),
    "sim error weights text": (
        lambda: mbd.simulate(M, S, TS, error_weights={"rod.theta": "small"}),
        "error_weights['rod.theta'] must be a number from 0 (does not count) on, got 'small'.",
    ),
    "sim error weights list": (
        lambda: mbd.simulate(M, S, TS, error_weights=["rod.theta"]),
        "error_weights must be a dictionary of values by name, such as {\"wheel.theta\": 0.0}, got ['rod.theta'].",
    ),
    "sim error weights beside": (
        lambda: mbd.simulate(
            M, S, TS, error_weights={"*.theta": 0.0}, stepsize_controller=dfx.PIDController(rtol=1e-8, atol=1e-10)
        ),
        "simulate: error_weights has no effect beside a controller of your own: give the tolerances, the smallest step "
        "and the norm to that.",
    ),
    "sim closure text": (
        lambda: mbd.simulate(M, S, TS, closure_tolerance="x"),
        "simulate: closure_tolerance must be a number, got 'x'.",
    ),
    "sim closure vec": (
        lambda: mbd.simulate(M, S, TS, closure_tolerance=[1.0, 2.0]),
        "simulate: closure_tolerance must be a number, got shape (2,).",
    ),
    "event of a number": (
        lambda: mbd.Event("e", 3, below=0.0),
        "Event 'e': quantity must be the name of a quantity, such as 'ball.y', or a function of a Snapshot, got 3.",
    ),
    "event of nothing": (
        lambda: mbd.Event("e", None, below=0.0),
        "Event 'e': quantity must be the name of a quantity, such as 'ball.y', or a function of a Snapshot, got None.",
    ),
    "bounce along a number": (
        lambda: mbd.Bounce(0.5, 3),
        "Bounce: coordinate must be the name of a quantity, such as 'ball.y', or a function of a Snapshot, got 3.",
    ),
    "latch of a number": (
        lambda: mbd.Latch(3),
        "Latch: coordinate must be the name of a quantity, such as 'ball.y', or a function of a Snapshot, got 3.",
    ),
    "switch of a number": (
        lambda: mbd.Switch(3, on=False),
        "Switch: force must be the name of a force, such as 'motor', got 3.",
    ),
    "switch on": (
        lambda: mbd.Switch("motor", on="no"),
        "Switch: on must be True or False, got 'no'.",
    ),
    "change where": (
        lambda: mbd.Change(1.0, 2.0),
        "Change: where must be the name of a number, such as 'spring.stiffness', or a function that picks one, got "
        "1.0.",
    ),
    "change value": (
        lambda: mbd.Change(lambda m: m["spring"].stiffness, None),
        "Change: value must be a number, got None.",
    ),
    "read None": (
        lambda: mbd.read(M, S, None),
        "read: names must be a sequence of names, such as ['rod.position'], got None.",
    ),
    "read int": (
        lambda: mbd.read(M, S, [3]),
        "read: names must be a sequence of names, such as ['rod.position']; 3 is no string.",
    ),
    "sim quadratures str": (
        lambda: mbd.simulate(M, S, TS, quadratures="energy"),
        "quadratures must be a sequence of names, such as ['energy'], got 'energy'.",
    ),
    "sol read str": (
        lambda: motion().read("rod.theta"),
        "names must be a sequence of names, such as ['rod.theta'], got 'rod.theta'.",
    ),
    "sim max_events 0": (
        lambda: mbd.simulate(M, S, TS, events=[mbd.Event("e", "rod.y", below=-9.0)], max_events=0),
        "max_events must be at least 1, got 0.",
    ),
    "sim rtol+controller": (
        lambda: mbd.simulate(M, S, TS, stepsize_controller=dfx.PIDController(1e-6, 1e-6), rtol=1e-3),
        "simulate: rtol has no effect beside a controller of your own: give the tolerances, the smallest step and the "
        "norm to that.",
    ),
    "partition [int]": (
        lambda: mbd.CoordinatePartitioning([1]),
        "independent must be a sequence of names, such as ['O.angle']; 1 is no string.",
    ),
    "sim mech state swapped": (
        lambda: mbd.simulate(S, M, TS),
        "mechanism must be a Mechanism, such as jaxmbd.planar.Mechanism(bodies, joints), got a State.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_text(case: str) -> None:
    check_text(*CASES[case])
