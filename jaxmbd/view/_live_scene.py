"""What a page that is explored shows of a mechanism: shapes for its present numbers, and poses for its position."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from jaxmbd.analyses.dragging.linkage import Linkage, Position
from jaxmbd.analyses.dragging.path import Path
from jaxmbd.checks import checked_names
from jaxmbd.model.sensor import Point
from jaxmbd.scene.geometry import Geometry, traced_marker
from jaxmbd.scene.motion import all_frames, as_poses, moving_markers
from jaxmbd.scene.pieces import INK
from jaxmbd.scene.scene import AZIM, ELEV, Scene, trace_of
from jaxmbd.view._motion import scene_data, times_data
from jaxmbd.view._numbers import Numbers

_MOMENTS = 9  # positions of a path for which shapes, such as those of springs, and limits are found


class LiveScene:
    """The scene of a linkage, with the paths of some points; symbols keep the size that they have at first."""

    def __init__(self, linkage: Linkage, trace: Iterable[str] | None) -> None:
        mechanism = linkage.mechanism
        points = [sensor.name for sensor in mechanism.sensors if isinstance(sensor, Point)]
        self.linkage, self._size = linkage, None
        self._has_moving_markers = bool(moving_markers(mechanism))
        self.names = points if trace is None else list(checked_names("trace", _several(trace), "tip"))
        for name in self.names:
            traced_marker(mechanism, name)

    def data(self, path: Path, at: Position) -> dict[str, Any]:
        """Shapes, and the paths of points, for the positions of a path: what a page needs to show any position."""
        mechanism, numbers = self.linkage.mechanism, Numbers()
        chosen = np.linspace(0, len(path.positions) - 1, _MOMENTS).round().astype(int)
        some = np.stack([at.poses, *(path.positions[k].poses for k in chosen)])
        geometry = Geometry(mechanism, (), (), self._size, as_poses(self._frames(some)))
        whole = as_poses(self._frames(np.stack([position.poses for position in path.positions])))
        scene = Scene(geometry, traces=[trace_of(mechanism, name, whole, 1) for name in self.names])
        self._size = geometry.size
        now = self._frames(at.poses[None])[:, :-1]
        dim = geometry.dim
        return {
            "dimension": dim,
            "limits": [list(limit) for limit in scene.limits],
            "view": {"elev": ELEV, "azim": AZIM},
            "ink": INK,
            "movable": len(at.poses),
            "motion": {
                "name": "",
                "colour": None,
                "frames": now.shape[1],
                "times": times_data(np.zeros(1), numbers),
                "positions": numbers.floats(now[..., :dim]),
                "turns": numbers.floats(now[..., dim:]),
                "arrows": [],
                **scene_data(scene, numbers, None),
            },
            "numbers": numbers.text(),
        }

    def poses(self, at: Position) -> dict[str, Any]:
        """The positions [m] and turns of all frames, one after another."""
        dim = self.linkage.mechanism.space.dim
        frames = self._frames(at.poses[None])[0, :-1] if self._has_moving_markers else at.poses
        return {"positions": np.ravel(frames[:, :dim]).tolist(), "turns": np.ravel(frames[:, dim:]).tolist()}

    def _frames(self, poses: np.ndarray) -> np.ndarray:
        return all_frames(self.linkage.mechanism, np.full(len(poses), self.linkage.t), poses)


def _several(names: str | Iterable[str]) -> Iterable[str]:
    return (names,) if isinstance(names, str) else names
