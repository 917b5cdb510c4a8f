"""The pictures and questions of the training: scenes that can be drawn, and answers that agree with them."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from training.pictures.draw import draw
from training.pictures.questions import LANGUAGES, SUBJECTS, ask
from training.pictures.scene import CELL, GRIDS, KINDS, MAX_THINGS, random_scene

SEEDS = st.integers(0, 10_000)


@given(SEEDS)
def test_things_are_inside_and_apart(seed):
    """A scene has one to six things within the picture, and no two of them touch."""
    scene = random_scene(random.Random(seed))
    assert (scene.rows, scene.columns) in GRIDS
    assert 1 <= len(scene.things) <= MAX_THINGS
    for index, thing in enumerate(scene.things):
        assert thing.radius <= thing.x <= scene.columns * CELL - thing.radius
        assert thing.radius <= thing.y <= scene.rows * CELL - thing.radius
        for other in scene.things[:index]:
            assert np.hypot(thing.x - other.x, thing.y - other.y) > thing.radius + other.radius
    cells = {(int(thing.x / CELL), int(thing.y / CELL)) for thing in scene.things}
    assert len(cells) == len(scene.things)


@given(SEEDS)
def test_pictures_show_the_things(seed):
    """A picture has the scene's size, and the pixels that differ from its ground are those of its things."""
    scene = random_scene(random.Random(seed))
    pixels = np.asarray(draw(scene, random.Random(seed)))
    assert pixels.shape == (scene.rows * CELL, scene.columns * CELL, 3)
    rows, columns = np.nonzero((pixels != scene.ground).any(-1))
    distances = np.array([np.hypot(columns + 0.5 - t.x, rows + 0.5 - t.y) - t.radius for t in scene.things])
    assert distances.min(0).max() < 2
    assert (distances.min(1) < 0).all(), "a thing is not drawn"


@given(SEEDS, st.sampled_from(LANGUAGES), st.sampled_from(SUBJECTS))
def test_an_answer_agrees_with_the_scene(seed, lang, subject):
    """A question is in its language, and its answer is the one that the things give."""
    rng = random.Random(seed)
    scene = random_scene(rng)
    question = ask(scene, rng, lang, subject)
    if question is None:
        return
    chinese = [any("\u4e00" <= c <= "\u9fff" for c in text) for text in (question.text, question.answer)]
    assert chinese == [lang == "zh"] * 2
    if subject != "number":
        assert len(question.things) == 1
    if lang == "zh":
        return
    words = question.answer.rstrip(".").split()
    if subject == "number":
        number = ("no", "one", "two", "three", "four", "five", "six").index(words[2])
        assert number == len(question.things)
        *colour, noun = words[3:]
        kind = {"crosses": "cross"}.get(noun, noun.removesuffix("s") if noun not in KINDS else noun)
        described = [t for t in scene.things if kind in ("thing", t.kind) and colour in ([], [t.colour])]
        assert len(described) == number
    else:
        (thing,) = question.things
        expected = {"colour": thing.colour, "shape": thing.kind, "digit": thing.kind}
        if subject in expected:
            assert words[-1] == expected[subject]
        else:
            row, column = scene.place(thing)
            vertical = {"top": 0, "bottom": 2}
            horizontal = {"left": 0, "right": 2}
            assert next((vertical[w] for w in words if w in vertical), 1) == row
            assert next((horizontal[w] for w in words if w in horizontal), 1) == column
