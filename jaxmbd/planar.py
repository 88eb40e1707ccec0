"""Mechanisms in the plane: bodies, joints, drivers, forces and sensors."""

from jaxmbd._body._planar import Body as Body
from jaxmbd._body._planar import Marker as Marker
from jaxmbd._body._planar import ground as ground
from jaxmbd._driver import Driver as Driver
from jaxmbd._force._along import JointForce as JointForce
from jaxmbd._force._along import JointFriction as JointFriction
from jaxmbd._force._along import JointSpringDamper as JointSpringDamper
from jaxmbd._force._along import JointStop as JointStop
from jaxmbd._force._compliant import Bushing as Bushing
from jaxmbd._force._compliant import PlaneContact as PlaneContact
from jaxmbd._force._planar import Torque as Torque
from jaxmbd._force._planar import TorsionalSpringDamper as TorsionalSpringDamper
from jaxmbd._force._shared import Force as Force
from jaxmbd._force._shared import Gravity as Gravity
from jaxmbd._force._shared import PointDrag as PointDrag
from jaxmbd._force._shared import SpringDamper as SpringDamper
from jaxmbd._force._user import GeneralizedForce as GeneralizedForce
from jaxmbd._force._user import UserForce as UserForce
from jaxmbd._joint._coupling import RackAndPinion as RackAndPinion
from jaxmbd._joint._planar import Gear as Gear
from jaxmbd._joint._planar import PinInSlot as PinInSlot
from jaxmbd._joint._planar import RelativeAngle as RelativeAngle
from jaxmbd._joint._planar import Revolute as Revolute
from jaxmbd._joint._planar import Translational as Translational
from jaxmbd._joint._shared import BallCut as BallCut
from jaxmbd._joint._shared import Rod as Rod
from jaxmbd._joint._shared import SolidCut as SolidCut
from jaxmbd._joint._shared import Weld as Weld
from jaxmbd._joint._user import Constraint as Constraint
from jaxmbd._joint._user import GlobalConstraint as GlobalConstraint
from jaxmbd._joint._user import NonholonomicConstraint as NonholonomicConstraint
from jaxmbd._mechanism import GeneralizedSpeeds as GeneralizedSpeeds
from jaxmbd._mechanism import Mechanism as Mechanism
from jaxmbd._sensor import Accelerometer as Accelerometer
from jaxmbd._sensor import Angle as Angle
from jaxmbd._sensor import AngularAcceleration as AngularAcceleration
from jaxmbd._sensor import AngularVelocity as AngularVelocity
from jaxmbd._sensor import Distance as Distance
from jaxmbd._sensor import Gyroscope as Gyroscope
from jaxmbd._sensor import Measure as Measure
from jaxmbd._sensor import Point as Point
from jaxmbd._sensor import PointAcceleration as PointAcceleration
from jaxmbd._sensor import PointVelocity as PointVelocity
from jaxmbd._space import Frame as Frame

RodCut = Rod
