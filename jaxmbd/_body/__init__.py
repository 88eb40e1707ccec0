"""Bodies, the ground, and markers: frames fixed on a body where joints and forces take hold."""

from jaxmbd._body._base import GROUND as GROUND
from jaxmbd._body._base import AbstractBody as AbstractBody
from jaxmbd._body._base import AbstractMarker as AbstractMarker
from jaxmbd._body._base import AbstractMovingMarker as AbstractMovingMarker
from jaxmbd._body._checks import check_callable as check_callable
from jaxmbd._body._checks import check_coordinate as check_coordinate
from jaxmbd._body._checks import check_count as check_count
from jaxmbd._body._checks import check_finite as check_finite
from jaxmbd._body._checks import check_flags as check_flags
from jaxmbd._body._checks import check_index as check_index
from jaxmbd._body._checks import check_instance as check_instance
from jaxmbd._body._checks import check_line as check_line
from jaxmbd._body._checks import check_mapping as check_mapping
from jaxmbd._body._checks import check_markers as check_markers
from jaxmbd._body._checks import check_motion as check_motion
from jaxmbd._body._checks import check_name as check_name
from jaxmbd._body._checks import check_number as check_number
from jaxmbd._body._checks import check_shape as check_shape
from jaxmbd._body._checks import checked_names as checked_names
