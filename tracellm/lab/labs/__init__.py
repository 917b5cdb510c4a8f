"""The labs, a folder each: `lab.toml`, `README.md`, `README.zh.md`, `checks.py`, `mutants.toml`, `explain.py`."""
