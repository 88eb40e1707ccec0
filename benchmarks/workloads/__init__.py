"""What is measured: each module has `measure(options, say)`, which gives records, and `tables(records)`."""

from types import ModuleType

from benchmarks.workloads import (
    batch,
    commands,
    coordinates,
    engines,
    events,
    first,
    gpu,
    gradients,
    mechanisms,
    precision,
    scaling,
    single,
    steps,
    stiff,
    sweep,
)

WORKLOADS: dict[str, ModuleType] = {
    "precision": precision,
    "steps": steps,
    "batch": batch,
    "engines": engines,
    "mechanisms": mechanisms,
    "events": events,
    "stiff": stiff,
    "gradients": gradients,
    "scaling": scaling,
    "coordinates": coordinates,
    "first": first,
    "commands": commands,
    "single": single,
    "sweep": sweep,
    "gpu": gpu,
}
