"""Pages for a browser that show mechanisms in motion, beside curves; they work without a network."""

from jaxmbd.view._page import Page as Page
from jaxmbd.view._page import page as page
