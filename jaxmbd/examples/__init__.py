"""Example mechanisms: functions that return an `Example`, and `get("slider-crank")`, `names()` to find them by name.

A body's frame has its origin at the centre of mass; a rod's x axis points along the rod. Units are SI.
"""

from jaxmbd.examples._example import MODELICA_GRAVITY as MODELICA_GRAVITY
from jaxmbd.examples._example import Entry as Entry
from jaxmbd.examples._example import Example as Example
from jaxmbd.examples._example import entries as entries
from jaxmbd.examples._example import get as get
from jaxmbd.examples._example import names as names
from jaxmbd.examples._example import rod as rod
from jaxmbd.examples._loops import ANDREWS_STARTS as ANDREWS_STARTS
from jaxmbd.examples._loops import andrews as andrews
from jaxmbd.examples._loops import five_bar as five_bar
from jaxmbd.examples._loops import four_bars as four_bars
from jaxmbd.examples._loops import pendulum_with_four_bar as pendulum_with_four_bar
from jaxmbd.examples._planar import double_pendulum as double_pendulum
from jaxmbd.examples._planar import four_bar_with_springs as four_bar_with_springs
from jaxmbd.examples._planar import hanging_chain as hanging_chain
from jaxmbd.examples._planar import modelica_double_pendulum as modelica_double_pendulum
from jaxmbd.examples._planar import pendulum as pendulum
from jaxmbd.examples._planar import planar_four_bar as planar_four_bar
from jaxmbd.examples._planar import slider_crank as slider_crank
from jaxmbd.examples._planar import sundials_slider_crank as sundials_slider_crank
from jaxmbd.examples._spatial import bricard as bricard
from jaxmbd.examples._spatial import governor as governor
from jaxmbd.examples._spatial import heavy_top as heavy_top
from jaxmbd.examples._spatial import platform_path as platform_path
from jaxmbd.examples._spatial import rolling_disc as rolling_disc
from jaxmbd.examples._spatial import spatial_four_bar as spatial_four_bar
from jaxmbd.examples._spatial import stewart_platform as stewart_platform
from jaxmbd.examples._vehicles import Bumps as Bumps
from jaxmbd.examples._vehicles import bicycle as bicycle
from jaxmbd.examples._vehicles import car_axis as car_axis
from jaxmbd.examples._vehicles import suspension as suspension
