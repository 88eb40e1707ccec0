"""The space a mechanism lives in: the plane or three dimensions."""

from jaxmbd._space._base import AbstractFrame as AbstractFrame
from jaxmbd._space._base import AbstractSpace as AbstractSpace
from jaxmbd._space._chart import NUMBERS as NUMBERS
from jaxmbd._space._chart import TURNING as TURNING
from jaxmbd._space._chart import AbstractChart as AbstractChart
from jaxmbd._space._motion import about_point as about_point
from jaxmbd._space._motion import at_point as at_point
from jaxmbd._space._motion import carried as carried
from jaxmbd._space._planar import PLANAR as PLANAR
from jaxmbd._space._planar import Frame as Frame
from jaxmbd._space._planar import Planar as Planar
from jaxmbd._space._spatial import SPATIAL as SPATIAL
from jaxmbd._space._spatial import Spatial as Spatial
from jaxmbd._space._spatial import SpatialFrame as SpatialFrame
from jaxmbd._space._spatial import SpatialRate as SpatialRate
