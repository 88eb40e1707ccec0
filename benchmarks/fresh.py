"""Measurements in a process of their own: a module that prints one line of JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.options import Record

REPOSITORY = Path(__file__).parents[1]


def fresh_process(
    module: str, *arguments: str, limit: float = 300.0, variables: Mapping[str, str] | None = None
) -> Record:
    """What the module, or the script of that path, prints; `failure` says what went wrong, also where it takes longer
    than `limit` [s].

    Of JAX's variables those about its cache on disk are not handed on, but for those given here. Modules are kept as
    bytecode, as those of an installed package are.
    """
    program = ["-P", module] if module.endswith(".py") else ["-m", module]
    dropped = lambda key: key == "PYTHONDONTWRITEBYTECODE" or (key.startswith("JAX") and "CACHE" in key)  # noqa: E731
    kept = {key: value for key, value in os.environ.items() if not dropped(key)}
    try:
        done = subprocess.run(
            [sys.executable, *program, *arguments], env=kept | dict(variables or {}), cwd=REPOSITORY,
            capture_output=True, text=True, check=False, timeout=limit,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"failure": f"given up after {limit:.0f} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"failure": lines[-1] if lines else f"ended with {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1]) | {"failure": ""}
