"""Problems of a run folder, as data: a code, its values, and the sentence in English.

Reports in another language have sentences of their own for the codes (report/texts).
"""

from typing import Any

__all__ = ["PROBLEMS", "Problem"]

PROBLEMS = {
    # the path is not a run folder
    "no_such_folder": "{path}: there is no such folder. Give a run folder made by `tracellm run --explain`.",
    "not_a_folder": "{path} is a file, not a run folder. Give the folder with run.json and trace/.",
    "no_run_folder": "{path} is not a run folder: it has neither run.json nor trace/*.jsonl.",
    "unreadable": "{path} cannot be read: {reason}",
    # run.json
    "manifest_missing": "run.json is missing: the script and its options are unknown",
    "manifest_damaged": "run.json is damaged ({reason}): the script and its options are unknown",
    "manifest_no_object": "run.json is damaged (a JSON object was expected): the script and its options are unknown",
    "manifest_schema": "run.json has schema {schema}, but this tracellm reads schema {known} and may misread it",
    # trace/
    "trace_missing": "trace/ has no .jsonl file: nothing was recorded, or the file was removed",
    "trace_empty": "{file} is empty: its part of the recording is lost",
    "trace_unreadable": "{file} cannot be read: {reason}",
    "trace_none": "{file} is not a trace: none of its {count} lines is an OTLP JSON document",
    "trace_corrupt_line": "{file}: 1 corrupt line skipped: {lines}",
    "trace_corrupt_lines": "{file}: {count} corrupt lines skipped: {lines}",
    "trace_torn": "{file}: the last line is torn (the process ended while writing it) and was skipped",
    "records_none": "{file} is not a record file of tracellm",
    "records_version": "{file} has version {version} of the record format, but this tracellm reads version {known}. "
    "Record the run again, or open its folder with the tracellm that recorded it.",
    "spans_repeated": "{count} spans have the id of another span and were skipped",
    "spans_circular": "{count} spans were their own ancestors and were made roots",
}
"""The English sentence for each code; the names in braces are the problem's values."""


class Problem(str):
    """A problem, which is its English sentence.

    Attributes:
        code: key in PROBLEMS.
        values: values filled into the sentence.
    """

    __slots__ = ("code", "values")

    code: str
    values: dict[str, Any]

    def __new__(cls, code: str, **values: Any) -> "Problem":
        """Make the problem `code` with its values.

        Raises:
            KeyError: there is no such problem, or a value of its sentence is missing.
        """
        problem = super().__new__(cls, PROBLEMS[code].format(**values))
        problem.code, problem.values = code, values
        return problem
