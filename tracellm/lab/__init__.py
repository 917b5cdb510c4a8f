"""The course: labs in which students write parts of the engine, and the graders of these labs.

A lab empties functions of a module of the engine (source.py). The student's file is loaded under the module's own name
(loader.py), so recordings and reports work on it unchanged. Checks (checks.py) run it in a process of its own
(sandbox/) and compare what it does with the engine, with transformers, or with decisions recorded from a real vLLM.

Each lab is a folder in labs/: `lab.toml` (lab.py), `README.md`, `checks.py`, `mutants.toml` and `explain.py`.
"""
