"""Drivers: a coordinate as a given function of time."""

from jaxmbd._driver._driver import Driver as Driver
from jaxmbd._driver._smooth import Smoothed as Smoothed
