"""The sequence diagram of a run: passes from a call tree to a drawing.

`sequence.py` runs the passes; each is a function from a `DiagramTree` (`story.py`) to a `DiagramTree`:

1. `story.order_by_cause`: the calls of several processes, threads and tasks, in one order. `lanes.py` finds what ran
beside what, `ordering.py` the order of the parts and their places in the trees. 2. `tree.select.focus_on`,
`tree.select.down_to`, `tree.folded.fold_calls`, `tree.step_groups.condense`. 3. `key_calls.choose`: the most important
calls, as many as a diagram can show. 4. `lifelines.name_lifelines`: the lifelines, their order, names and boxes. 5.
`layout.lay_out`: the arrows, loops and notes of a `Diagram` (`model.py`), which `mermaid.py` writes as text and the
HTML report draws.
"""
