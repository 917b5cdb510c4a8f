"""Where a recording and OpenTelemetry meet: the user's spans come in, the recording's spans and metrics go out.

- `export.py`, `settings.py`: a recording whose standard variables name a collector starts a process that sends it on;
- `sender.py`, `follow.py`, `convert.py`, `collector.py`: that process;
- `metrics.py`: `gen_ai` metrics of the requests.

OpenTelemetry is imported where it is used: a recording that nobody asked for it does without.
"""
