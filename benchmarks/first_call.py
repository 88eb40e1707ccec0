"""One activity in a process that has done nothing yet: `python -P first_call.py ACTIVITY [NAME] [DEVICE]`.

Prints one line of JSON: for each stage its CPU and wall seconds, `{"simulate": [cpu, wall], ...}`, those of compilers
that it starts included. It imports nothing of this folder, so that it measures any version of jaxmbd: the one on
`PYTHONPATH`.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

stages: dict[str, list[float]] = {}
END = 0.1  # [s] of the motions
SENSITIVITIES = 10


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Time a stage; the seconds of the same stage are added."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    yield
    before = stages.get(name, [0.0, 0.0])
    stages[name] = [before[0] + cpu_seconds() - cpu, before[1] + time.perf_counter() - wall]


def cpu_seconds() -> float:
    """CPU time of this process and of those that it has started."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def imported(device: str) -> Any:
    """Import jaxmbd with the names that are used, and choose the device and double precision."""
    with stage("import"):
        import jaxmbd
    with stage("import names"):
        for used in ("planar", "spatial", "examples", "assemble", "simulate"):
            getattr(jaxmbd, used)
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cuda,cpu" if device == "gpu" else "cpu")
    with stage("virtual machine"):
        from jaxmbd.engine.machine.build_vm import vm

        vm()
    return jaxmbd


def libraries(name: str, device: str) -> None:
    """Import diffrax, and with it JAX and equinox, but not jaxmbd."""
    with stage("import diffrax"):
        import diffrax  # noqa: F401  # pyright: ignore[reportUnusedImport]


def usage(name: str, device: str) -> None:
    """The command's usage."""
    with stage("--help"):
        subprocess.run([sys.executable, "-m", "jaxmbd", "--help"], stdout=subprocess.DEVNULL, check=True)


def motion(name: str, device: str) -> None:
    """Assemble and simulate, again, and differentiate the motion in reverse mode."""
    mbd = imported(device)
    simulated(mbd, name)
    derivative(mbd, name, "gradient", reverse=True)


def sensitivities(name: str, device: str) -> None:
    """Assemble and simulate, and differentiate the motion by ten parameters in forward mode."""
    mbd = imported(device)
    simulated(mbd, name)
    derivative(mbd, name, "sensitivities", reverse=False)


def examples(name: str, device: str) -> None:
    """Assemble and simulate all examples."""
    mbd = imported(device)
    for each in mbd.examples.names():
        simulated(mbd, each, "all examples", "all examples", "")


def kinematics(name: str, device: str) -> None:
    """The driven motion of an arm of seven axes, from whose third link a rod leads to a slider, at 2,000 times: first,
    again, and when it has been compiled."""
    mbd = imported(device)
    import jax.numpy as jnp
    import numpy as np

    from jaxmbd import spatial as sp

    axes, ts = "zyxyxyx", np.linspace(0.0, 10.0, 2000)
    links = [sp.Body(f"L{k}", 1.0, (0.02, 0.02, 0.01), (0.0, 0.0, 0.3 * k + 0.15)) for k in range(7)]
    ends = [sp.ground.at(axis=axes[0]), *(links[k].at(0, 0, 0.15, axis=axes[k + 1]) for k in range(6))]
    slider = sp.Body("slider", 0.5, (0.01, 0.01, 0.01), (0.5, 0.0, 0.1))
    rod = sp.Body("rod", 0.5, (0.01, 0.01, 0.01), (0.25, 0.0, 0.425))
    joints = [
        *(sp.Revolute(f"J{k}", ends[k], links[k].at(0, 0, -0.15, axis=axes[k])) for k in range(7)),
        sp.Prismatic("P", sp.ground.at(0.5, 0, 0.1), slider.at()),
        sp.Universal("U", slider.at(), rod.at(0.25, 0, -0.325)),
        sp.Spherical("S", links[2].at(), rod.at(-0.25, 0, 0.325)),
    ]
    drivers = [sp.Driver(f"D{k}", f"J{k}.angle", lambda t, k=k: 0.4 * jnp.sin((1 + 0.1 * k) * t)) for k in range(7)]
    for kind in ("joint", "absolute"):
        arm = sp.Mechanism([*links, slider, rod], joints, [sp.Gravity()], drivers, coordinates=kind)
        with stage(f"kinematics, assemble, {kind}"):
            state = mbd.assemble(arm)
        run = lambda: mbd.kinematics(arm, ts, state).q.block_until_ready()  # noqa: B023, E731
        for call in ("first", "second", "compiled"):
            with stage(f"kinematics, {call}, {kind}"):
                run()
            for _ in range(6 * (call == "second")):  # the analysis is compiled in one of these
                run()


def fit(name: str, device: str) -> None:
    """The first fit of the demonstration, stopped after its first step: nearly all of it is compilation."""
    imported(device)
    from jaxmbd import demo
    from jaxmbd.identification import fit as search

    with stage("first fit"):
        search(
            demo.pendulum, demo.experiments(demo.TRAINING), demo.free_parameters(), progress=False, steps=1,
            **demo.SETTINGS,
        )  # fmt: skip


def inference(name: str, device: str) -> None:
    """The first fit, profile and posterior (25 draws after 25 of the warm-up) of a swing: two numbers, 21 samples."""
    mbd = imported(device)
    import numpy as np

    from jaxmbd import identification as ident

    mechanism, ts, start = mbd.examples.get("pendulum").mechanism, np.linspace(0.0, 2.0, 21), {"O.angle": -1.0}
    damped = mechanism.with_parts([mbd.planar.JointFriction("friction", "O.angle", viscous=0.1)])
    angle = np.asarray(mbd.simulate(damped, mbd.assemble(damped, start), ts)["O.angle"])
    noisy = angle + 0.01 * np.random.default_rng(0).normal(size=len(ts))
    experiment = mbd.Experiment(ts, {"O.angle": noisy}, start=start, sigma=0.01)
    numbers = {"rod.inertia": ident.Positive(), "friction.viscous": ident.Positive()}
    with stage("fit of two numbers"):
        result = mbd.fit(damped, experiment, numbers, progress=False)
    with stage("profile"):
        ident.profile_likelihood(result, "friction.viscous", progress=False)
    with stage("posterior"):
        ident.sample_posterior(result, draws=25, warmup=25, progress=False)


def design(name: str, device: str) -> None:
    """The first design of a four-bar: two lengths, an objective and a limit by its kinematics at 24 times, one step."""
    mbd = imported(device)
    import jax.numpy as jnp
    import numpy as np

    from jaxmbd import planar as pl

    ts = np.linspace(0.0, 1.0, 24)

    def linkage(lengths: Any) -> Any:
        links = [pl.Body(link, 1.0, 1.0, pose=(0, 0, 1.0)) for link in ("crank", "coupler", "rocker")]
        crank, coupler, rocker = links
        pins = [
            pl.Revolute("A", pl.ground.at(0, 0), crank.at()),
            pl.Revolute("B", crank.at(0.5, 0), coupler.at()),
            pl.Revolute("C", coupler.at(lengths["coupler"], 0), rocker.at(lengths["rocker"], 0)),
            pl.Revolute("D", pl.ground.at(2.0, 0), rocker.at()),
        ]
        return pl.Mechanism(links, pins, drivers=[pl.Driver("drive", "crank.theta", lambda t: 2 * jnp.pi * t)])

    def swing(mechanism: Any) -> Any:
        angle = mbd.kinematics(mechanism, ts, throw=False)["rocker.theta"]
        return (jnp.max(angle) - jnp.min(angle) - 0.8) ** 2

    def transmission(mechanism: Any) -> Any:
        motion = mbd.kinematics(mechanism, ts, throw=False)
        return mbd.optimal_design.transmission_angle(mechanism, motion, "C", "B", "D")

    ranges = {"coupler": (1.6, 3.0), "rocker": (1.2, 2.0)}
    limits = {"transmission": mbd.Limit(transmission, lower=0.7, unit="rad")}
    with stage("design"):
        mbd.design(swing, ranges, limits, mechanism=linkage, starts=1, steps=1, progress=False)


def example_of(mbd: Any, name: str) -> Any:
    """An example; `pendulum+spring` is the pendulum with a spring added to its first joint."""
    import dataclasses

    plain, _, more = name.partition("+")
    example = mbd.examples.get(plain)
    if not more:
        return example
    mechanism = example.mechanism
    library = mbd.planar if mechanism.space.dim == 2 else mbd.spatial
    added = library.JointSpringDamper(f"added {more}", f"{mechanism.joints[0].name}.angle", stiffness=0.1)
    return dataclasses.replace(example, mechanism=mechanism.with_parts([added]))


def simulated(
    mbd: Any, name: str, assembling: str = "assemble", simulating: str = "simulate", again: str = "again"
) -> None:
    """Make and assemble an example, and simulate the first tenth of a second of it twice, the second time `again`."""
    import jax
    import numpy as np

    with stage(assembling):
        example = example_of(mbd, name)
        state = example.state()
        jax.block_until_ready(state.q)
    for label in (simulating, again):
        if label:
            with stage(label):
                jax.block_until_ready(mbd.simulate(example.mechanism, state, np.array([0.0, END])).q)


def derivative(mbd: Any, name: str, label: str, reverse: bool) -> None:
    """The gradient of the sum of the final coordinates by all numbers of the mechanism, or their ten sensitivities."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import numpy as np

    example = example_of(mbd, name)
    state = example.state()
    leaves, tree = jax.tree.flatten(example.mechanism)
    numbers = [k for k, x in enumerate(leaves) if eqx.is_inexact_array(x)]

    def end(values: Any) -> Any:
        given = dict(zip(numbers, values, strict=True))
        mechanism = jax.tree.unflatten(tree, [given.get(k, x) for k, x in enumerate(leaves)])
        return mbd.simulate(mechanism, state, np.array([0.0, END]), throw=False).q[-1]

    values = [leaves[k] for k in numbers]
    scaled = lambda factors: end([x * factors[k % SENSITIVITIES] for k, x in enumerate(values)])  # noqa: E731
    with stage(label):
        if reverse:
            jax.block_until_ready(jax.grad(lambda x: jnp.sum(end(x)))(values))
        else:
            jax.block_until_ready(jax.jacfwd(scaled)(jnp.ones(SENSITIVITIES)))


ACTIVITIES: dict[str, Callable[[str, str], None]] = {
    "libraries": libraries, "usage": usage, "motion": motion, "sensitivities": sensitivities, "examples": examples,
    "kinematics": kinematics, "fit": fit, "inference": inference, "design": design,
}  # fmt: skip

if __name__ == "__main__":
    activity, mechanism, where, *_ = [*sys.argv[1:], "", "", ""]
    ACTIVITIES[activity](mechanism, where or "cpu")
    print(json.dumps(stages))
