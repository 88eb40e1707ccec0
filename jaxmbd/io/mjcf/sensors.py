"""Sensors of MJCF."""

from jaxmbd.io.mjcf.source import Source
from jaxmbd.model import sensor as sensors
from jaxmbd.model.body.spatial import Marker
from jaxmbd.model.mechanism.mechanism import Sensor

_AT_SITE = {"ACCELEROMETER": sensors.Accelerometer, "GYRO": sensors.Gyroscope}
_OF_FRAME = {
    "FRAMEPOS": sensors.Point,
    "FRAMELINVEL": sensors.PointVelocity,
    "FRAMEANGVEL": sensors.AngularVelocity,
    "FRAMEANGACC": sensors.AngularAcceleration,
}
_OF_JOINT = {"JOINTPOS": "", "JOINTVEL": "_rate"}
_OF_TENDON = {"TENDONPOS": "", "TENDONVEL": "_rate"}


def translated(source: Source) -> list[Sensor]:
    """The sensors that have a counterpart."""
    found = []
    for i in range(source.model.nsensor):
        sensor = _sensor(source, i)
        if sensor is None:
            source.lost("sensor", i, "has no counterpart; it is left out")
        else:
            found.append(sensor)
    return found


def _sensor(source: Source, i: int) -> Sensor | None:
    m = source.model
    kind = source.mujoco.mjtSensor(int(m.sensor_type[i])).name.removeprefix("mjSENS_")
    target = int(m.sensor_objid[i])
    if kind in _OF_JOINT and target in source.coordinates:
        return sensors.Scaled(source.new_name("sensor", i), source.coordinates[target] + _OF_JOINT[kind])
    if kind in _OF_TENDON and target in source.lengths:
        return sensors.Scaled(source.new_name("sensor", i), source.lengths[target] + _OF_TENDON[kind])
    if kind == "ACTUATORFRC" and source.efforts.get(target, ("", 0.0))[1]:
        channel, gear = source.efforts[target]
        return sensors.Scaled(source.new_name("sensor", i), channel, 1 / gear)
    if kind in _AT_SITE:
        owner, placement = source.site(target)
        return _AT_SITE[kind](source.new_name("sensor", i), owner.at(placement))
    marker = _frame(source, int(m.sensor_objtype[i]), target)
    if kind in _OF_FRAME and m.sensor_refid[i] < 0 and marker is not None:
        return _OF_FRAME[kind](source.new_name("sensor", i), marker)
    return None


def _frame(source: Source, kind: int, index: int) -> Marker | None:
    """The marker of a site or of a body's frame (`xbody`); None for other frames."""
    objects = source.mujoco.mjtObj
    if kind == objects.mjOBJ_SITE:
        owner, placement = source.site(index)
        return owner.at(placement)
    return source.owners[index].at() if kind == objects.mjOBJ_XBODY else None
