"""What is measured: each module has `measure(options, say)`, which gives records, and `tables(records)`."""

from types import ModuleType

from benchmarks.workloads import batch, first, gradients, precision, scaling, single, steps

WORKLOADS: dict[str, ModuleType] = {
    "precision": precision,
    "steps": steps,
    "batch": batch,
    "gradients": gradients,
    "scaling": scaling,
    "first": first,
    "single": single,
}
