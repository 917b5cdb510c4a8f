"""Sending a recording to an OpenTelemetry collector while the run goes on, where the standard variables name one.

- `settings.py`: those variables;
- `sender_process.py`: the recorded process starts and ends the helper process that sends;
- `sender.py`, `convert.py`: that process, which hands spans to the official exporter;
- `metrics.py`: `gen_ai` metrics of requests.

OpenTelemetry is imported where it is used: a recording that is sent nowhere does without.
"""
