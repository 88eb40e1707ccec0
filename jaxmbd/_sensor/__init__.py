"""Sensors: what can be read off a motion."""

from jaxmbd._sensor._orientation import EulerAngle as EulerAngle
from jaxmbd._sensor._scaled import Scaled as Scaled
from jaxmbd._sensor._sensor import AbstractSensor as AbstractSensor
from jaxmbd._sensor._sensor import Accelerometer as Accelerometer
from jaxmbd._sensor._sensor import Angle as Angle
from jaxmbd._sensor._sensor import AngularAcceleration as AngularAcceleration
from jaxmbd._sensor._sensor import AngularVelocity as AngularVelocity
from jaxmbd._sensor._sensor import Distance as Distance
from jaxmbd._sensor._sensor import Gyroscope as Gyroscope
from jaxmbd._sensor._sensor import Measure as Measure
from jaxmbd._sensor._sensor import Point as Point
from jaxmbd._sensor._sensor import PointAcceleration as PointAcceleration
from jaxmbd._sensor._sensor import PointVelocity as PointVelocity
from jaxmbd._sensor._sensor import Readings as Readings
