"""The code of a Functional Mock-up Unit in this process: its functions by ctypes, and instances of the model.

FMI 2.0 and 3.0 have the same functions with other names and arguments; an `Instance` has one method for both. To load
the code runs it, with all rights of the process.
"""

import ctypes
import platform
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from jaxmbd.errors import MechanismError, SolveError, printable
from jaxmbd.io.fmu.export import PROCESSORS, SYSTEMS
from jaxmbd.io.fmu.unit import FmuDescription

Floats = np.ndarray
_OK, _WARNING, _DISCARD = 0, 1, 2
_MOST_ROUNDS = 100  # of an iteration of discrete states
_LONGEST = 400  # characters of a message of an FMU
_DOUBLES, _SIZE = ctypes.POINTER(ctypes.c_double), ctypes.c_size_t
_REFERENCES = ctypes.POINTER(ctypes.c_uint32)
_LOG_3 = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
# The arguments behind these are as many as the message has places: they are left where they are.
_LOG_2 = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p
)  # fmt: skip
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, _SIZE, _SIZE)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Callbacks(ctypes.Structure):
    _fields_ = (
        ("logger", _LOG_2), ("allocate", _ALLOCATE), ("free", _FREE), ("finished", ctypes.c_void_p),
        ("environment", ctypes.c_void_p),
    )  # fmt: skip


class _EventInfo(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in ("needed", "terminate", "nominals", "values", "timed")),
        ("time", ctypes.c_double),
    )


class DiscardedError(Exception):
    """An FMU that cannot compute at a state: an integrator tries a shorter step."""


def library_in(folder: Path, description: FmuDescription, identifier: str) -> Path:
    """The path of the binary for this computer.

    **Raises:** `MechanismError` if the FMU has none.
    """
    processor = PROCESSORS.get(platform.machine().lower(), platform.machine().lower())
    called, ending = SYSTEMS.get(platform.system(), (platform.system().lower(), ".so"))
    if description.version.startswith("3"):
        place = f"{processor}-{'windows' if called == 'win' else called}"
    else:
        place = f"{called}{'64' if processor.endswith('64') else '32'}"
    path = folder / "binaries" / place / (identifier + ending)
    if not path.is_file():
        found = sorted(x.name for x in (folder / "binaries").glob("*")) if (folder / "binaries").is_dir() else []
        raise MechanismError(
            f"FMU {description.path.name!r} has no binary for this computer, binaries/{place}/{path.name}; it has "
            f"{', '.join(found) or 'none at all, its source alone'}. Compile its source, or export it again here."
        )
    return path


class Binary:
    """The functions of an FMU. `kind`: `"model exchange"` or `"co-simulation"`."""

    def __init__(self, folder: Path, description: FmuDescription, kind: str) -> None:
        self.folder, self.description, self.kind = folder, description, kind
        self.is_3 = description.version.startswith("3")
        self.label = f"FMU {description.path.name!r}"
        path = library_in(folder, description, description.kinds[kind].identifier)
        try:
            self.library = ctypes.CDLL(str(path))
        except OSError as error:
            raise MechanismError(f"{self.label}: its binary cannot be loaded: {error}") from None

    def function(self, name: str, *arguments: Any, returns: Any = ctypes.c_int) -> Any:
        """A function by its name without `fmi3`, with the types of its arguments."""
        full = f"fmi{3 if self.is_3 else 2}{name}"
        try:
            found = getattr(self.library, full)
        except AttributeError:
            raise MechanismError(f"{self.label}: its binary lacks the function {full}.") from None
        found.argtypes, found.restype = arguments, returns
        return found


class Instance:
    """An instance of a model, which is initialized at a time with start values by value reference."""

    def __init__(self, binary: Binary, t: float, values: Mapping[int, float]) -> None:
        self.binary, self.is_3, self.messages = binary, binary.is_3, list[str]()
        self.has_failed = False  # after an error it can but be freed
        self._kept: list[Any] = []  # callbacks live as long as the instance
        self._functions: dict[str, Any] = {}
        self.pointer = self._instantiated()
        if not self.pointer:
            raise self._failure("Instantiate", "it made no instance: perhaps its token or a resource is not as told")
        try:
            self._initialize(t, values)
        except BaseException:
            self.free()
            raise

    # --- life -------------------------------------------------------------------------------------------

    def _instantiated(self) -> Any:
        token, exchange = self.binary.description.token.encode(), self.binary.kind == "model exchange"
        resources = self.binary.folder / "resources"
        if self.is_3:
            log = _LOG_3(lambda _, status, category, text: self._note(status, text))
            self._kept = [log]
            kinds = ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_bool, ctypes.c_bool
            place = (str(resources) + "/").encode() if resources.is_dir() else None
            head = b"jaxmbd", token, place, False, False
            if exchange:
                make = self.binary.function(
                    "InstantiateModelExchange", *kinds, ctypes.c_void_p, _LOG_3, returns=ctypes.c_void_p
                )
                return make(*head, None, log)
            make = self.binary.function(
                "InstantiateCoSimulation", *kinds, ctypes.c_bool, ctypes.c_bool, _REFERENCES, _SIZE, ctypes.c_void_p,
                _LOG_3, ctypes.c_void_p, returns=ctypes.c_void_p,
            )  # fmt: skip
            return make(*head, False, False, None, 0, None, log, None)
        standard = ctypes.CDLL(None) if platform.system() != "Windows" else ctypes.cdll.msvcrt
        allocate, free = ctypes.cast(standard.calloc, _ALLOCATE), ctypes.cast(standard.free, _FREE)
        log = _LOG_2(lambda _, name, status, category, text: self._note(status, text))
        callbacks = _Callbacks(log, allocate, free, None, None)
        self._kept = [log, allocate, free, callbacks]
        make = self.binary.function(
            "Instantiate", ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p,
            ctypes.POINTER(_Callbacks), ctypes.c_int, ctypes.c_int, returns=ctypes.c_void_p,
        )  # fmt: skip
        return make(b"jaxmbd", int(not exchange), token, resources.as_uri().encode(), callbacks, 0, 0)

    def _initialize(self, t: float, values: Mapping[int, float]) -> None:
        if not self.is_3:
            self._call("SetupExperiment", (ctypes.c_int, 0), (ctypes.c_double, 0.0), (ctypes.c_double, t),
                       (ctypes.c_int, 0), (ctypes.c_double, 0.0))  # fmt: skip
        self.set(values)
        if self.is_3:
            self._call("EnterInitializationMode", (ctypes.c_bool, False), (ctypes.c_double, 0.0), (ctypes.c_double, t),
                       (ctypes.c_bool, False), (ctypes.c_double, 0.0))  # fmt: skip
        else:
            self._call("EnterInitializationMode")
        self._call("ExitInitializationMode")
        self.next_event: float | None = None
        if self.binary.kind == "model exchange":
            self._update_discrete()

    def free(self) -> None:
        """Free the instance; it cannot be used any more."""
        if self.pointer:
            self.binary.function("FreeInstance", ctypes.c_void_p, returns=None)(self.pointer)
            self.pointer = None

    # --- model exchange ---------------------------------------------------------------------------------

    def set_time(self, t: float) -> None:
        """Set the time [s]."""
        self._call("SetTime", (ctypes.c_double, t))

    def set_states(self, x: Floats) -> None:
        """Set the continuous states."""
        if len(x):
            self._call("SetContinuousStates", *_array(np.array(x, np.float64)))

    def states(self, count: int) -> Floats:
        """The continuous states."""
        return self._read("GetContinuousStates", count)

    def rates(self, count: int) -> Floats:
        """The rates of the continuous states."""
        return self._read("GetContinuousStateDerivatives" if self.is_3 else "GetDerivatives", count)

    def indicators(self, count: int) -> Floats:
        """The event indicators."""
        return self._read("GetEventIndicators", count)

    def event(self) -> None:
        """An event: the discrete states are computed anew."""
        self._call("EnterEventMode")
        self._update_discrete()

    def _update_discrete(self) -> None:
        for _ in range(_MOST_ROUNDS):
            if self.is_3:
                flags, time = [ctypes.c_bool() for _ in range(5)], ctypes.c_double()
                self._call(
                    "UpdateDiscreteStates", *((ctypes.POINTER(ctypes.c_bool), ctypes.byref(x)) for x in flags),
                    (_DOUBLES, ctypes.byref(time)),
                )  # fmt: skip
                needed, terminates, _, _, timed = (x.value for x in flags)
                next_time = time.value
            else:
                info = _EventInfo()
                self._call("NewDiscreteStates", (ctypes.POINTER(_EventInfo), ctypes.byref(info)))
                needed, terminates, timed, next_time = info.needed, info.terminate, info.timed, info.time
            if terminates:
                raise self._failure("UpdateDiscreteStates", "it asks to end the simulation")
            if not needed:
                self.next_event = next_time if timed else None
                return self._call("EnterContinuousTimeMode")
        raise self._failure("UpdateDiscreteStates", f"its discrete states still change after {_MOST_ROUNDS} rounds")

    # --- variables --------------------------------------------------------------------------------------

    def set(self, values: Mapping[int, float]) -> None:
        """Set variables by their value references."""
        if values:
            content = _array(np.array([*values.values()], np.float64))
            sizes = (content[1],) if self.is_3 else ()
            arguments = (*_references([*values]), content[0], *sizes)
            self._call("SetFloat64" if self.is_3 else "SetReal", *arguments)

    def get(self, references: Sequence[int]) -> Floats:
        """The values of variables."""
        found = np.zeros(len(references))
        if len(references):
            pointer, size = _array(found)
            sizes = (size,) if self.is_3 else ()
            self._call("GetFloat64" if self.is_3 else "GetReal", *_references(references), pointer, *sizes)
        return found

    def directional(self, unknowns: Sequence[int], known: int) -> Floats:
        """The derivatives of some variables by one."""
        found, seed = np.zeros(len(unknowns)), np.ones(1)
        given, result = _array(seed), _array(found)
        if not self.is_3:
            given, result = given[:1], result[:1]
        arguments = (*_references(unknowns), *_references([known]), *given, *result)
        self._call("GetDirectionalDerivative", *arguments)
        return found

    # --- co-simulation ----------------------------------------------------------------------------------

    def step(self, t: float, length: float) -> None:
        """Advance from a time by a length [s]."""
        head = (ctypes.c_double, t), (ctypes.c_double, length)
        if not self.is_3:
            return self._call("DoStep", *head, (ctypes.c_int, 0))
        flags, time = [ctypes.c_bool() for _ in range(3)], ctypes.c_double()
        pointers = [(ctypes.POINTER(ctypes.c_bool), ctypes.byref(x)) for x in flags]
        self._call("DoStep", *head, (ctypes.c_bool, False), *pointers, (_DOUBLES, ctypes.byref(time)))
        if flags[1].value:
            raise self._failure("DoStep", "it asks to end the simulation")
        if flags[2].value:
            raise self._failure("DoStep", f"it stopped at {time.value:g} s, before {t + length:g} s")

    # --- the whole inner state --------------------------------------------------------------------------

    def saved(self) -> bytes:
        """The inner state of the model as bytes."""
        state, size = ctypes.c_void_p(), _SIZE()
        name = "State" if self.is_3 else "state"
        pointer = ctypes.POINTER(ctypes.c_void_p)
        self._call(f"GetFMU{name}", (pointer, ctypes.byref(state)))
        with self._freed(name, state):
            self._call(
                f"SerializedFMU{name}Size", (ctypes.c_void_p, state), (ctypes.POINTER(_SIZE), ctypes.byref(size))
            )
            content = (ctypes.c_char * size.value)()
            self._call(f"SerializeFMU{name}", (ctypes.c_void_p, state), (ctypes.c_void_p, content), (_SIZE, size.value))
        return bytes(content)

    def restore(self, content: bytes) -> None:
        """Put the model into a state that was saved."""
        state, name, pointer = ctypes.c_void_p(), "State" if self.is_3 else "state", ctypes.POINTER(ctypes.c_void_p)
        read = "DeserializeFMUState" if self.is_3 else "DeSerializeFMUstate"
        self._call(read, (ctypes.c_char_p, content), (_SIZE, len(content)), (pointer, ctypes.byref(state)))
        with self._freed(name, state):
            self._call(f"SetFMU{name}", (ctypes.c_void_p, state))

    @contextmanager
    def _freed(self, name: str, state: ctypes.c_void_p) -> Any:
        try:
            yield
        finally:
            self._call(f"FreeFMU{name}", (ctypes.POINTER(ctypes.c_void_p), ctypes.byref(state)))

    # --- calls ------------------------------------------------------------------------------------------

    def _read(self, name: str, count: int) -> Floats:
        found = np.zeros(count)
        if count:
            self._call(name, *_array(found))
        return found

    def _call(self, name: str, *arguments: tuple[Any, Any]) -> None:
        function = self._functions.get(name)
        if function is None:
            function = self.binary.function(name, ctypes.c_void_p, *(kind for kind, _ in arguments))
            self._functions[name] = function
        self.messages.clear()
        status = function(self.pointer, *(value for _, value in arguments))
        if status == _DISCARD:
            raise DiscardedError(str(self._failure(name, "it cannot compute at this state")))
        if status not in (_OK, _WARNING):
            self.has_failed = True
            raise self._failure(name, f"it returns the status {status}, an error")

    def _note(self, status: int, text: bytes | None) -> None:
        if status > _WARNING and text:
            self.messages.append(printable(text.decode("utf-8", "replace"))[:_LONGEST])

    def _failure(self, name: str, text: str) -> SolveError:
        said = f": {' '.join(self.messages)}" if self.messages else "."
        return SolveError(f"{self.binary.label}, fmi{3 if self.is_3 else 2}{name}: {text}{said}")


def _array(values: Floats) -> list[tuple[Any, Any]]:
    """A pointer to numbers and their count, as arguments; `values` must live until the call is over."""
    return [(_DOUBLES, values.ctypes.data_as(_DOUBLES)), (_SIZE, len(values))]


def _references(references: Sequence[int]) -> list[tuple[Any, Any]]:
    return [(_REFERENCES, (ctypes.c_uint32 * len(references))(*references)), (_SIZE, len(references))]
