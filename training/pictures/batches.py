"""Batches: pictures of one size, each with several questions.

The questions of a picture share its tokens, as requests share a prefix in the KV cache: a row has the picture once,
then all questions with their answers, and a mask by which each of them attends to the picture and to itself alone. The
positions of each question begin after the picture, as in use.
"""

import random
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from .draw import draw
from .questions import LANGUAGES, ask_any
from .scene import CELL, COLOURS, GRIDS, KINDS, Scene, random_scene

__all__ = [
    "AFTER_PICTURE",
    "BEFORE_PICTURE",
    "IGNORED",
    "IMAGE_MEAN",
    "IMAGE_STD",
    "PATCH",
    "Batch",
    "make_batch",
    "patches",
]

BEFORE_PICTURE = "<|im_start|>user\n<|vision_start|>"
AFTER_PICTURE = "<|vision_end|>{question}<|im_end|>\n<|im_start|>assistant\n"
PATCH = CELL // 2
IMAGE_MEAN = IMAGE_STD = 0.5
IGNORED = -100


class Batch(NamedTuple):
    """Some pictures (n) with their questions.

    Attributes:
        pixels: (n * patches, 3 * 2 * 14 * 14) float32, as the image processor gives them.
        grid_thw: (n, 3) int64, patches in time, height and width.
        before: (tokens before the picture,) int64.
        after: (n, tokens after the picture) int64: all questions with their answers, padded.
        targets: like `after`, the token that follows, or -100 where it is not learned.
        about: (n, tokens after the picture, cells) bool, whether the answer at a token is about the thing in a cell.
        positions: (3, n, tokens) int64, in time, height and width.
        mask: (n, 1, tokens, tokens) bool, whether a token attends to another.
        kinds, colours: (n * cells,) int64, of the thing whose centre is in the cell; `len(KINDS)` and -100 if none.
        rows, columns: (n * cells,) int64, third of the picture with the centre of that thing; -100 if none.
    """

    pixels: Tensor
    grid_thw: Tensor
    before: Tensor
    after: Tensor
    targets: Tensor
    about: Tensor
    positions: Tensor
    mask: Tensor
    kinds: Tensor
    colours: Tensor
    rows: Tensor
    columns: Tensor


def make_batch(tokenizer: Tokenizer, rng: random.Random, pictures: int, questions: int) -> Batch:
    """Return a batch of new pictures, all of one size, with as many `questions` for each."""
    grid = rng.choice(GRIDS)
    scenes = [random_scene(rng, grid) for _ in range(pictures)]
    before = tokenizer.encode(BEFORE_PICTURE).ids
    rows = [_questions(tokenizer, rng, scene, questions) for scene in scenes]
    length = max(len(ids) for ids, *_ in rows)
    cells = grid[0] * grid[1]
    first = len(before) + cells  # index of the first token after the picture
    after = torch.zeros(pictures, length, dtype=torch.long)
    targets = torch.full((pictures, length), IGNORED)
    positions = torch.zeros(3, pictures, first + length, dtype=torch.long)
    owner = torch.full((pictures, first + length), -1)  # number of the question; 0 before
    owner[:, :first] = 0
    positions[:, :, : len(before)] = torch.arange(len(before))
    steps = torch.stack(torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")).flatten(1)
    positions[:, :, len(before) : first] = len(before)
    positions[1:, :, len(before) : first] += steps[:, None]
    about = torch.zeros(pictures, length, cells, dtype=torch.bool)
    for row, (ids, learned, lengths, cells_of) in enumerate(rows):
        after[row, : len(ids)] = torch.tensor(ids)
        targets[row, : len(ids) - 1] = torch.tensor(
            [token if use else IGNORED for token, use in zip(ids[1:], learned[1:], strict=True)]
        )
        start = first
        for number, size in enumerate(lengths, start=1):
            owner[row, start : start + size] = number
            about[row, start - first : start - first + size, cells_of[number - 1]] = True
            positions[:, row, start : start + size] = len(before) + max(grid) + torch.arange(size)
            start += size
    same = (owner[:, :, None] == owner[:, None, :]) | (owner[:, None, :] == 0)
    mask = same & torch.ones(first + length, first + length, dtype=torch.bool).tril()
    return Batch(
        pixels=torch.from_numpy(np.concatenate([patches(np.asarray(draw(scene, rng))) for scene in scenes])),
        grid_thw=torch.tensor([[1, 2 * grid[0], 2 * grid[1]]] * pictures),
        before=torch.tensor(before),
        after=after,
        targets=targets,
        about=about,
        positions=positions,
        mask=mask[:, None],
        **_cells(scenes),
    )


def patches(image: np.ndarray) -> np.ndarray:
    """Return the patches of an image (height, width, 3), uint8, as transformers' Qwen2VLImageProcessor does.

    float32 (patches, 3 * 2 * 14 * 14): each group of 2 x 2 together, and the same picture for both moments of time.
    """
    numbers = (image.astype(np.float32) / 255 - IMAGE_MEAN) / IMAGE_STD
    height, width = image.shape[0] // CELL, image.shape[1] // CELL
    split = numbers.reshape(height, 2, PATCH, width, 2, PATCH, 3).transpose(0, 3, 1, 4, 6, 2, 5)
    twice = np.repeat(split[:, :, :, :, :, None], 2, axis=5)
    return twice.reshape(height * width * 4, -1)


def _questions(
    tokenizer: Tokenizer, rng: random.Random, scene: Scene, number: int
) -> tuple[list[int], list[bool], list[int], list[list[int]]]:
    """Return the tokens of `number` questions with answers, which of them are learned, and each one's length, cells."""
    ids: list[int] = []
    learned: list[bool] = []
    lengths: list[int] = []
    cells: list[list[int]] = []
    for _ in range(number):
        asked = ask_any(scene, rng, rng.choice(LANGUAGES))
        prompt = tokenizer.encode(AFTER_PICTURE.format(question=asked.text)).ids
        answer = tokenizer.encode(asked.answer + "<|im_end|>").ids
        ids += prompt + answer
        learned += [False] * len(prompt) + [True] * len(answer)
        lengths.append(len(prompt) + len(answer))
        cells.append([row * scene.columns + column for row, column in map(scene.cell, asked.things)])
    return ids, learned, lengths, cells


def _cells(scenes: list[Scene]) -> dict[str, Tensor]:
    """Return what is in each cell of the pictures: see `Batch`."""
    rows, columns = scenes[0].rows, scenes[0].columns
    facts = torch.full((4, len(scenes), rows, columns), IGNORED)
    facts[0] = len(KINDS)
    for index, scene in enumerate(scenes):
        for thing in scene.things:
            facts[:, index, *scene.cell(thing)] = torch.tensor(
                [KINDS.index(thing.kind), COLOURS.index(thing.colour), *scene.place(thing)]
            )
    return dict(zip(("kinds", "colours", "rows", "columns"), facts.flatten(1), strict=True))
