"""Batch throughput: 1,024 four-bars of different masses, 1,000 steps of RK4 of 1 ms each, beside MuJoCo's rollouts."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from benchmarks import ours
from benchmarks.measure import OURS, take_turns
from benchmarks.options import Options, Record, Say
from benchmarks.peers.tree import planar_tree
from benchmarks.problems import Array, four_bars
from benchmarks.stepping import march
from benchmarks.table import Table, figures

SIZE, STEPS, STEP = 1024, 1000, 1e-3
QUICK = 100  # steps
FORMULATION = mbd.Augmented  # made when it is used, of the precision that is then set
THREADS = (1, 2)  # of MuJoCo's rollouts


def measure(options: Options, say: Say) -> list[Record]:
    """Trajectory-steps per second of each program, and how far its final angles are from our first run's."""
    steps = QUICK if options.quick else STEPS
    masses = np.random.default_rng(0).uniform(0.5, 1.5, (SIZE, 3))
    found: list[tuple[str, str, Callable[[], Array]]] = []
    for coordinates in ("joint", "absolute"):
        for how in ("steps", "simulate"):
            say(f"jaxmbd, {coordinates} coordinates, {how}")
            found.append((OURS, f"{coordinates}, {how}", our_batch(masses, coordinates, how, steps)))
    if "mujoco" in options.peers:
        found += [("mujoco", f"{n} threads" if n > 1 else "1 thread", r) for n, r in mujoco_batches(masses, steps)]
    say("rounds of all programs")
    seconds = take_turns([run for _, _, run in found], 10.0, 3)
    answers = [run() for _, _, run in found]
    return [
        {
            "program": program, "label": label, "size": SIZE, "steps": steps, "seconds": time,
            "rate": SIZE * steps / time, "difference": float(np.max(np.abs(answer - answers[0]))),
        }
        for (program, label, _), time, answer in zip(found, seconds, answers, strict=True)
    ]  # fmt: skip


def our_batch(masses: Array, coordinates: str, how: str, steps: int) -> Callable[[], Array]:
    """All trajectories in one compiled call of `vmap`; gives the final crank angles."""
    problem = four_bars(1)
    mechanism = ours.mechanism_of(problem).with_coordinates(coordinates)
    state = ours.parallel_state(mechanism, problem)

    def one(mass: jax.Array) -> jax.Array:
        changed = with_masses(mechanism, mass)
        if how == "steps":
            q, _ = march(changed, FORMULATION(), state.q, state.v, STEP, steps)
        else:
            q = simulated(changed, state, steps)
        return mbd.Equations(changed).at(state.t, q).poses()[0, 2]

    solve = jax.jit(jax.vmap(one))
    given = jnp.asarray(masses)
    return lambda: np.asarray(solve(given))


def simulated(mechanism: Any, state: mbd.State, steps: int, step: float = STEP, **options: Any) -> jax.Array:
    """The final coordinates after so many steps by `simulate`; not a number if it did not get that far."""
    ts = state.t + jnp.array([0.0, steps * step])
    return mbd.simulate(
        mechanism, state, ts, formulation=FORMULATION(), solver=mbd.RungeKutta4(),
        stepsize_controller=dfx.ConstantStepSize(), dt0=step, max_steps=steps + 2, throw=False, **options,
    ).q[-1]  # fmt: skip


def with_masses(mechanism: Any, masses: jax.Array) -> Any:
    """The mechanism with other masses of its rods of 1 m."""
    values = [*masses, *(masses / 12)]
    return eqx.tree_at(lambda m: [b.mass for b in m.bodies] + [b.inertia for b in m.bodies], mechanism, values)


def mujoco_batches(masses: Array, steps: int) -> Iterator[tuple[int, Callable[[], Array]]]:
    """MuJoCo's rollouts by number of threads; each gives the final crank angles."""
    from mujoco import rollout

    from benchmarks.peers import peer_mujoco as peer

    tree = planar_tree(four_bars(1))
    base = peer.loop_model(tree, STEP)
    data, places = peer.mujoco.MjData(base), peer.joint_places(base)
    bodies = np.array([base.body(f"body{k}").id for k in range(3)])
    models = []
    for mass in masses:
        model = copy.copy(base)
        model.body_mass[bodies] = mass
        model.body_inertia[bodies] = mass[:, None] / 12 * [0.5, 1.0, 1.0]
        peer.mujoco.mj_setConst(model, data)
        models.append(model)
    peer.restart(base, data, tree)
    kind = peer.mujoco.mjtState.mjSTATE_FULLPHYSICS
    start = np.zeros(peer.mujoco.mj_stateSize(base, kind))
    peer.mujoco.mj_getState(base, data, start, kind)
    starts = np.tile(start, (len(masses), 1))
    for threads in THREADS:
        datas, pool = [peer.mujoco.MjData(base) for _ in range(threads)], rollout.Rollout(nthread=threads)

        def run(datas: Any = datas, pool: Any = pool) -> Array:
            states, _ = pool.rollout(models, datas, starts, nstep=steps)
            return states[:, -1, 1 + places[0]]

        yield threads, run


def tables(records: Sequence[Record]) -> list[Table]:
    """Trajectory-steps per second, and as a multiple of MuJoCo's best."""
    best = max((r["rate"] for r in records if r["program"] == "mujoco"), default=None)
    rows = [
        [
            f"{r['program']}, {r['label']}", figures(r["seconds"]), figures(r["rate"]),
            figures(r["rate"] / best if best else None, 2), f"{r['difference']:.0e}",
        ]
        for r in records
    ]  # fmt: skip
    heads = ("program", "run [s]", "trajectory-steps / s", "over MuJoCo's best", "difference [rad]")
    return [Table("1,024 four-bars, RK4 steps of 1 ms", heads, rows)]
