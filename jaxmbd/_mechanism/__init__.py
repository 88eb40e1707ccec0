"""The mechanism: named parts, checked as a whole, and its coordinates."""

from jaxmbd._mechanism._checks import count_position_rows as count_position_rows
from jaxmbd._mechanism._coordinate import Coordinate as Coordinate
from jaxmbd._mechanism._coordinate import CoordinateForce as CoordinateForce
from jaxmbd._mechanism._coordinate import Coupled as Coupled
from jaxmbd._mechanism._coordinate import Drive as Drive
from jaxmbd._mechanism._coordinate import SpeedDrive as SpeedDrive
from jaxmbd._mechanism._coordinate import counted as counted
from jaxmbd._mechanism._coordinate import told as told
from jaxmbd._mechanism._kind import kind_of as kind_of
from jaxmbd._mechanism._kind import unnamed as unnamed
from jaxmbd._mechanism._mechanism import Constraint as Constraint
from jaxmbd._mechanism._mechanism import Mechanism as Mechanism
from jaxmbd._mechanism._mechanism import Sensor as Sensor
from jaxmbd._mechanism._mechanism import check_mechanism as check_mechanism
from jaxmbd._mechanism._speeds import GeneralizedSpeeds as GeneralizedSpeeds
from jaxmbd._mechanism._times import Switches as Switches
from jaxmbd._mechanism._times import smallest_gap as smallest_gap
from jaxmbd._mechanism._times import switches_of as switches_of
from jaxmbd._mechanism._times import with_jumps_apart as with_jumps_apart
from jaxmbd._mechanism._tree import Branch as Branch
from jaxmbd._mechanism._tree import Tree as Tree
from jaxmbd._mechanism._tree import spanning as spanning
