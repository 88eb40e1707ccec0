"""Pages for a browser: those that show mechanisms in motion, beside curves, and work without a network; and those in
which a mechanism is moved and changed by hand, while Python answers."""

from jaxmbd.view._explore import Explorer as Explorer
from jaxmbd.view._explore import explore as explore
from jaxmbd.view._page import Page as Page
from jaxmbd.view._page import page as page
