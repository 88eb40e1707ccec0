"""Changes of forces by events: which number they mean."""

import jax
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.analyses.events.changes import changes_of


def test_a_changed_number_is_named() -> None:
    """As a function that picks it does; a single number of an array is none of those that can change."""
    rod = pl.Body("rod", 1.0, 0.1)
    spring = pl.JointSpringDamper("s", "O.angle", 3.0)
    mechanism = pl.Mechanism([rod], [pl.Revolute("O", pl.ground.at(), rod.at(-0.5, 0.0))], [spring])
    for where in ("s.stiffness", lambda m: m["s"].stiffness):
        event = mbd.Event("soft", "O.angle", below=0.0, then=mbd.Change(where, 0.5))
        changed = changes_of(mechanism, (event,), 2, float)
        assert changed is not None
        assert changed.values[1][0].tolist() == [3.0, 3.0]
        place = changed.places[0]
        assert jax.tree.leaves(mechanism.forces)[place] is mechanism["s"].stiffness
    for name, text in (
        ("s.stiff", "Did you mean 's.stiffness'"),
        ("rod.mass", "acts on one array of a force"),
        ("O.b.position[0]", "is one number of an array"),
    ):
        with pytest.raises(mbd.MechanismError, match=text):
            changes_of(mechanism, (mbd.Event("e", "O.angle", below=0.0, then=mbd.Change(name, 0.5)),), 2, float)
