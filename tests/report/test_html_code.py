"""Commands in the page's sentences."""

from tests.report.synthetic import a_run, a_run_folder
from tracellm.report.html import report_html


def test_commands_are_code():
    """Text in backticks becomes code on the page."""
    page = report_html(a_run_folder(a_run()), "en")
    assert "<code>tracellm show RUN steps</code>" in page
    assert "`tracellm show RUN steps`" not in page
