"""Benchmarks of this library beside its peers: work and precision, steps, batches, derivatives, scaling, first calls.

Run it with `python -m benchmarks`; `python -m benchmarks --help` lists the choices.
"""

import os

# The matrices here are small: threads in the linear algebra only cost time and disturb the other programs.
# This has to be set before NumPy is imported.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
