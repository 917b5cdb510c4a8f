"""Reports of a recorded run: the live console, the call tree, the table of steps, the sequence diagram, the HTML page.

All but the console work from a run folder alone, on any machine. `passes` shapes the trace, `diagram` holds a sequence
diagram as data, `mermaid` and `svg` draw it, `texts` has every word in English and Chinese.
"""
