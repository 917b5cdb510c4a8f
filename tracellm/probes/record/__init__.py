"""Record files: the recorder, which appends the records of probed calls, and the file's format.

This runs in the recorded process, between its steps. Spans are made of a record file afterwards (`probes/spans`).
"""
