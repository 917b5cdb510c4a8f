"""Reports of a recorded run: the live console, the call tree, the table of steps, the sequence diagram, the HTML page.

All but the console work from a run folder alone, on any machine. Each package imports only from those above it:

- `texts/`: every sentence shown to people, in English and Chinese;
- `wording/`: safe text, quantities, names of calls and steps, changes from step to step, problems;
- `facts/`: what a run's spans and its run.json contain: start-up, requests, kernels, messages, coverage;
- `tree/`: the call tree, and the passes that select, group and fold;
- `diagram/`: the sequence diagram: passes from the call tree to a drawing, Mermaid and SVG;
- `calltree.py`, `steps_table.py`: the call tree and the steps as text;
- `console/`: the live console; `html/`: the page; `diff/`: two runs compared; `export/`: files for other tools.
"""
