"""Functions of arrays, evaluated fast and known again: programs, kernels, NumPy code. This package knows no mechanics.

Other rooms use seven names of it:

| a function that | is wrapped in |
|---|---|
| is arithmetic, and called within an analysis (a right-hand side) | `as_program`, if `is_program` says so |
| is called within an analysis, and traced once for all of its kind (a law and its derivatives) | `trace_once` |
| is called by hand, with known values, and within an analysis (`Equations.M`) | `known_by_numpy` |
| is an analysis | `cached_on_disk` |
| is called for each frame of a screen | `steady_call` |

`prefers_programs` tells where small matrices are better written out as arithmetic. Who then evaluates a function is
decided in `choice.py`.

A function is traced to a jaxpr (`binding/tracing.py`), rules emit SSA values, which are optimised and
scheduled (`program/`), and the resulting program is called from JAX as one primitive (`binding/jax_binding.py`).
"""

from jaxmbd.engine.binding.jax_binding import as_program as as_program
from jaxmbd.engine.binding.jax_binding import is_program as is_program
from jaxmbd.engine.binding.jax_binding import prefers_programs as prefers_programs
from jaxmbd.engine.binding.trace_once import known_by_numpy as known_by_numpy
from jaxmbd.engine.binding.trace_once import trace_once as trace_once
from jaxmbd.engine.calls.cached_function import cached_on_disk as cached_on_disk
from jaxmbd.engine.calls.cached_function import steady_call as steady_call
