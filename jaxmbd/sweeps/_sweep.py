"""`sweep`: one function of named numbers, for all variants of a space, in chunks that one compiled program computes."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmbd.checks import as_path, check_count, check_flags
from jaxmbd.errors import MechanismError, SolveError
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.progress import reporting
from jaxmbd.sweeps._chunks import Chunks, Executors, Values, by_workers, here, pickled
from jaxmbd.sweeps._digest import digests
from jaxmbd.sweeps._explanation import Explanation, Rate, explanation
from jaxmbd.sweeps._outputs import (
    RESULT,
    RESULT_TEXT,
    Function,
    OfMechanism,
    Output,
    compiled,
    name_of,
    outputs_of,
    result_texts,
)
from jaxmbd.sweeps._space import Space, SpaceLike, check_named, space_of
from jaxmbd.sweeps._store import Store, checked, open_finished, opened

if TYPE_CHECKING:
    import xarray as xr

_CHUNK = 1024


class SweepWarning(UserWarning):
    """A warning about the results of a sweep that one does not see in a single variant."""


@dataclass(frozen=True)
class Sweep:
    """A sweep that has been checked and not computed yet: `explain()` says what it takes, `run()` computes it.

    **Arguments:** as for `sweep`.

    **Raises:** `MechanismError` if the space is invalid, or if the function raises when it is traced for one variant,
    or returns what is no dictionary of named numbers.

    **Example:** `print(Sweep(function, {"length": [0.1, 0.2]}).explain())`
    """

    function: Function
    space: SpaceLike
    store: str | Path | None = None
    chunk: int = _CHUNK
    executor: Executors | None = None
    overwrite: bool = False
    progress: bool = True
    mechanism: Mechanism | None = None
    outputs: tuple[Output, ...] = field(init=False)
    chunks: Chunks = field(init=False)
    _function: Function = field(init=False, repr=False, compare=False)  # of numbers by name
    _run: Any = field(init=False, repr=False, compare=False)  # the function for a chunk, jitted

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise MechanismError(f"sweep: function must be callable, got {type(self.function).__name__}.")
        if self.store is not None and not isinstance(self.store, str | Path):
            raise MechanismError(f"sweep: store must be the path of a folder, got {type(self.store).__name__}.")
        if self.executor is not None and not callable(getattr(self.executor, "submit", self.executor)):
            raise MechanismError(f"sweep: executor must be a concurrent.futures.Executor, got {self.executor!r}.")
        check_count("sweep: chunk", self.chunk, 1)
        check_flags("sweep", overwrite=self.overwrite, progress=self.progress)
        space, function = space_of(self.space), self.function
        if self.mechanism is not None:
            check_named(self.mechanism, space)
            function = OfMechanism(function, self.mechanism)
        object.__setattr__(self, "_function", function)
        object.__setattr__(self, "chunks", Chunks(space, min(int(self.chunk), space.count)))
        object.__setattr__(self, "_run", compiled(function))
        object.__setattr__(self, "outputs", outputs_of(function, self._run, space, self.chunks.size))

    def __repr__(self) -> str:
        space = self.chunks.space
        sizes = " × ".join(f"{name} {size}" for name, size in space.sizes.items())
        return f"Sweep of {name_of(self.function)}: {space.count} variants ({sizes}), {self.chunks.count} chunks"

    def explain(self) -> Explanation:
        """Return what the sweep takes; a few variants are computed to measure the time.

        **Returns:** numbers of variants and chunks, memory, size of the store, and time, to be printed.
        """
        return explanation(self._function, self.chunks, self.outputs, has_store=self.store is not None)

    def run(self) -> "xr.Dataset":
        """Compute all variants, or with a store those that are not done yet; see `sweep`."""
        if self.executor is not None:
            pickled(self._function)  # before anything is written
        if self.store is None:
            values = self._into_memory()
        else:
            what = as_path("sweep: store", self.store), self.chunks.space, self.outputs, self.chunks.size
            parts = digests(self._function, self._run, *what[1:])
            with opened(*what, parts, self.overwrite) as store:
                self._into_store(store)
                values = checked(*what, "r").values()
        return labelled(self.chunks.space, self.outputs, values, name_of(self.function))

    def _into_memory(self) -> Values:
        count, size = self.chunks.space.count, self.chunks.size
        values = {x.name: np.empty((count, *x.shape), x.dtype) for x in self.outputs}

        def put(number: int, found: Values) -> None:
            for name, block in found.items():
                values[name][number * size : number * size + len(block)] = block

        self._compute(np.zeros(self.chunks.count, bool), put, "Nothing is kept: with store=... it can be continued.")
        return values

    def _into_store(self, store: Store) -> None:
        how = f"They are kept in {str(store.path)!r}: call sweep with the same arguments to continue."
        self._compute(store.done(), store.write, how)

    def _compute(self, done: np.ndarray, put: Callable[[int, Values], None], how_to_go_on: str) -> None:
        """Compute the chunks that are not done, and give each to `put`."""
        missing, finished = np.flatnonzero(~done).tolist(), int(done.sum())
        rate = Rate(self.chunks, finished)
        try:
            with reporting(self.progress, rate.text()) as report, closing(self._found(missing)) as found:
                for number, values in found:
                    self._check(number, values)
                    put(number, values)
                    finished += 1
                    rate.count(finished)
                    report(rate.text())
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(
                f"sweep: interrupted when {finished} of {self.chunks.count} chunks were done. {how_to_go_on}"
            ) from error

    def _check(self, number: int, values: Values) -> None:
        """Raise if a worker has computed something else, from another version of the function's module."""
        start, stop = number * self.chunks.size, min((number + 1) * self.chunks.size, self.chunks.space.count)
        wanted = {x.name: f"{x.dtype}{[stop - start, *x.shape]}" for x in self.outputs}
        given = {name: f"{x.dtype}{[*x.shape]}" for name, x in values.items()}
        if given != wanted:
            raise SolveError(
                f"sweep: a worker returned {given} for {self.chunks.named(number)} of {name_of(self.function)}, where "
                f"this process expects {wanted}. All must have the same versions of the function and of its libraries."
            )

    def _found(self, missing: list[int]) -> Any:
        if not missing:
            return _nothing()
        if self.executor is None:
            return here(self._function, self._run, self.chunks, missing)
        return by_workers(self._function, self.chunks, missing, self.executor)


def _nothing() -> Iterator[tuple[int, Values]]:
    yield from ()


def sweep(
    function: Function,
    space: SpaceLike,
    *,
    store: str | Path | None = None,
    chunk: int = _CHUNK,
    executor: Executors | None = None,
    overwrite: bool = False,
    progress: bool = True,
    mechanism: Mechanism | None = None,
) -> "xr.Dataset":
    """Compute a function for all variants of a space of named numbers: `y_k = f(x_k)`.

    The function is compiled once, for `chunk` variants at a time (`jit` of `vmap`).

    **Arguments:**

    - `function`: takes a dictionary of the numbers of one variant by name, and returns a dictionary of outputs by name:
      numbers, arrays of numbers, and under the name `"result"` a verdict (a code of `RESULTS`, a `State` or a
      `Solution`). It must be traceable by JAX.
    - `space`: a dictionary `{name: values}` or `{name: (dimension, values)}`. Values that share a dimension vary
      together, distinct dimensions multiply; plain values have a dimension of their own, and a single number is the
      same in all variants. Or an `xarray.Dataset`: its variables, and the coordinates of dimensions without
      variables, are the numbers. See `grid`, `latin_hypercube`, `sobol` and `tolerances`.
    - `store`: a folder for a Zarr store, to which each chunk is written once it is computed. If it exists, the sweep is
      continued. Its attributes say what it was computed from: if what the function computes (the operations and
      constants that JAX traces), the space, the chunk, or the versions of jaxmbd (its source files included) and JAX
      differ, that is an error. A function that calls Python while it runs cannot be told from another one, and has no
      store.
    - `chunk`: the number of variants computed at a time.
    - `executor`: a `concurrent.futures.Executor` whose workers compute the chunks (that of a Dask client too), or a
      function that makes one, which is called again if a worker breaks it. The function must be defined at the top
      level of a module. A chunk whose worker broke is submitted again, at most three times.
    - `overwrite`: whether to delete a store that exists.
    - `progress`: whether to show a line with the rate and the time left.
    - `mechanism`: a mechanism, whose numbers the space then names, `{"rod.mass": [1.0, 2.0]}`; the function takes the
      mechanism that has them. All matches of a pattern, `"*.mass"`, have the same value.

    **Returns:** a dataset over the dimensions of the space, in memory. The numbers of the space are coordinates; an
    array has further dimensions `name_0`, `name_1`, ... `result` is the integer of the verdict, `result_text` its text.
    The attributes count the variants, those with a verdict other than successful (`failed`), and those with NaN in
    spite of a successful verdict, or without any (`nan_without_verdict`).

    **Raises:** `MechanismError` if an argument is invalid, the function cannot be traced, or the store is damaged,
    belongs to another sweep, or is being written by one; `SolveError` with the chunk that raised, or whose workers
    broke; `KeyboardInterrupt` that says how to go on. Warns by `SweepWarning` of NaN without a verdict.

        >>> def period(x):
        ...     return {"period": 2 * jnp.pi * jnp.sqrt(x["length"] / x["g"])}
        >>> found = mbd.sweep(period, {"length": [0.5, 1.0, 2.0], "g": [1.62, 9.81]}, progress=False)
        >>> print(found["period"].sel(g=9.81).values.round(3))
        [1.419 2.006 2.837]
        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> def height(mechanism):
        ...     return {"y": mbd.assemble(mechanism, {"O.angle": 1.0}, check=False)["rod.y"]}
        >>> found = mbd.sweep(height, {"O.b.position[0]": [-0.4, -0.5]}, mechanism=pendulum, progress=False)
        >>> print(found["y"].values.round(3))
        [0.337 0.421]
    """
    return Sweep(function, space, store, chunk, executor, overwrite, progress, mechanism).run()


def read_store(store: str | Path) -> "xr.Dataset":
    """Return the dataset of a finished store, without its function.

    **Arguments:** `store`: the folder.

    **Returns:** the dataset that `sweep` returned, without labels that a dataset had beside its numbers.

    **Raises:** `MechanismError` if it is no store of a sweep, damaged, or unfinished.

    **Example:** `read_store("lengths.zarr")["period"]`

        >>> found = mbd.sweeps.read_store("lengths.zarr")  # doctest: +SKIP
    """
    found = open_finished(as_path("read_store", store))
    return labelled(found.space, found.outputs, found.values(), found.function)


def labelled(space: Space, outputs: tuple[Output, ...], values: Values, function: str) -> "xr.Dataset":
    """The dataset over the dimensions of a space, with what is to be said of failures and NaN."""
    import xarray as xr

    variables: dict[str, Any] = {}
    for x in outputs:
        variables[x.name] = ((*space.dims, *x.dims), values[x.name].reshape((*space.shape, *x.shape)))
    code = values.get(RESULT)
    if code is not None:
        texts = np.asarray(result_texts(), dtype=object)  # references: the texts are long
        variables[RESULT_TEXT] = (space.dims, texts[code].reshape(space.shape))
    numbers: dict[str, tuple[tuple[str, ...], np.ndarray]] = {one.name: (one.dims, one.values) for one in space.swept}
    found = xr.Dataset(variables, coords={**space.labels, **numbers})
    failed = np.zeros(space.count, bool) if code is None else code != 0
    by_name = {x.name: _nan(values[x.name]) & ~failed for x in outputs}
    nan = np.any(list(by_name.values()), axis=0)
    attributes: dict[str, Any] = {"function": function, "jaxmbd": version("jaxmbd"), "variants": space.count}
    attributes |= {"failed": int(failed.sum()), "nan_without_verdict": int(nan.sum())}
    if nan.any():
        listed = ", ".join(f"{name!r} ({x.sum()})" for name, x in by_name.items() if x.any())
        reason = "without a verdict" if code is None else "in spite of a successful verdict"
        warnings.warn(
            f"sweep: {nan.sum()} of {space.count} variants of {function} have NaN {reason}, in {listed}; the first is "
            f"variant {space.named(int(np.flatnonzero(nan)[0]))}.",
            SweepWarning,
            stacklevel=4,
        )
    return found.assign_attrs(attributes)


def _nan(values: np.ndarray) -> np.ndarray:
    """For each variant, whether there is a NaN."""
    if values.dtype.kind != "f":
        return np.zeros(len(values), bool)
    return np.asarray(np.isnan(values.reshape(len(values), -1)).any(axis=1))
