"""Scripts that run in a process with several devices, for which parts of the processor stand."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

BEGIN = """
import json
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import jaxmbd as mbd
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from jaxmbd import planar as pl
from jaxmbd import spatial as sp

def mesh_of(kind, *sizes):
    return jax.make_mesh(sizes, ("batch", "other")[: len(sizes)], axis_types=(kind,) * len(sizes))

AUTO, EXPLICIT = (mesh_of(kind, jax.device_count()) for kind in (AxisType.Auto, AxisType.Explicit))

def over(mesh, x):
    return jax.device_put(x, NamedSharding(mesh, P("batch")))

def is_over(x):  # as many parts as devices along the first axis
    parts = {(x.sharding.shard_shape(x.shape)[0], *x.shape[1:])}
    return parts == {(x.shape[0] // jax.device_count(), *x.shape[1:])}
"""


def on_devices(count: int, script: str) -> Any:
    """What the script leaves in `found`; `AUTO` and `EXPLICIT` are meshes of all devices, along `"batch"`."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", f"{BEGIN}\n{script}\nprint(json.dumps(found))"]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "rematerialization" not in done.stderr, done.stderr  # XLA's warning of arrays that are copied to one device
    return json.loads(done.stdout)
