"""The code of an FMU as pure functions of numbers, which JAX may call in any order, any number of times.

An instance of an FMU has states of its own that no argument shows. Before each call it is put into the state that the
arguments tell: the time, continuous states, inputs and, where there are discrete states, the whole inner state as bytes
(`memory`), which is a part of the state of the mechanism. Parameters are those with which an instance is initialized;
one is kept for each of the last values.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from jaxmbd.errors import MechanismError, SolveError
from jaxmbd.io.fmu.binary import Binary, DiscardedError, Floats, Instance
from jaxmbd.io.fmu.unit import FmuDescription

_KEPT = 8  # instances, one for each of the last values of parameters
_MOST_BYTES = 2**16  # of an inner state: JAX hands small arrays to Python at once, large ones by its threads
_BYTES = 6  # in a number: whole numbers of 48 bits are exact
# By how much a crossing may lie ahead of the time that was found for it, relative to the time, from rounding on; and in
# how many doublings of that an indicator that moves has left zero.
_AHEAD, _DOUBLINGS, _FEW = 1e-16, 40, 12
_DIFFERENCE = 1e-6  # of the sizes of what differences are taken by


class RunningFmu:
    """An FMU in this process, with the variables that a part reads, gives and varies.

    Two are equal if they are the same file with the same names and start values: what was compiled for one serves for
    the other.
    """

    def __init__(
        self, description: FmuDescription, kind: str, inputs: Sequence[str], outputs: Sequence[str],
        parameters: Sequence[str], fixed: dict[str, float], start: float,
    ) -> None:  # fmt: skip
        self.description, self.kind, self.start = description, kind, start
        self.inputs, self.outputs, self.parameters = map(tuple, (inputs, outputs, parameters))
        self.fixed = tuple(sorted(fixed.items()))
        assert description.archive is not None
        self._key = (
            description.archive.digest, kind, self.inputs, self.outputs, self.parameters, self.fixed, start
        )  # fmt: skip
        self.lock = threading.RLock()
        self._instances: OrderedDict[tuple[float, ...], tuple[Instance, bytes]] = OrderedDict()
        of = description.references
        self.of_states, self.of_rates = of(description.states), of(description.rates)
        self.of_inputs, self.of_outputs, self.of_parameters = map(of, (self.inputs, self.outputs, self.parameters))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunningFmu) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"<the code of {self.label}>"

    @property
    def label(self) -> str:
        """The FMU in errors."""
        return f"FMU {self.description.path.name!r}"

    @property
    def able(self) -> Any:
        """What it says that it can do."""
        return self.description.kinds[self.kind]

    @property
    def keeps_memory(self) -> bool:
        """True if its inner state is a part of the state of the mechanism."""
        return self.kind == "co-simulation" or self.description.indicators > 0

    @cached_property
    def _binary(self) -> Binary:
        assert self.description.archive is not None
        return Binary(self.description.archive.unpacked(), self.description, self.kind)

    # --- instances --------------------------------------------------------------------------------------

    def _instance(self, p: Floats) -> tuple[Instance, bytes]:
        """An instance that was initialized with these parameters, and its inner state then."""
        key = tuple(p.tolist())
        if key in self._instances and self._instances[key][0].has_failed:
            self._instances.pop(key)[0].free()
        if key in self._instances:
            self._instances.move_to_end(key)
            return self._instances[key]
        while len(self._instances) >= (1 if self.able.is_alone else _KEPT):
            self._instances.popitem(last=False)[1][0].free()
        values = dict(
            zip(self.description.references([n for n, _ in self.fixed]), (v for _, v in self.fixed), strict=True)
        )
        instance = Instance(self._binary, self.start, values | dict(zip(self.of_parameters, key, strict=True)))
        if instance.next_event is not None and self.kind == "model exchange":
            instance.free()
            raise MechanismError(
                f"{self.label} has an event at a time of its own, {instance.next_event:g} s. As model exchange a part "
                "has no time events. Import it for co-simulation (period=), if it can do that."
            )
        content = instance.saved() if self.keeps_memory else b""
        if len(content) > _MOST_BYTES:
            instance.free()
            raise MechanismError(
                f"{self.label} remembers {len(content)} bytes, which would all be states of the mechanism; at most "
                f"{_MOST_BYTES} can be."
            )
        self._instances[key] = instance, content
        return self._instances[key]

    def _at(self, t: Floats, x: Floats, u: Floats, p: Floats, memory: Floats) -> Instance:
        """An instance at a state."""
        instance, initial = self._instance(p)
        if self.keeps_memory:
            instance.restore(_bytes(memory, len(initial)) if len(memory) else initial)
        instance.set_time(float(t))
        instance.set_states(x)
        instance.set(dict(zip(self.of_inputs, u.tolist(), strict=True)))
        return instance

    # --- at the start -----------------------------------------------------------------------------------

    def initial(self, p: Floats) -> tuple[Floats, Floats, Floats]:
        """The continuous states, the signs of the event indicators, and the memory."""
        with self.lock:
            instance, content = self._instance(p)
            if self.kind == "co-simulation":
                return np.zeros(0), np.zeros(0), _numbers(content)
            if self.keeps_memory:
                instance.restore(content)
            x = instance.states(len(self.of_states))
            return x, _signs(instance.indicators(self.description.indicators)), _numbers(content)

    def begun(self, t: Floats, x: Floats, u: Floats, p: Floats) -> Floats:
        """The states of the part `(x, signs, memory)` at the start of a motion."""
        with self.lock:
            instance = self._at(t, x, u, p, np.zeros(0))
            return np.concatenate([x, _signs(instance.indicators(self.description.indicators)),
                                   _numbers(instance.saved())])  # fmt: skip

    # --- model exchange ---------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How many numbers `evaluated` returns."""
        return len(self.of_rates) + len(self.of_outputs)

    def evaluated(self, t: Floats, x: Floats, u: Floats, p: Floats, memory: Floats) -> Floats:
        """The rates of the states and the outputs."""
        if not all(np.isfinite(of).all() for of in (t, x, u, p)):
            return np.full(self.size, np.nan)
        with self.lock:
            try:
                instance = self._at(t, x, u, p, memory)
                return np.concatenate([instance.rates(len(self.of_rates)), instance.get(self.of_outputs)])
            except DiscardedError:
                return np.full(self.size, np.nan)

    def indicated(self, t: Floats, x: Floats, u: Floats, p: Floats, memory: Floats) -> Floats:
        """The event indicators; of one that is exactly zero what it becomes, so that only those that stay are zero."""
        count = self.description.indicators
        if not all(np.isfinite(of).all() for of in (t, x, u, p)):
            return np.full(count, np.nan)
        with self.lock:
            try:
                instance = self._at(t, x, u, p, memory)
                found = instance.indicators(count)
                if (found == 0).any():
                    rates, step = instance.rates(len(self.of_rates)), _AHEAD * max(1.0, abs(float(t)))
                    for _ in range(_FEW):
                        step *= 2
                        instance.set_states(x + step * rates)
                        found = np.where(found == 0, instance.indicators(count), found)
                return found
            except DiscardedError:
                return np.full(count, np.nan)

    def indicated_change(
        self, t: Floats, x: Floats, u: Floats, p: Floats, memory: Floats, dt: Floats, dx: Floats, du: Floats
    ) -> Floats:
        """The rates of the event indicators along a direction, by differences: FMI has no derivatives of them that all
        FMUs offer, and the rates but tell on which side an indicator leaves zero."""
        size = max(1.0, *(float(np.max(np.abs(d), initial=0.0)) for d in (dt, dx, du)))
        h = _DIFFERENCE * max(1.0, float(np.max(np.abs(x), initial=0.0))) / size
        ahead, behind = (self.indicated(t + s * dt, x + s * dx, u + s * du, p, memory) for s in (h, -h))
        return (ahead - behind) / (2 * h)

    def jacobian(self, t: Floats, x: Floats, u: Floats, p: Floats, memory: Floats) -> Floats:
        """The derivatives of what `evaluated` returns by the time, states, inputs and parameters."""
        knowns = (*self.of_states, *self.of_inputs, *self.of_parameters)
        found = np.full((self.size, 1 + len(knowns)), np.nan)
        if not all(np.isfinite(of).all() for of in (t, x, u, p)):
            return found
        with self.lock:
            asks_time = self._time is not None and self.derivative_by_time  # by an instance that may fail
            try:
                instance = self._at(t, x, u, p, memory)
                found[:, 0] = self._by(instance, self._time) if asks_time and self._time is not None else 0.0
                for k, known in enumerate(knowns, 1):
                    found[:, k] = self._by(instance, known)
            except DiscardedError:
                pass
        return found

    def _by(self, instance: Instance, known: int) -> Floats:
        """The derivatives by one variable. Those of variables that are no rates or outputs by themselves are known."""
        unknowns = (*self.of_rates, *self.of_outputs)
        given = {*self.of_states, *self.of_inputs, *self.of_parameters}
        asked = [k for k, one in enumerate(unknowns) if one not in given]
        found = np.array([float(one == known) for one in unknowns])
        if asked:
            found[asked] = instance.directional([unknowns[k] for k in asked], known)
        return found

    @cached_property
    def _time(self) -> int | None:
        """The value reference of the time; None if nothing depends on it, as far as is told."""
        names = self.description.named("independent")
        if not names:
            return None
        reference, depend = self.description.variables[names[0]].reference, self.description.dependencies
        unknowns = {*self.of_rates, *self.of_outputs} - {*self.of_states}
        told = all(one in depend and reference not in depend[one] for one in unknowns)
        return None if told else reference

    @cached_property
    def derivative_by_time(self) -> bool:
        """True if the FMU gives derivatives by the time. One that does not, and whose values at a state are the same at
        other times, does not depend on it."""
        return self._time is not None and self.gives_derivative(self._time)

    def gives_derivative(self, known: int) -> bool:
        """True if the FMU computes the derivatives by a variable, asked at its start."""
        with self.lock:
            instance, _ = self._instance(self._start_values)
            try:
                self._by(instance, known)
            except (SolveError, DiscardedError):
                return False
            return True

    def agrees(self, value: float) -> bool:
        """True if the derivatives by the only parameter, at a value of it, are those that differences show.

        In FMI 3.0 those by parameters that are not tunable are asked during initialization alone, and FMUs return zeros
        at other times, without an error.
        """
        x, _, memory = self.initial(np.array([value]))
        u = np.array([self.description.variables[name].start or 0.0 for name in self.inputs])
        h = _DIFFERENCE * max(1.0, abs(value))
        for by in (np.zeros(len(x)), 0.1 * (1 + np.abs(x)) * np.cos(1.0 + np.arange(len(x)))):
            at = lambda p, by=by: (np.asarray(self.start), x + by, u, np.array([p]), memory[:0])  # noqa: E731
            try:
                ahead, behind = (self.evaluated(*at(value + s)) for s in (h, -h))
                found, right = self.jacobian(*at(value))[:, -1], (ahead - behind) / (2 * h)
            except SolveError:  # this state is none of the model's
                continue
            size = np.max(np.abs(right), initial=1.0)
            if np.isfinite(right).all() and not np.allclose(found, right, rtol=1e-4, atol=1e-5 * size):
                return False
        return True

    @property
    def _start_values(self) -> Floats:
        starts = (self.description.variables[name].start for name in self.parameters)
        return np.array([0.0 if start is None else start for start in starts])

    def check_autonomous(self) -> None:
        """Raise if the FMU depends on the time, and does not give the derivatives by it."""
        if self._time is None or self.derivative_by_time:
            return
        p = self._start_values
        x, _, memory = self.initial(p)
        u = np.array([self.description.variables[name].start or 0.0 for name in self.inputs])
        values = [self.evaluated(np.asarray(self.start + dt), x, u, p, memory) for dt in (0.0, 0.1234, 1.7)]
        if any(not np.array_equal(values[0], other) for other in values[1:]):
            raise MechanismError(
                f"{self.label} depends on the time and refuses "
                f"fmi{self.description.version[0]}GetDirectionalDerivative by it, though it says that it has "
                "derivatives."
            )

    def event(
        self, t: Floats, x: Floats, u: Floats, p: Floats, signs: Floats, memory: Floats, which: Floats
    ) -> Floats:  # fmt: skip
        """The states of the part `(x, signs, memory)` after the event at which an indicator changes its sign."""
        before = np.concatenate([x, signs, memory])
        if not all(np.isfinite(of).all() for of in (t, x, u, p)):
            return np.full_like(before, np.nan)
        k, count = int(which), self.description.indicators
        with self.lock:
            try:
                instance, step = self._at(t, x, u, p, memory), _AHEAD * max(1.0, abs(float(t)))
                rates = instance.rates(len(self.of_rates))
                # The time is found but for rounding, and the FMU itself asks on which side of zero it is.
                for _ in range(_DOUBLINGS):
                    if signs[k] * instance.indicators(count)[k] <= 0 and not (
                        signs[k] < 0 and instance.indicators(count)[k] == 0
                    ):
                        break
                    step *= 2
                    instance.set_states(x + step * rates)
                instance.event()
                after = instance.states(len(self.of_states))
                return np.concatenate([after, _signs(instance.indicators(count)), _numbers(instance.saved())])
            except DiscardedError:
                return np.full_like(before, np.nan)

    # --- co-simulation ----------------------------------------------------------------------------------

    def sampled(self, t: Floats, length: Floats, u: Floats, p: Floats, memory: Floats, is_first: Floats) -> Floats:
        """The outputs, and the memory, at an instant, after the step to it from the one before."""
        size = len(self.of_outputs) + len(memory)
        if not all(np.isfinite(of).all() for of in (t, length, u, p)):
            return np.full(size, np.nan)
        with self.lock:
            instance, initial = self._instance(p)
            instance.restore(initial if is_first else _bytes(memory, len(initial)))
            try:
                if not is_first:
                    instance.step(float(t - length), float(length))
                instance.set(dict(zip(self.of_inputs, u.tolist(), strict=True)))
                return np.concatenate([instance.get(self.of_outputs), _numbers(instance.saved())])
            except DiscardedError:
                return np.full(size, np.nan)


def _signs(indicators: Floats) -> Floats:
    return np.where(indicators > 0, 1.0, -1.0)


def _numbers(content: bytes) -> Floats:
    """Bytes as numbers, six in each."""
    padded = np.frombuffer(content.ljust(-(-len(content) // _BYTES) * _BYTES, b"\0"), np.uint8)
    return padded.reshape(-1, _BYTES).astype(np.float64) @ 256.0 ** np.arange(_BYTES)


def _bytes(numbers: Floats, size: int) -> bytes:
    """The bytes of numbers."""
    whole = np.rint(numbers).astype(np.uint64)
    shifts = (8 * np.arange(_BYTES)).astype(np.uint64)
    return (whole[:, None] >> shifts & np.uint64(255)).astype(np.uint8).tobytes()[:size]
