# pyright: reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
"""The other analyses with inputs that cannot be right: what is given, and the exact text of the error."""

from typing import Any

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import identification as ident
from jaxmbd import plot
from tests.wrong_inputs import NAN, TS, Cases, M, S, check_text, motion

pytestmark = pytest.mark.usefixtures("as_a_user_runs_it")

EX = mbd.Experiment(TS, {"rod.theta": TS})


def problem(**options: Any) -> ident.Problem:
    return ident.Problem(M, EX, {"k": lambda m: m["rod"].mass}, **options)


CASES: Cases = {
    "complex fixed": (
        lambda: mbd.assemble(M, {"rod.theta": 1j}),
        "fixed: 'rod.theta' must be a real number, got 1j.",
    ),
    "export alpha": (
        lambda: mbd.export(M, alpha="x"),
        "export: alpha must be a number, got 'x'.",
    ),
    "export beta nan": (
        lambda: mbd.export(M, beta=NAN),
        "export: beta must be finite, got nan.",
    ),
    "export None": (
        lambda: mbd.export(None),
        "mechanism must be a Mechanism, such as jaxmbd.planar.Mechanism(bodies, joints), got None.",
    ),
    "export at None": (
        lambda: mbd.export(M).at(None),
        "state must be a State from jaxmbd.assemble(mechanism, ...), got NoneType.",
    ),
    "export with_params len": (
        lambda: mbd.export(M).with_parameters([lambda m: m["rod"].mass], [1.0, 2.0]),
        "with_parameters needs one value for each place, got 1 and 2.",
    ),
    "fit None None": (
        lambda: mbd.fit(M, None, None),
        "fit: experiments must be an Experiment or a sequence of them, got None.",
    ),
    "fit None": (
        lambda: mbd.fit(M, None, {"k": lambda m: m["rod"].mass}),
        "fit: experiments must be an Experiment or a sequence of them, got None.",
    ),
    "fit array without axes": (
        lambda: mbd.fit(M, np.array(3.0), {"k": lambda m: m["rod"].mass}),
        "fit: experiments must be an Experiment or a sequence of them, got a ndarray.",
    ),
    "fit free fn": (
        lambda: mbd.fit(M, EX, lambda m: m["rod"].mass, progress=False),
        "free must be a dictionary of values by name, such as {'k': 'spring.stiffness'}, got a function.",
    ),
    "fit free number": (
        lambda: mbd.fit(M, EX, {"k": 1.0}, progress=False),
        "Free parameter 'k' must be a name such as 'spring.stiffness', a function such as lambda m: "
        "m['spring'].stiffness, or Parameter(...), got 1.0.",
    ),
    "fit free str": (
        lambda: mbd.fit(M, EX, {"k": "rod.mas"}, progress=False),
        "There is no number of a part named 'rod.mas'. Did you mean 'rod.mass'? ",
    ),
    "fit steps 0": (
        lambda: mbd.fit(M, EX, {"k": lambda m: m["rod"].mass}, steps=0, progress=False),
        "fit: steps must be at least 1, got 0.",
    ),
    "fit steps -1": (
        lambda: mbd.fit(M, EX, {"k": lambda m: m["rod"].mass}, steps=-1, progress=False),
        "fit: steps must be at least 1, got -1.",
    ),
    "fit tol nan": (
        lambda: mbd.fit(M, EX, {"k": lambda m: m["rod"].mass}, tolerance=NAN, progress=False),
        "fit: tolerance must be zero or positive [1] and finite, got nan.",
    ),
    "fit tol neg": (
        lambda: mbd.fit(M, EX, {"k": lambda m: m["rod"].mass}, tolerance=-1, progress=False),
        "fit: tolerance must be zero or positive [1] and finite, got -1.",
    ),
    "fit optimiser": (
        lambda: mbd.fit(M, EX, {"k": lambda m: m["rod"].mass}, optimiser="adam", progress=False),
        "fit: optimiser must be an optax optimiser, optax.adam(1e-2), got 'adam'.",
    ),
    "fit within": (
        lambda: mbd.identification.Parameter(lambda m: m["rod"].mass, within="positive"),
        "Parameter: within must be a range, Unbounded(), Positive(), Bounded(lower, upper) or Box(lower, upper), got "
        "'positive'.",
    ),
    "fit within class": (
        lambda: mbd.identification.Parameter(lambda m: m["rod"].mass, within=mbd.identification.Positive),
        "Parameter: within must be a range, Unbounded(), Positive(), Bounded(lower, upper) or Box(lower, upper); got "
        "the class Positive itself: write Positive(...).",
    ),
    "fit Parameter where number": (
        lambda: mbd.identification.Parameter(1.0),
        "Parameter: where must be a name such as 'spring.stiffness', or a function such as lambda m: "
        "m['spring'].stiffness, got 1.0; a value to begin with is start=...",
    ),
    "fit Bounded": (
        lambda: mbd.identification.Bounded(2.0, 1.0),
        "Bounded: lower must be below upper, got 2.0 and 1.0.",
    ),
    "fit Bounded nan": (
        lambda: mbd.identification.Bounded(NAN, 1.0),
        "Bounded: lower must be finite, got nan.",
    ),
    "exp data list": (
        lambda: mbd.Experiment(TS, [1, 2, 3]),
        "Experiment: data must be a dictionary of values by name, such as {'arm.theta': values}, got [1, 2, 3].",
    ),
    "exp data None": (
        lambda: mbd.Experiment(TS, None),
        "An experiment needs at least one measured channel in data, got None.",
    ),
    "exp data text": (
        lambda: mbd.Experiment(TS, {"a": "x"}),
        "Channel 'a' must be numbers, got 'x'.",
    ),
    "exp start list": (
        lambda: mbd.Experiment(TS, {"a": TS}, start=[1.0]),
        "Experiment: start must be a dictionary of values by name, such as {'O.angle': 0.1}, got [1.0].",
    ),
    "exp sigma 0": (
        lambda: mbd.Experiment(TS, {"a": TS}, sigma=0.0),
        "Experiment: sigma of: 'a' must be positive [the channel's unit] and finite, got 0.",
    ),
    "exp sigma neg": (
        lambda: mbd.Experiment(TS, {"a": TS}, sigma=-1.0),
        "Experiment: sigma of: 'a' must be positive [the channel's unit] and finite, got -1.",
    ),
    "exp sigma unknown": (
        lambda: mbd.Experiment(TS, {"a": TS}, sigma={"b": 1.0}),
        "There is no measured channel for sigma named 'b'. ",
    ),
    "exp sigma for some": (
        lambda: mbd.Experiment(TS, {"a": TS, "b": TS}, sigma={"a": 1.0}),
        "Experiment: sigma must give a level for each measured channel; 'b' has none.",
    ),
    "kin, the order of simulate": (
        lambda: mbd.kinematics(M, S, TS),
        "state must be a State from jaxmbd.assemble(mechanism, ...), got ndarray. "
        "The order is kinematics(mechanism, ts, state).",
    ),
    "sim, the order of kinematics": (
        lambda: mbd.simulate(M, TS, S),
        "state must be a State from jaxmbd.assemble(mechanism, ...), got ndarray. "
        "The order is simulate(mechanism, state, ts).",
    ),
    "kin ts None": (
        lambda: mbd.kinematics(M, None),
        "ts must be a sequence of at least two times [s], such as jnp.linspace(0.0, 2.0, 201), got None.",
    ),
    "kin ts empty": (
        lambda: mbd.kinematics(M, []),
        "ts must be a sequence of at least two times [s], such as jnp.linspace(0.0, 2.0, 201), got [].",
    ),
    "kin ts number": (
        lambda: mbd.kinematics(M, 1.0),
        "ts must be a sequence of at least two times [s], such as jnp.linspace(0.0, 2.0, 201), got 1.0.",
    ),
    "kin mech": (
        lambda: mbd.kinematics(TS, M),
        "mechanism must be a Mechanism, such as jaxmbd.planar.Mechanism(bodies, joints), got a ndarray.",
    ),
    "inv motion None": (
        lambda: mbd.inverse_dynamics(M, None),
        "motion must be times [s] at which drivers prescribe the motion, a MeasuredMotion, or a Solution of "
        "kinematics or simulate, got None.",
    ),
    "inv motion state": (
        lambda: mbd.inverse_dynamics(M, S),
        "motion must be times [s] at which drivers prescribe the motion, a MeasuredMotion, or a Solution of "
        "kinematics or simulate, got a State.",
    ),
    "inv actuators list": (
        lambda: mbd.inverse_dynamics(M, motion(), ["O.angle"]),
        "actuators must be a dictionary of values by name, such as {'motor': 'O.angle'}, got ['O.angle'].",
    ),
    "inv actuators str": (
        lambda: mbd.inverse_dynamics(M, motion(), "O.angle"),
        "actuators must be a dictionary of values by name, such as {'motor': 'O.angle'}, got 'O.angle'.",
    ),
    "inv weights list": (
        lambda: mbd.inverse_dynamics(M, motion(), {"m": "O.angle"}, weights=[1.0]),
        "weights must be a dictionary of values by name, such as {'motor': 2.0}, got [1.0].",
    ),
    "inv weights text": (
        lambda: mbd.inverse_dynamics(M, motion(), {"m": "O.angle"}, weights={"m": "x"}),
        "weights: 'm' must be a number, got 'x'.",
    ),
    "eq guess list": (
        lambda: mbd.equilibrium(M, [1.0]),
        "guess must be a dictionary of values by name, such as {'crank.theta': 0.3}, got [1.0].",
    ),
    "eq fixed list": (
        lambda: mbd.equilibrium(M, fixed=[1.0]),
        "fixed must be a dictionary of values by name, such as {'O.angle': 0.3}, got [1.0].",
    ),
    "eq t nan": (
        lambda: mbd.equilibrium(M, t=NAN),
        "equilibrium: t must be finite, got nan.",
    ),
    "path values None": (
        lambda: mbd.equilibrium_path(M, lambda m: m["rod"].mass, None),
        "values must be a sequence of at least two numbers, got None.",
    ),
    "path at": (
        lambda: mbd.equilibrium_path(M, lambda m: m["rod"].mass, [1.0, 2.0]).at(99),
        "path.at: there are 2 points, numbered from 0 to 1; got 99.",
    ),
    "lin inputs None": (
        lambda: mbd.linearize(M, S, inputs=None),
        "inputs must be a sequence of inputs, such as ['motor.effort'], got None.",
    ),
    "lin outputs int": (
        lambda: mbd.linearize(M, S, outputs=[3]),
        "outputs must be a sequence of names, such as ['rod.theta']; 3 is no string.",
    ),
    "lin independent int": (
        lambda: mbd.linearize(M, S, independent=3),
        "independent must be a sequence of names, such as ['O.angle'], got 3.",
    ),
    "stiffness None": (
        lambda: mbd.time_scales(M, None),
        "state must be a State from jaxmbd.assemble(mechanism, ...), got NoneType.",
    ),
    "redundancy None": (
        lambda: mbd.redundancy(M, None),
        "state must be a State from jaxmbd.assemble(mechanism, ...), got NoneType.",
    ),
    "describe state": (
        lambda: mbd.describe(M, 3),
        "state must be a State from jaxmbd.assemble(mechanism, ...), got int.",
    ),
    "describe None": (
        lambda: mbd.describe(None),
        "mechanism must be a Mechanism, such as jaxmbd.planar.Mechanism(bodies, joints), got None.",
    ),
    "closures seed": (
        lambda: mbd.assembly_modes(M, seed="x"),
        "seed must be a whole number, got 'x'.",
    ),
    "closures locked": (
        lambda: mbd.assembly_modes(M, locked=3),
        "locked must be a sequence of names, such as ['crank.theta'], got 3.",
    ),
    "Free start text": (
        lambda: mbd.identification.Parameter(start="x"),
        "Parameter: start must be a number, got 'x'.",
    ),
    "Free start nan": (
        lambda: mbd.identification.Parameter(start=NAN),
        "Parameter: start must be finite, got nan.",
    ),
    "plot draw None": (
        lambda: plot.draw(None, None),
        "mechanism must be a Mechanism, such as jaxmbd.planar.Mechanism(bodies, joints), got None.",
    ),
    "closures tries x": (
        lambda: mbd.assembly_modes(M, tries="x"),
        "tries must be a whole number, got 'x'.",
    ),
    "closures fixed": (
        lambda: mbd.assembly_modes(M, ["x"]),
        "fixed must be a dictionary of values by name, such as {'crank.theta': 0.3}, got ['x'].",
    ),
    "example int": (
        lambda: mbd.examples.get(1),
        "An example is named by a string, got 1. ",
    ),
    "Equations": (
        lambda: mbd.Equations(None),
        "mechanism must be a Mechanism, such as jaxmbd.planar.Mechanism(bodies, joints), got None.",
    ),
    "plot draw": (
        lambda: plot.draw(M, motion()),
        "q must be a State or coordinates, such as solution.q[-1], got Solution.",
    ),
    "path computed": (
        lambda: mbd.equilibrium_path(M, lambda m: 2 * m["rod"].mass, [1.0, 2.0]),
        "equilibrium_path: along points at f64[], which is not a number of the mechanism: it has been computed, or "
        "taken out of an array. One number of an array has a name, such as 'O.b.position[0]'. In fits and designs, a "
        "function that builds the mechanism may compute numbers.",
    ),
    "lin response": (
        lambda: mbd.linearize(M, S, ["O.angle"], ["rod.x"]).response("x"),
        "omega must be a number or a sequence of real numbers, got 'x'.",
    ),
    "lin step": (
        lambda: mbd.linearize(M, S, ["O.angle"], ["rod.x"]).step(None),
        "ts must be a number or a sequence of real numbers, got None.",
    ),
    "sym": (
        lambda: mbd.SymbolicSystem(M),
        "system must be a System, export(mechanism), got a Mechanism.",
    ),
    "sym None": (
        lambda: mbd.SymbolicSystem(None),
        "system must be a System, export(mechanism), got None.",
    ),
    "plot channels None": (
        lambda: plot.channels(motion(), None),
        "names must be a sequence of names, such as ['rod.theta'], got None.",
    ),
    "plot animate M": (
        lambda: plot.animate(M),
        "solution must be a Solution of simulate or kinematics, got a Mechanism.",
    ),
    "plot modes M": (
        lambda: plot.modes(M, 0),
        "system must be a LinearSystem, linearize(mechanism, state), got a Mechanism.",
    ),
    "plot bode M": (
        lambda: plot.bode(M),
        "system must be a LinearSystem, linearize(mechanism, state, inputs, outputs), got a Mechanism.",
    ),
    "plot animate text": (
        lambda: plot.animate(motion(), fps="x"),
        "fps must be a number, got 'x'.",
    ),
    "exp estimate str": (
        lambda: mbd.Experiment(TS, {"a": TS}, start={"O.angle": 0.0}, estimate="O.angle"),
        "Experiment: estimate must be a sequence of names, such as ['O.angle'], got 'O.angle'.",
    ),
    "exp start nan": (
        lambda: mbd.Experiment(TS, {"a": TS}, start={"O.angle": NAN}),
        "Experiment: 'O.angle' must be finite, got nan.",
    ),
    "exp start text": (
        lambda: mbd.Experiment(TS, {"a": TS}, start={"O.angle": "x"}),
        "Experiment: 'O.angle' must be a number, got 'x'.",
    ),
    "inv weights nan": (
        lambda: mbd.inverse_dynamics(M, motion(), {"m": "O.angle"}, weights={"m": NAN}),
        "weights: 'm' must be finite, got nan.",
    ),
    "fit mech None": (
        lambda: mbd.fit(None, EX, {"k": lambda m: m["rod"].mass}, progress=False),
        "fit: mechanism must be a Mechanism, or a function from parameters to one, got NoneType.",
    ),
    "path points 0": (
        lambda: mbd.equilibrium_path(M, lambda m: m["rod"].mass, [1.0, 2.0], points=0),
        "points must be at least 2, got 0.",
    ),
    "path step neg": (
        lambda: mbd.equilibrium_path(M, lambda m: m["rod"].mass, [1.0, 2.0], points=5, step=-1.0),
        "equilibrium_path: step must be positive [1] and finite, got -1.",
    ),
    "path step nan": (
        lambda: mbd.equilibrium_path(M, lambda m: m["rod"].mass, [1.0, 2.0], points=5, step=NAN),
        "equilibrium_path: step must be finite, got nan.",
    ),
    "fit where tuple idx": (
        lambda: mbd.fit(M, EX, {"k": lambda m: m["rod"].pose[0]}, progress=False),
        "Free parameter 'k' points at f64[], which is not a number of the mechanism: it has been computed, or taken "
        "out of an array. One number of an array has a name, such as 'O.b.position[0]'. In fits and designs, a "
        "function that builds the mechanism may compute numbers.",
    ),
    "fit out of range": (
        lambda: mbd.fit(
            M,
            EX,
            {"k": mbd.identification.Parameter(lambda m: m["rod"].mass, within=mbd.identification.Bounded(2.0, 3.0))},
            progress=False,
        ),
        "Free parameter 'k' starts at 1.0, outside its range Bounded(2, 3).",
    ),
    "fit formulation": (
        lambda: mbd.fit(M, EX, {"k": lambda m: m["rod"].mass}, formulation="x", progress=False),
        "formulation must be one such as Stabilized(), Augmented(alpha, beta), Projection() or "
        "CoordinatePartitioning(), got 'x'.",
    ),
    "fit one number twice": (
        lambda: mbd.fit(M, EX, {"k": lambda m: m["rod"].mass, "l": lambda m: m["rod"].mass}, progress=False),
        "'k' and 'l' are the same number of the mechanism: leave one of them out.",
    ),
    "fit start shape": (
        lambda: mbd.fit(M, EX, {"k": ident.Parameter(lambda m: m["rod"].mass, start=[1.0, 2.0])}, progress=False),
        "Free parameter 'k': the start is f64[2], but it must be like f64[].",
    ),
    "fit channel shape": (
        lambda: mbd.fit(
            M, mbd.Experiment(TS, {"rod.theta": np.zeros((3, 2))}), {"k": lambda m: m["rod"].mass}, progress=False
        ),
        "Channel 'rod.theta' must have the shape (3,), as in the model, got (3, 2).",
    ),
    "fit all missing": (
        lambda: ident.Problem(
            M, mbd.Experiment(TS, {"rod.theta": np.full(3, NAN)}, missing=True), {"k": lambda m: m["rod"].mass}
        ),
        "fit: all samples of all experiments are missing: there is nothing to fit.",
    ),
    "fit loss_scale": (
        lambda: problem(loss_scale="a"),
        "Problem: loss_scale must be a number, got 'a'.",
    ),
    "fit events": (
        lambda: problem(events=3),
        "events must be a sequence of events, such as [Event(name, quantity, below=0.0)], got 3.",
    ),
    "fit rtol": (
        lambda: problem(rtol="a"),
        "simulate: rtol must be a number, got 'a'.",
    ),
    "fit accuracy": (
        lambda: problem(accuracy=["high"]),
        "accuracy must be 'standard' or 'high', got ['high'].",
    ),
    "fit seed": (
        lambda: mbd.fit(problem(), seed=-1, progress=False),
        "fit: seed must be at least 0, got -1.",
    ),
    "fit checkpoint": (
        lambda: mbd.fit(problem(), checkpoint=3, progress=False),
        "fit: checkpoint must be the path of a file, got 3.",
    ),
    "fit progress": (
        lambda: mbd.fit(problem(), progress="no"),
        "fit: progress must be True or False, got 'no'.",
    ),
    "fit_many one": (
        lambda: ident.fit_many(problem()),
        "fit_many: problems must be a sequence of Problems, got a Problem.",
    ),
    "fit_many steps": (
        lambda: ident.fit_many([problem()], steps=0),
        "fit_many: steps must be at least 1, got 0.",
    ),
    "predict mechanism": (
        lambda: ident.predict(M, EX),
        "predict: result must be a Fit, got a Mechanism.",
    ),
    "profile mechanism": (
        lambda: ident.profile_likelihood(M, "k"),
        "profile_likelihood: result must be a Fit, got a Mechanism.",
    ),
    "prediction_errors number": (
        lambda: ident.prediction_errors(3),
        "prediction_errors: result must be a Fit or a Prediction, got 3.",
    ),
    "choose mechanism": (
        lambda: ident.choose_experiments(M, 1),
        "choose_experiments: problem must be a Problem, got a Mechanism.",
    ),
    "fisher theta": (
        lambda: ident.fisher_information(problem(), theta={"k": 1.0}),
        "fisher_information: theta must be the theta of a Fit, or problem.start(), got a dict.",
    ),
    "error_growth mechanism": (
        lambda: ident.error_growth(3),
        "error_growth: problem must be a Problem, got 3.",
    ),
    "starting_at number": (
        lambda: problem().starting_at(3),
        "starting_at: values must be a dictionary of values by name, such as {'stiffness': 100.0}, got 3.",
    ),
    "starting_at NaN": (
        lambda: problem().starting_at({"k": NAN}),
        "Free parameter 'k' starts at nan, outside its range Unbounded().",
    ),
    "stiffness M": (
        lambda: mbd.time_scales(S, M),
        "mechanism must be a Mechanism, such as jaxmbd.planar.Mechanism(bodies, joints), got a State.",
    ),
    "eq rotation num": (
        lambda: mbd.equilibrium(M, rotation=3.0),
        "rotation must be a Rotation or the speed of a joint, such as {'spindle.angle': 3.0}, got 3.0.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_text(case: str) -> None:
    check_text(*CASES[case])
