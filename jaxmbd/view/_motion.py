"""One motion as data of the page: poses over time, and what moves with them."""

import math
from collections.abc import Sequence

import numpy as np

from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.errors import MechanismError
from jaxmbd.scene.motion import divided, poses_at, rotations
from jaxmbd.scene.pieces import BODIES
from jaxmbd.scene.recording import coordinates_at, scene_of, until_failure
from jaxmbd.scene.scene import Scene
from jaxmbd.view._numbers import Numbers, Reference
from jaxmbd.view._pieces import piece_data, place_data

_LEAST_FRAMES, _MOST_FRAMES = (
    400,
    4000,
)  # where a motion has fewer saved times, they are divided, up to the second number
_TURN = math.radians(5.0)  # the largest rotation between two frames: the page goes straight from one to the next
_LENGTH = 1e-3  # positions are rounded to this, in symbol sizes: a pixel, magnified twenty times
_ANGLE = 2e-5  # [rad] rotations are rounded to this


class Recording:
    """A motion with its scene at the times of frames `(frames,)` [s] and its poses `(frames, bodies, pose)`.

    `size` [m] of symbols: the scene's own unless given. The poses are those of the bodies and, after them, of markers
    that move on bodies or the ground. A motion that failed is shown until then, and a `remark` says why it ended.
    """

    def __init__(
        self,
        name: str,
        solution: Solution,
        reactions: Sequence[str],
        trace: Sequence[str],
        size: float | None = None,
    ) -> None:
        self.name = name
        solution, self.remark = until_failure(solution)
        self.times, poses = _frames(solution)
        self.scene = scene_of(solution, reactions, trace, self.times, size)
        dim = self.scene.geometry.dim
        self.positions, self.turns = poses[..., :dim], _continuous(poses[..., dim:])
        for arrow in self.scene.arrows:
            if not np.isfinite(arrow.forces).all():
                when = self.times[~np.isfinite(arrow.forces).all(axis=1)][0]
                raise MechanismError(
                    f"The force of {arrow.part!r} is not finite at t = {when:g} s: it cannot be shown."
                )

    def data(self, numbers: Numbers, colour: str | None, scales: dict[tuple[str, str], float]) -> dict[str, object]:
        """The motion for the page; `colour` for all bodies, or None; `scales` [N/m] of arrows, by part and colour."""
        scene, size = self.scene, self.scene.size
        arrows = [
            {
                "part": arrow.part,
                "start": place_data(arrow.place),
                "colour": arrow.colour,
                "vectors": numbers.track(arrow.forces / scales[arrow.part, arrow.colour], 10 * _LENGTH * size),
            }
            for arrow in scene.arrows
        ]
        return {
            "name": self.name,
            "colour": colour,
            "frames": self.positions.shape[1],
            "times": times_data(self.times, numbers),
            "positions": numbers.track(self.positions, _LENGTH * size),
            "turns": numbers.track(self.turns, _ANGLE),
            "arrows": arrows,
            **scene_data(scene, numbers, colour),
        }


def scene_data(scene: Scene, numbers: Numbers, colour: str | None) -> dict[str, object]:
    """What of a scene does not depend on the time: pieces, paths and labels; `colour` for all bodies, or None."""
    return {
        "size": scene.size,
        "bodies": [body.name for body in scene.geometry.mechanism.bodies],
        "pieces": [piece_data(piece, scene.geometry, numbers, colour) for piece in scene.pieces],
        "traces": [
            {
                "points": numbers.track(trace.points, _LENGTH * scene.size),
                "perFrame": trace.per_frame,
                "colour": colour or trace.colour,
            }
            for trace in scene.traces
        ],
        "labels": [
            {
                "text": label.text,
                "start": place_data(label.place),
                "shift": list(label.shift),
                "colour": colour if colour and label.colour in BODIES else label.colour,
                "isBody": label.is_body,
            }
            for label in scene.labels()
        ],
    }


def times_data(times: np.ndarray, numbers: Numbers) -> Reference:
    """Times [s], to a few parts in 10⁹ of their span."""
    return numbers.track(times, 1e-9 * float(np.ptp(times)) or 1.0)


def common_scales(scenes: Sequence[Scene]) -> dict[tuple[str, str], float]:
    """The scale [N/m] of each arrow, by part and colour, that all scenes share: that of the largest force."""
    scales: dict[tuple[str, str], float] = {}
    for arrow in (arrow for scene in scenes for arrow in scene.arrows):
        key = arrow.part, arrow.colour
        scales[key] = max(arrow.scale, scales.get(key, 0.0))
    return scales


def _frames(solution: Solution) -> tuple[np.ndarray, np.ndarray]:
    """The times of frames, which hold the saved times, and the poses at them, without the ground's."""
    ts = np.asarray(solution.ts, dtype=float)
    gaps = max(len(ts) - 1, 1)
    parts = math.ceil(_LEAST_FRAMES / gaps) if len(ts) > 1 else 1
    times, poses = _divided_motion(solution, ts, parts)
    finer = min(math.ceil(_largest_turn(solution, poses) / _TURN), max(_MOST_FRAMES // (gaps * parts), 1))
    return _divided_motion(solution, ts, parts * finer) if finer > 1 else (times, poses)


def _divided_motion(solution: Solution, ts: np.ndarray, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """The saved times with the intervals between them divided, and the poses at them."""
    times = divided(ts, parts)
    return times, poses_at(solution.mechanism, times, coordinates_at(solution, times))[:, :-1]


def _largest_turn(solution: Solution, poses: np.ndarray) -> float:
    """The largest rotation [rad] of a body between two frames."""
    dim = solution.mechanism.space.dim
    R = rotations(poses[..., dim:])
    cosines = (np.einsum("tbij,tbij->tb", R[1:], R[:-1]) - (dim - 2)) / 2
    return float(np.arccos(np.clip(cosines, -1.0, 1.0)).max(initial=0.0))


def _continuous(turns: np.ndarray) -> np.ndarray:
    """Angles `(frames, bodies, 1)` without jumps of whole turns; unit quaternions `(frames, bodies, 4)` without jumps
    of sign."""
    if turns.shape[-1] == 1:
        return np.unwrap(turns, axis=0)
    e = turns / np.linalg.norm(turns, axis=-1, keepdims=True)
    flips = np.where(np.sum(e[1:] * e[:-1], axis=-1) < 0, -1.0, 1.0)
    e[1:] *= np.cumprod(flips, axis=0)[..., None]
    return e
