"""What an event costs: batches of motions with one, and without it; and the first gradient through one.

Balls that bounce, four-bars with a stop or with a torque from a table, at whose samples steps end (without: a smooth
one), and every example mechanism with an event that is only logged, on its first coordinate; each in one call of
`jax.vmap`, with and without the event in turn. The first gradient is that of a ball's height after its bounces, in
fresh processes: on a computer that has never run it ("new"), and on one that has.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from benchmarks.fresh import fresh_process
from benchmarks.measure import take_turns
from benchmarks.options import Options, Record, Say
from benchmarks.table import Table, figures
from benchmarks.workloads.engines import linkage, linkages
from jaxmbd import planar as pl

BALLS, LINKAGES, INSTANCES, QUICK = 1000, 1024, 256, 16
ENDS = {"andrews": 0.01, "sundials-slider-crank": 0.5}  # [s], where the motion has too many steps for a second of it

Motion = Callable[[Any, bool], mbd.Solution]  # of an instance, with or without the event


def measure(options: Options, say: Say) -> list[Record]:
    """Seconds with and without an event, and the seconds of first gradients."""
    records: list[Record] = []
    for label, motion, operands in measured(options.quick):
        say(label)
        runs = [jax.jit(jax.vmap(partial(_states, motion, has_event))) for has_event in (True, False)]
        calls = [partial(_wait, run, operands) for run in runs]
        for call in calls:
            call()
        seconds = take_turns(calls, 2.0)
        one = jax.tree.map(lambda x: x[0], operands)
        engines = [motion(one, has_event).engine for has_event in (True, False)]
        records.append(
            {"kind": "batch", "label": label, "with": seconds[0], "without": seconds[1], "engine": engines[0]}
        )
    for state, found in first_gradients():
        say(f"first gradient, {state}")
        records.append({"kind": "first", "label": state, **found})
    return records


def _wait(run: Callable[[Any], jax.Array], operands: Any) -> jax.Array:
    return jax.block_until_ready(run(operands))


def _states(motion: Motion, has_event: bool, operands: Any) -> jax.Array:
    return motion(operands, has_event).q


def measured(quick: bool) -> Iterator[tuple[str, Motion, Any]]:
    """What is measured: a label, the motion, and the instances of the batch."""
    heights = jnp.linspace(0.4, 0.7, QUICK if quick else BALLS)
    yield f"{len(heights):,} balls that bounce once", partial(ball, 0.45), heights
    yield f"{len(heights):,} balls that bounce for 2 s", partial(ball, 2.0), heights
    operands = jax.tree.map(jnp.asarray, linkages(QUICK if quick else LINKAGES))
    yield f"{len(operands[0]):,} four-bars with a stop", stopped, operands
    for samples in (11, 51):
        yield f"{len(operands[0]):,} four-bars, a torque of {samples} samples", partial(sampled, samples), operands
    for name in mbd.examples.names()[: 2 if quick else None]:
        example = mbd.examples.get(name)
        start = example.state()
        speeds = start.v * jnp.linspace(1.0, 1.0001, QUICK if quick else INSTANCES)[:, None]
        yield f"{len(speeds)} × {name}", partial(watched, name, example.mechanism, start), speeds


def ball(end: float, height: Any, has_event: bool) -> mbd.Solution:
    """A ball that is dropped, and without the event falls through the floor."""
    mechanism = pl.Mechanism([pl.Body("ball", 1.0, 0.1)], forces=[pl.Gravity(9.81)], floating=True)
    q, v = jnp.stack([0.0, height, 0.0]), jnp.asarray([0.3, 0.0, 0.0])
    floor = mbd.Event("floor", "ball.y", below=0.0, then=mbd.Bounce(0.85))
    events = [floor] if has_event else []
    start = mbd.State(jnp.zeros(()), q, v, mechanism.layout)
    return mbd.simulate(mechanism, start, jnp.linspace(0.0, end, 101), events=events, throw=False)


def stopped(operands: Any, has_event: bool) -> mbd.Solution:
    """A four-bar whose crank rebounds from a stop."""
    lengths, masses, state = operands
    stop = mbd.Event("stop", "A.angle", above=1.5, then=mbd.Bounce(0.5))
    events = [stop] if has_event else []
    return mbd.simulate(linkage(lengths, masses), state, jnp.linspace(0.0, 1.0, 51), events=events, throw=False)


def sampled(samples: int, operands: Any, has_event: bool) -> mbd.Solution:
    """A four-bar whose crank is driven by a torque over time: a table, at whose samples steps end, or smooth."""
    lengths, masses, state = operands
    smooth = lambda t: 0.2 * jnp.sin(3.0 * t)  # noqa: E731
    times = np.linspace(0.0, 1.0, samples)
    torque = mbd.Table(times, smooth(times)) if has_event else smooth
    mechanism = linkage(lengths, masses).with_parts([pl.JointForce("motor", "A.angle", lambda t, *_: torque(t))])
    return mbd.simulate(mechanism, state, jnp.linspace(0.0, 1.0, 51), throw=False)


def watched(name: str, mechanism: Any, start: mbd.State, speeds: Any, has_event: bool) -> mbd.Solution:
    """An example whose first coordinate is watched."""
    first = jnp.asarray(start.q[0])
    look = mbd.Event("look", lambda at: at.q[0], at=first + 0.05, then=mbd.LogOnly())
    ts = start.t + jnp.linspace(0.0, ENDS.get(name, 1.0), 21)
    state = eqx.tree_at(lambda s: s.v, start, speeds)
    return mbd.simulate(mechanism, state, ts, events=[look] if has_event else [], throw=False)


def first_gradients() -> Iterator[tuple[str, Record]]:
    """The seconds of the first gradient, on a computer that has never run it, and on one that has."""
    with tempfile.TemporaryDirectory() as cache:
        for state in ("new", "known"):
            yield state, fresh_process("benchmarks.workloads.events", "gradient", variables={"XDG_CACHE_HOME": cache})


def gradient() -> None:
    """Print the seconds of the first value and gradient of a height after bounces, without those of the import and of
    loading the virtual machine."""
    jax.config.update("jax_enable_x64", True)
    ball(0.1, jnp.asarray(0.5), False)
    begin = time.process_time(), time.perf_counter()
    jax.block_until_ready(jax.value_and_grad(lambda h: ball(2.0, h, True).q[-1, 1])(jnp.asarray(0.5)))
    end = time.process_time(), time.perf_counter()
    print(json.dumps(dict(zip(("cpu", "wall"), np.subtract(end, begin).tolist(), strict=True))))


def tables(records: Sequence[Record]) -> list[Table]:
    """What an event costs in batches, and first gradients."""
    batches, firsts = ([r for r in records if r["kind"] == kind] for kind in ("batch", "first"))
    rows = [
        [r["label"], r["engine"], *(figures(1e3 * r[name]) for name in ("with", "without")),
         figures(r["with"] / r["without"], 2)]
        for r in batches
    ]  # fmt: skip
    first = [[r["label"], r["failure"] or figures(r["cpu"]), figures(r.get("wall", np.nan))] for r in firsts]
    head = ("what", "engine", "with an event [ms]", "without [ms]", "ratio")
    found = [Table("What an event costs, Dopri8 at standard accuracy", head, rows)]
    title = "First value and gradient of a ball's height after five bounces"
    return [*found, Table(title, ("computer", "CPU [s]", "wall [s]"), first)]


if __name__ == "__main__" and sys.argv[1:] == ["gradient"]:
    gradient()
