"""Sphinx's settings for the documentation site: `make docs` builds it into `out/site`.

The pages are Markdown, parsed by MyST. They are not executed while the site is built: the tests run their examples and
compare what they print. What can be computed (reference, gallery, validation, notebooks with their stored outputs) is
written by `docs/pages` into `docs/generated`. Docstrings are Markdown too, which autodoc cannot read; so the reference
is one of these. Equations are set by MathJax, which a PyPI package brings along, so that the site needs no network
(MathML without a mathematical font is hard to read). Furo is the theme: it shows all pages beside each of them, works
without a server, and has a light and a dark scheme. Pagefind makes the index of the search, which Sphinx's own can only
rank by pages.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import jaxmbd
from docs.pages.sources import linkcode_resolve as linkcode_resolve

project = "jaxmbd"
author = "The jaxmbd authors"
release = jaxmbd.__version__
copyright = "the jaxmbd authors, Apache-2.0"

extensions = [
    "myst_parser",
    "sphinx.ext.linkcode",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",
    "docs.pages.extension",
]
exclude_patterns = ["pages", "templates", "images/*.py"]
templates_path = ["templates"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_url_schemes = ("http", "https", "mailto", "source")  # the last: docs/pages/sources.py
myst_heading_anchors = 4  # the anchors that the pages use are those that GitHub makes
highlight_language = "none"  # indented blocks hold equations
suppress_warnings = ["myst.header"]  # a docstring may begin below the level of its page

# Links to our own names must lead somewhere; types of other libraries have no pages here.
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(?!jaxmbd\.).*")]
python_maximum_signature_line_length = 88
toc_object_entries = False
add_module_names = False

html_theme = "furo"
html_title = f"jaxmbd {release}"
html_static_path = ["static"]
html_extra_path = ["generated/site"]  # pages that play motions
html_logo = html_favicon = "static/logo.svg"
html_css_files = ["site.css"]
_sidebar = ("brand", "versions", "search", "scroll-start", "navigation", "scroll-end")
html_sidebars = {"**": [f"sidebar/{name}.html" for name in _sidebar]}
pygments_dark_style = "github-dark"
html_theme_options = {"light_css_variables": {"code-font-size": "var(--font-size--small--2)"}}
html_show_sourcelink = False
copybutton_exclude = ".linenos, .gp, .go"
