"""Measured data that are part of the package; sources and licences are in the same folders."""

from importlib import resources

import numpy as np


def double_pendulum() -> dict[str, np.ndarray]:
    """Return 26 measured free swings of a double pendulum, 2.666 s each at 1 kHz.

    **Returns:** `t (2667,)` [s], `t_start (26,)` [s], `theta1`, `theta2 (26, 2667)` [rad] from the upright vertical
    (π hangs down), `omega1`, `omega2` [rad/s].

        >>> from jaxmbd import data
        >>> data.double_pendulum()["theta1"].shape
        (26, 2667)

    Source: Kaheman et al., arXiv:2205.06231 (MIT licence); see `data/double_pendulum/README.md`.
    """
    with (resources.files(__name__) / "double_pendulum" / "segments.npz").open("rb") as file:
        return {name: values.astype(float) for name, values in np.load(file).items()}


def driven_pendulum() -> dict[str, np.ndarray]:
    """Return a measured run of a torque-driven pendulum with friction, 3.9 s.

    **Returns:** `t`, `angle` [rad] (0 hangs down), `rate` [rad/s], `torque` [N m], each `(1170,)`.

        >>> from jaxmbd import data
        >>> {name: values.shape for name, values in data.driven_pendulum().items()}
        {'t': (1170,), 'angle': (1170,), 'rate': (1170,), 'torque': (1170,)}

    Source: Wiebe et al., Journal of Open Source Software 7 (2022) 3884 (BSD-3); see `data/driven_pendulum/README.md`.
    """
    with (resources.files(__name__) / "driven_pendulum" / "measured.csv").open("rb") as file:
        t, angle, rate, torque = np.loadtxt(file, delimiter=",", skiprows=1).T
    return {"t": t, "angle": angle, "rate": rate, "torque": torque}


def dfki_double_pendulum() -> dict[str, dict[str, np.ndarray]]:
    """Return ten measured runs of a torque-driven double pendulum, of 10 s and 6 s at 200 Hz.

    **Returns:** by the name of the record: `t` [s], `q1`, `q2` [rad] (0 hangs down, `q2` relative to the upper link),
    `u1`, `u2` [N m], the motors' torques at shoulder and elbow, each `(samples,)`.

        >>> from jaxmbd import data
        >>> len(data.dfki_double_pendulum())
        10

    Source: Wiebe et al., IEEE Robotics & Automation Magazine 31 (2024) (BSD-3); see
    `data/dfki_double_pendulum/README.md`.
    """
    with (resources.files(__name__) / "dfki_double_pendulum" / "records.npz").open("rb") as file:
        records = {name: values.astype(float) for name, values in np.load(file).items()}
    return {
        name: dict(zip(("t", "q1", "q2", "u1", "u2"), (0.005 * np.arange(values.shape[1]), *values), strict=True))
        for name, values in records.items()
    }
