"""Functions compiled to programs of scalar operations, which a virtual machine runs. This package knows no mechanics.

A function is traced to a jaxpr (`binding/tracing.py`), rules emit SSA values, which are optimised and scheduled
(`program/`), and the resulting program is called from JAX as one primitive (`binding/jax_binding.py`).
"""
