"""The sequence diagram drawn as SVG, for a page that has no network and no library.

`measure` says how wide a text will be, `layout` gives every lifeline its place, `draw` goes down the diagram and
writes.
"""

from tracellm.report.svg.draw import Drawing, draw

__all__ = ["Drawing", "draw"]
