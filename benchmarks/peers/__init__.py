"""The programs this library is compared with, each behind the same function `runs(problem)`."""

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.bricard import Ring
from benchmarks.measure import Run
from benchmarks.problems import Problem


@dataclass(frozen=True)
class Peer:
    """A peer's module below this package, the packages it imports and what to install for it."""

    module: str
    needs: tuple[str, ...]
    install: str

    def load(self) -> Callable[[Problem | Ring], Iterable[Run]]:
        """Its `runs` function; raises ImportError where a package it needs is not there."""
        for package in self.needs:
            importlib.import_module(package)
        return importlib.import_module(f"benchmarks.peers.{self.module}").runs


PEERS = {
    "pinocchio": Peer("peer_pinocchio", ("pinocchio",), "pip install pin"),
    "mujoco": Peer("peer_mujoco", ("mujoco",), "pip install mujoco"),
    "exudyn": Peer("peer_exudyn", ("exudyn",), "pip install exudyn"),
    "drake": Peer("peer_drake", ("pydrake",), "pip install drake"),
    "pydy": Peer("peer_pydy", ("sympy", "pydy", "Cython"), "pip install pydy cython"),
    "sympy": Peer("peer_sympy", ("sympy", "scipy"), "pip install sympy scipy"),
}
