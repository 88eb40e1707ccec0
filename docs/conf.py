"""Sphinx's settings for the documentation site: `make docs` builds it into `out/site`.

The pages are Markdown, parsed by MyST. They are not executed while the site is built: the tests run their examples and
compare what they print. What can be computed (reference, gallery, validation) is written by `docs/pages` into
`docs/generated`. Docstrings are Markdown too, which autodoc cannot read; so the reference is one of these. Equations
are set by MathJax, which a PyPI package brings along, so that the site needs no network (MathML without a mathematical
font is hard to read). Furo is the theme: it shows all pages beside each of them, works without a server, and has a
light and a dark scheme.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import jaxmbd

project = "jaxmbd"
author = "The jaxmbd authors"
release = jaxmbd.__version__
copyright = "the jaxmbd authors, Apache-2.0"

extensions = [
    "myst_parser",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",
    "docs.pages.extension",
]
exclude_patterns = ["pages", "images/*.py"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4  # the anchors that the pages use are those that GitHub makes
highlight_language = "none"  # indented blocks hold equations
suppress_warnings = ["myst.header"]  # a docstring may begin below the level of its page

# Links to our own names must lead somewhere; types of other libraries have no pages here.
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(?!jaxmbd\.).*")]
python_maximum_signature_line_length = 88
toc_object_entries = False
add_module_names = False
viewcode_line_numbers = True

html_theme = "furo"
html_title = f"jaxmbd {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {"light_css_variables": {"code-font-size": "var(--font-size--small--2)"}}
html_show_sourcelink = False
copybutton_exclude = ".linenos, .gp, .go"
