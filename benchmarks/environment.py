"""Where the numbers come from: machine, versions, date."""

import importlib.metadata
import os
import platform
from datetime import date
from pathlib import Path
from typing import Any

import jax

PACKAGES = (
    "jaxmbd", "jax", "jaxlib", "diffrax", "numpy", "scipy", "pin", "mujoco", "mujoco-mjx", "exudyn", "drake", "pydy",
    "sympy",
)  # fmt: skip


def environment() -> dict[str, Any]:
    """The machine and the versions: CPU, number of cores, JAX's device, Python, packages (None: not there), date."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "device": jax.devices()[0].device_kind,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {package: version(package) for package in PACKAGES},
        "date": date.today().isoformat(),
    }


def version(package: str) -> str | None:
    """The version that is installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cpu_name() -> str:
    """The processor's name as the operating system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
