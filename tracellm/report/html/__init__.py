"""The report as one HTML page that opens from disk, loads nothing from the network, and takes no text for markup.

`page` puts it together; `run_view`, `request_view` and others make of a run folder what the templates
show, all of it text that Jinja escapes. Only the drawing, the style sheet and the script are inserted unescaped.
"""

from tracellm.report.html.page import report_html

__all__ = ["report_html"]
