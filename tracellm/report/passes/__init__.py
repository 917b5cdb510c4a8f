"""The small passes between a trace's call tree and a drawing of it.

Each takes nodes (`tracellm.trace.tree.Node`) and gives nodes, loses no span, keeps the order and the time:

1. `story`: what several processes, threads and tasks did, in one order (`lanes`, `moments`). For diagrams only.
2. `lines`: the user's calls stand under the line of the script that made them.
3. `select`: only calls down to a level, or into and out of some classes.
4. `step_groups`: engine steps in which nothing changed become one node.
5. `tracellm.trace.fold`: what repeats is drawn once, with a count. `folded` does 2, 4 and 5, once for all reports.
6. `condense`: of very many groups of steps, those between the first and the last become one.
7. `budget`: the calls that tell most (`chains`), as many as a diagram can show.

Then `layout` makes arrows of the nodes, and `places` says between which lifelines (`lifelines`: in which order).
"""
