"""Records on their way from the probed calls to a file: the recorder that appends them, and the file's format.

This runs in the recorded process, between its steps. Spans are made of a record file afterwards (`probes/spans`).
"""
