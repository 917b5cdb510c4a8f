"""The report as one HTML page: opens from disk, asks the network for nothing, and takes no text for markup.

`page` puts it together; `run_view`, `request_view`, `step_view` and `tree_view` turn a run folder into what the
templates show, all of it text that Jinja escapes. Only the drawing, the style sheet and the script go in as they are.
"""

from tracellm.report.html.page import report_html

__all__ = ["report_html"]
