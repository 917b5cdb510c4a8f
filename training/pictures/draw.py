"""A `Scene` as a picture."""

import math
import random
from functools import cache

from PIL import Image, ImageDraw, ImageFont

from .scene import CELL, SHAPES, Scene, Thing

__all__ = ["draw"]

_RGB = {
    "red": ((255, 0, 0), (200, 50, 50)),
    "green": ((0, 128, 0), (50, 165, 85)),
    "blue": ((0, 0, 255), (50, 100, 205)),
    "yellow": ((255, 255, 0), (235, 190, 40)),
    "purple": ((128, 0, 128), (150, 80, 180)),
    "black": ((0, 0, 0), (45, 45, 45)),
}
"""Two ends of a colour: the one that CSS and Pillow give this name, and a softer one. A thing has one between them."""
_SHADES = 12
"""Largest further change of a thing's red, green and blue."""
_FINER = 2
"""Pixels drawn for one of the picture, in each direction, for smooth edges."""


def draw(scene: Scene, rng: random.Random) -> Image.Image:
    """Return the picture of `scene`, RGB; shades and turns come from `rng`."""
    size = (scene.columns * CELL * _FINER, scene.rows * CELL * _FINER)
    image = Image.new("RGB", size, scene.ground)
    canvas = ImageDraw.Draw(image)
    for thing in scene.things:
        colour = _shade(thing.colour, rng)
        x, y, radius = thing.x * _FINER, thing.y * _FINER, thing.radius * _FINER
        if thing.kind in SHAPES:
            turn = rng.uniform(-0.2, 0.2)  # radians
            if thing.kind == "circle":
                radius *= 0.9
                canvas.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
            else:
                canvas.polygon(_corners(thing, x, y, radius, turn), fill=colour)
        else:
            canvas.text((x, y), thing.kind, fill=colour, font=_font(round(2 * radius)), anchor="mm")
    return image.reduce(_FINER)


def _shade(colour: str, rng: random.Random) -> tuple[int, int, int]:
    """Return red, green and blue, 0 to 255, of a shade of `colour`."""
    pure, soft = _RGB[colour]
    share = rng.random()
    red, green, blue = (
        min(255, max(0, round(p + share * (s - p)) + rng.randint(-_SHADES, _SHADES)))
        for p, s in zip(pure, soft, strict=True)
    )
    return red, green, blue


def _corners(thing: Thing, x: float, y: float, radius: float, turn: float) -> list[tuple[float, float]]:
    """Return the corners of a polygon around (x, y)."""
    match thing.kind:
        case "square":
            polar = [(math.pi / 4 + i * math.pi / 2, 1.0) for i in range(4)]
        case "triangle":
            polar = [(-math.pi / 2 + i * 2 * math.pi / 3, 1.0) for i in range(3)]
        case "star":
            polar = [(-math.pi / 2 + i * math.pi / 5, 0.42 if i % 2 else 1.0) for i in range(10)]
        case _:  # a cross: each arm has two outer corners, and there is an inner one between two arms
            half, polar = 0.3, []
            for i in range(4):
                arm, side = i * math.pi / 2, math.asin(half)
                polar += [(arm - side, 1.0), (arm + side, 1.0), (arm + math.pi / 4, half * math.sqrt(2))]
    return [(x + radius * r * math.cos(a + turn), y + radius * r * math.sin(a + turn)) for a, r in polar]


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
