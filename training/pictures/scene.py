"""The contents of a picture: things of a kind, colour, size and place.

A `Scene` is made from a random generator, drawn by draw.py and asked about by questions.py.
"""

import math
import random
from dataclasses import dataclass

__all__ = ["CELL", "COLOURS", "DIGITS", "GRIDS", "KINDS", "MAX_THINGS", "SHAPES", "Scene", "Thing", "random_scene"]

SHAPES = ("circle", "square", "triangle", "star", "cross")
DIGITS = tuple("0123456789")
KINDS = SHAPES + DIGITS
COLOURS = ("red", "green", "blue", "yellow", "purple", "black")
MAX_THINGS = 6

CELL = 28
"""Width and height, in pixels, of the part of a picture that becomes one token: 2 x 2 patches of 14 x 14."""
GRIDS = ((6, 6), (5, 7), (7, 5), (5, 6), (6, 5))
"""Rows and columns, in tokens, of the pictures that are drawn. Others are resized to about this size."""
_RADII = (16.0, 25.0)
_MARGIN = 4.0
"""Pixels around a thing that are free."""


@dataclass(frozen=True)
class Thing:
    """One thing.

    Attributes:
        kind: one of `KINDS`.
        colour: one of `COLOURS`.
        x, y: centre, in pixels from the left and the top.
        radius: pixels from the centre to the farthest point.
    """

    kind: str
    colour: str
    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class Scene:
    """Things that do not touch one another, on a ground of one light colour.

    Attributes:
        rows, columns: size in tokens; the picture has `CELL` pixels for each.
        ground: red, green and blue of the ground, 0 to 255.
        things: in no order.
    """

    rows: int
    columns: int
    ground: tuple[int, int, int]
    things: tuple[Thing, ...]

    def cell(self, thing: Thing) -> tuple[int, int]:
        """Return row and column of the cell that holds the centre of `thing`."""
        return int(thing.y / CELL), int(thing.x / CELL)

    def place(self, thing: Thing) -> tuple[int, int]:
        """Return the third of the height and of the width (0 to 2) that holds the centre of `thing`."""
        return int(3 * thing.y / (self.rows * CELL)), int(3 * thing.x / (self.columns * CELL))

    def is_near_edge(self, thing: Thing, margin: float) -> bool:
        """Return whether the centre of `thing` is nearer than `margin` pixels to the edge between two thirds."""
        sides = ((thing.y, self.rows * CELL), (thing.x, self.columns * CELL))
        return any(abs(centre - edge * size / 3) < margin for centre, size in sides for edge in (1, 2))


def random_scene(rng: random.Random, grid: tuple[int, int] | None = None) -> Scene:
    """Return a scene of one to `MAX_THINGS` things, on a `grid` of `GRIDS`, or on any of them.

    The things of a scene share up to four kinds and three colours, so that there are several of one description.
    """
    rows, columns = grid or rng.choice(GRIDS)
    ground = (rng.randint(228, 255), rng.randint(228, 255), rng.randint(228, 255))
    number = rng.randint(1, MAX_THINGS)
    kinds = [rng.choice(SHAPES) if rng.random() < 0.65 else rng.choice(DIGITS) for _ in range(rng.randint(1, 4))]
    colours = [rng.choice(COLOURS) for _ in range(rng.randint(1, 3))]
    things: list[Thing] = []
    while len(things) < number:
        for _ in range(50):
            radius = rng.uniform(*_RADII)
            x, y = rng.uniform(radius, columns * CELL - radius), rng.uniform(radius, rows * CELL - radius)
            if all(math.hypot(x - t.x, y - t.y) >= radius + t.radius + _MARGIN for t in things):
                things.append(Thing(rng.choice(kinds), rng.choice(colours), x, y, radius))
                break
        else:
            things = []  # no room: begin again
    return Scene(rows, columns, ground, tuple(things))
