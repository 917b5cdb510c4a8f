"""OpenTelemetry in the recorded program: the user's spans become part of the recording, and its calls their parents.

OpenTelemetry is imported where it is used: a program that does not use it is recorded without.
"""
