"""One command in a process of its own: `python -P command_call.py --help`, or `... check slider-crank`.

Prints one line of JSON: CPU and wall seconds of the command, `{"command": [cpu, wall], ...}`; of a process that only
imports JAX; and, in a further run, what the imports of the command take by themselves, by
the package of each module. It imports nothing of this folder, so that it measures any version of jaxmbd: the one on
`PYTHONPATH`.
"""

import json
import os
import re
import resource
import subprocess
import sys
import time

GROUPS = ("jax", "jaxlib", "jaxmbd")  # what is told apart; all others are together
IMPORTED = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")


def seconds(*arguments: str) -> list[float]:
    """CPU and wall seconds of Python with these arguments."""
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(done.stderr.decode().strip())
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return [user + system, time.perf_counter() - wall]


def imports(*arguments: str) -> dict[str, float]:
    """Wall seconds of the modules that Python imports with these arguments, without those that they import."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True
    )
    found: dict[str, float] = dict.fromkeys((*GROUPS, "others"), 0.0)
    for microseconds, module in IMPORTED.findall(done.stderr.decode()):
        package = module.partition(".")[0]
        found[package if package in GROUPS else "others"] += 1e-6 * int(microseconds)
    return found


if __name__ == "__main__":
    command = ("-P", "-m", "jaxmbd", *sys.argv[1:])
    os.environ.setdefault("JAXMBD_PROGRESS", "0")
    seconds(*command)  # the model is known from now on
    result = {"command": seconds(*command), "import jax": seconds("-c", "import jax"), "imports": imports(*command)}
    print(json.dumps(result))
