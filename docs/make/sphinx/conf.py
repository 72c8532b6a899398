"""Settings of Sphinx for the site that `make docs` builds."""

project = "swarden"
extensions = ["myst_parser"]
root_doc = "index"
highlight_language = "none"
myst_heading_anchors = 4
html_theme = "furo"
html_title = "swarden"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
