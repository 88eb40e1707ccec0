"""The primitives of JAX that are known here by name, and the parameters of their equations.

Neither is documented, and both change from one minor version of JAX to the next. `tests/upstream` compares these
tables with the installed JAX, and all tables of rules with them: a primitive or a parameter that is gone, and a
parameter that is new, are told there. A new one changes what is computed, so that the rules must read or refuse it, or
it belongs to those that do not.
"""

_ELEMENTWISE = (
    *("neg", "abs", "sign", "floor", "ceil", "is_finite", "square", "sqrt", "rsqrt", "cbrt", "one_minus_square"),
    *("exp", "exp2", "expm1", "log", "log2", "log1p", "logistic", "erf", "erfc", "erf_inv", "lgamma", "digamma"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "atan2"),
    *("add", "add_any", "sub", "mul", "div", "rem", "pow", "max", "min", "nextafter", "real", "imag", "conj"),
    *("and", "or", "xor", "not", "shift_left", "shift_right_logical", "shift_right_arithmetic"),
    *("eq", "ne", "lt", "le", "gt", "ge", "eq_to", "lt_to", "le_to", "select_n", "clamp", "polynomial"),
    *("copy", "stop_gradient", "optimization_barrier", "pvary"),
)
_SCATTERED = "dimension_numbers", "mode"
SCATTERS = ("scatter", *(f"scatter-{name}" for name in ("add", "sub", "mul", "min", "max")))

# A call of a function, and its jaxpr.
CALLS: dict[str, tuple[str, ...]] = {
    "jit": ("jaxpr",), "remat2": ("jaxpr",), "closed_call": ("call_jaxpr",), "custom_jvp_call": ("call_jaxpr",),
    "custom_vjp_call": ("call_jaxpr",), "remat_opt": ("fwd_jaxpr",), "composite": ("jaxpr", "call_jaxpr"),
}  # fmt: skip

# The parameters that the rules read.
PRIMITIVES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_ELEMENTWISE, ()),
    "round": ("rounding_method",), "integer_pow": ("y",), "convert_element_type": ("new_dtype",),
    "reduce_precision": ("exponent_bits", "mantissa_bits"), "name": (),
    **dict.fromkeys((f"reduce_{name}" for name in ("sum", "prod", "max", "min", "and", "or", "xor")), ("axes",)),
    **dict.fromkeys(("argmax", "argmin"), ("axes", "index_dtype")),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin"), ("axis", "reverse")),
    "iota": ("dtype", "shape", "dimension"), "empty": (), "empty2": (),
    "broadcast_in_dim": ("shape", "broadcast_dimensions"), "reshape": ("new_sizes", "dimensions"),
    "squeeze": ("dimensions",), "transpose": ("permutation",), "rev": ("dimensions",), "tile": ("reps",),
    "concatenate": ("dimension",), "stack": ("axis",), "unstack": ("axis",), "split": ("sizes", "axis"),
    "slice": ("start_indices", "limit_indices", "strides"), "pad": ("padding_config",),
    "dynamic_slice": ("slice_sizes",), "dynamic_update_slice": (),
    "gather": ("dimension_numbers", "slice_sizes", "mode", "fill_value"),
    **dict.fromkeys(SCATTERS, _SCATTERED), "scatter": (*_SCATTERED, "update_jaxpr"),
    "sort": ("dimension", "num_keys"), "top_k": ("k", "axis"), "dot_general": ("dimension_numbers",),
    "cholesky": (), "lu": (), "geqrf": (), "householder_product": (), "qr": ("full_matrices", "pivoting"),
    "triangular_solve": ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal"),
    "lu_pivots_to_permutation": ("permutation_size",), "svd": ("full_matrices", "compute_uv"), "eigh": ("lower",),
    "eig": ("compute_left_eigenvectors", "compute_right_eigenvectors"),
    "custom_linear_solve": ("const_lengths", "jaxprs"),
    "cond": ("branches",), "scan": ("jaxpr", "length", "reverse", "num_consts", "num_carry", "ft_in"),
    "while": ("cond_jaxpr", "body_jaxpr", "cond_nconsts", "body_nconsts"), "platform_index": ("platforms",),
    "call_hi_primitive": ("_prim",), **CALLS,
    **dict.fromkeys(("reshard", "sharding_constraint", "layout_constraint"), ()),
    **dict.fromkeys(("pure_callback", "ffi_call"), ()),  # inside of errors
}  # fmt: skip

# The first and the first no more of the versions of JAX that have a primitive, or a parameter of it.
SINCE = {
    "log2": (0, 11), "one_minus_square": (0, 11), "polynomial": (0, 12), "call_hi_primitive": (0, 12),
    "scan.ft_in": (0, 11), "composite.call_jaxpr": (0, 11),
}  # fmt: skip
UNTIL = {"closed_call": (0, 11), "scan.num_consts": (0, 11), "scan.num_carry": (0, 11), "composite.jaxpr": (0, 11)}

# Parameters that ask for something else than the rules do, unless they are None.
ONLY_NONE = ("out_dtype", "subset_by_index")

# Parameters that say where something is computed, not what.
PLACES = frozenset((
    "sharding", "out_sharding", "in_shardings", "out_shardings", "in_layouts", "out_layouts", "ctx_mesh", "inline",
    "donated_invars", "keep_unused", "compiler_options_kvs", "memory_space", "prevent_cse", "in_tree",
))  # fmt: skip
# How accurately and in which order it is computed, or what is known of the operands; what is only shown.
MANNER = frozenset((
    "accuracy", "precision", "preferred_element_type", "algorithm", "implementation", "use_magma", "unroll", "policy",
    "indices_are_sorted", "unique_indices", "is_stable", "sort_eigenvalues", "weak_type", "symbolic_zeros", "name",
    "differentiated", "branches_platforms", "enable_eigvec_derivs", "attributes", "version",
))  # fmt: skip
# The rules of derivatives, as functions, and what belongs to them.
DERIVATIVES = frozenset(("jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "out_trees"))
TREES = frozenset(("ft_in", "ft_out"))  # of the operands and results of a scan, as objects of JAX's own
LABELLED = frozenset(("jit",))  # whose `name` is only shown


def is_as_known(parameters: dict[str, object]) -> bool:
    """True if none of the parameters asks for something that no rule does."""
    return all(parameters.get(name) is None for name in ONLY_NONE)
