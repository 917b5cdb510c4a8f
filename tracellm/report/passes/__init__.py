"""The small passes between a trace's call tree and a drawing of it.

Each takes nodes (`tracellm.trace.tree.Node`) and gives nodes, loses no span, keeps the order and the time:

1. `lines`: the user's calls stand under the line of the script that made them.
2. `select`: only calls down to a level, or into and out of some classes.
3. `step_groups`: engine steps in which nothing changed become one node.
4. `tracellm.trace.fold`: what repeats is drawn once, with a count. `folded` does 1, 3 and 4, once for all reports.
5. `condense`: of very many groups of steps, those between the first and the last become one.
6. `budget`: the calls that tell most, as many as a diagram can show.
"""
