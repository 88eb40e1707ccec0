"""Sensors: what can be read off a motion."""

from jaxmbd._sensor._sensor import AbstractSensor as AbstractSensor
from jaxmbd._sensor._sensor import Measure as Measure
from jaxmbd._sensor._sensor import Point as Point
from jaxmbd._sensor._sensor import PointAcceleration as PointAcceleration
from jaxmbd._sensor._sensor import PointVelocity as PointVelocity
