"""One `simulate` of a mechanism that this process has not seen: `python -m benchmarks.first_call NAME DEVICE`.

Prints one line of JSON: the seconds that importing, making the mechanism and assembling it, the first `simulate` and
a second one take. The workload `first` runs it in fresh processes.
"""

import json
import sys
import time


def main(name: str, device: str) -> None:
    """Time the stages and print them."""
    started = time.perf_counter()
    import jax
    import numpy as np

    import jaxmbd as mbd
    from benchmarks.devices import use_device

    imported = time.perf_counter()
    use_device(device)
    example = mbd.examples.get(name)
    state = example.state()
    jax.block_until_ready(state.q)
    assembled = time.perf_counter()
    times = [assembled]
    for _ in range(2):
        jax.block_until_ready(mbd.simulate(example.mechanism, state, np.array([0.0, 0.1])).q)
        times.append(time.perf_counter())
    stages = {
        "import": imported - started, "assemble": assembled - imported,
        "simulate": times[1] - times[0], "again": times[2] - times[1],
    }  # fmt: skip
    print(json.dumps(stages))


if __name__ == "__main__":
    main(*sys.argv[1:])
