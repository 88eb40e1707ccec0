"""Functions compiled to programs of scalar operations, which a virtual machine runs. This package knows no mechanics.

A function is traced to a jaxpr (`tracing.py`), rules emit SSA values (`rules/`, `ssa_builder.py`), passes optimise and
schedule them (`passes/`), and the resulting program is called from JAX as one primitive (`jax_binding.py`).
"""
