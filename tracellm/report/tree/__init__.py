"""The call tree of a trace, and the passes that several reports share.

A pass is a function from a `CallTree` to a `CallTree` (`nodes.py`); `invariants.py` runs passes and checks each:

- `select.py`: `down_to` a level of detail, or `focus_on` some classes;
- `folded.py`: `fold_calls`, which rewrites every list of siblings: steps in which nothing changed become one node
  (`step_groups.py`), calls of the user stand under their line, and repetition is drawn once, with a count (`fold.py`,
  decided by `repetition.py`);
- `step_groups.py`: `condense`, for very many groups of steps.
"""
