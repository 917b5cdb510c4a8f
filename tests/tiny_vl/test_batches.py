"""The batches of the training: pictures and positions as transformers makes them, independent questions."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Template
from transformers import Qwen2VLForConditionalGeneration

from training.pictures.batches import AFTER_PICTURE, BEFORE_PICTURE, IGNORED, make_batch, patches
from training.pictures.draw import draw
from training.pictures.evaluate import held_out
from training.pictures.model import CHAT_TEMPLATE, MAX_PIXELS, MIN_PIXELS, make_tokenizer, new_model
from training.pictures.scene import CELL, COLOURS, GRIDS, KINDS, random_scene
from training.pictures.supervision import Supervised


@pytest.fixture(scope="module")
def tokenizer():
    """A tokenizer of a few hundred scenes."""
    return make_tokenizer(300)


@pytest.fixture(scope="module")
def model(tokenizer) -> Qwen2VLForConditionalGeneration:
    """A model with random weights."""
    torch.manual_seed(0)
    return new_model(tokenizer).eval()


@pytest.mark.parametrize("grid", GRIDS)
def test_patches_equal_the_image_processors(grid):
    """Pictures of the training are neither resized nor cut, and their patches are those of transformers."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil(
        patch_size=14,
        merge_size=2,
        temporal_patch_size=2,
        size={"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    rng = random.Random(str(grid))
    picture = draw(random_scene(rng, grid), rng)
    made = processor(picture, return_tensors="np")
    assert made["image_grid_thw"].tolist() == [[1, 2 * grid[0], 2 * grid[1]]]
    np.testing.assert_allclose(patches(np.asarray(picture)), made["pixel_values"], atol=1e-6)


@torch.inference_mode()
def test_each_question_is_as_if_alone(tokenizer, model):
    """Each question of a row gives the hidden states that it gives alone after its picture, in transformers."""
    batch = make_batch(tokenizer, random.Random(3), pictures=2, questions=3)
    embedding = model.get_input_embeddings()
    vectors, _ = Supervised(model).encode(batch)
    cells = len(vectors) // 2
    embeds = torch.cat(
        (embedding(batch.before).expand(2, -1, -1), vectors.view(2, cells, -1), embedding(batch.after)), 1
    )
    packed = model.model.language_model(
        inputs_embeds=embeds, position_ids=batch.positions, attention_mask=batch.mask, use_cache=False
    ).last_hidden_state[:, len(batch.before) + cells :]
    image, end = (tokenizer.token_to_id(f"<|{name}|>") for name in ("image_pad", "vision_end"))
    for row in range(2):
        starts = (batch.after[row] == end).nonzero().flatten().tolist()
        assert len(starts) == 3
        for start, stop in zip(starts, [*starts[1:], None], strict=True):
            ids = torch.tensor([[*batch.before.tolist(), *[image] * cells, *batch.after[row, start:stop].tolist()]])
            alone = model.model(
                input_ids=ids,
                pixel_values=batch.pixels.chunk(2)[row],
                image_grid_thw=batch.grid_thw[row : row + 1],
                mm_token_type_ids=(ids == image).int(),
            ).last_hidden_state[0, len(batch.before) + cells :]
            learned = (batch.targets[row, start:stop] != IGNORED).nonzero().flatten()
            assert len(learned) > 3
            torch.testing.assert_close(packed[row, start:stop][learned], alone[learned], atol=1e-4, rtol=1e-4)


@given(st.integers(0, 10_000))
def test_cells_have_the_things(tokenizer, seed):
    """The facts of each cell are those of the thing whose centre it holds, and answers are about the things' cells."""
    batch, rng = make_batch(tokenizer, random.Random(seed), pictures=2, questions=2), random.Random(seed)
    grid = rng.choice(GRIDS)
    scenes = [random_scene(rng, grid) for _ in range(2)]  # as in `make_batch`
    width, height = grid[1] * CELL, grid[0] * CELL
    expected = {
        (index, thing.y // CELL, thing.x // CELL): (
            KINDS.index(thing.kind),
            COLOURS.index(thing.colour),
            (thing.y > height / 3) + (thing.y > 2 * height / 3),
            (thing.x > width / 3) + (thing.x > 2 * width / 3),
        )
        for index, scene in enumerate(scenes)
        for thing in scene.things
    }
    facts = torch.stack((batch.kinds, batch.colours, batch.rows, batch.columns), 1).view(2, *grid, 4)
    for place in np.ndindex(2, *grid):
        assert tuple(facts[place].tolist()) == expected.get(place, (len(KINDS), IGNORED, IGNORED, IGNORED))
    things = (batch.kinds != len(KINDS)).view(2, -1)
    assert (things | ~batch.about.any(1)).all()


def test_the_training_never_sees_the_held_out_pictures(tokenizer):
    """Pictures of the evaluation come from another seed than those of the training."""
    held = {patches(np.asarray(sample.picture)).tobytes() for sample in held_out(3)}
    assert len(held) == 30
    for step in range(20):
        batch = make_batch(tokenizer, random.Random(f"0/all/{step}/0"), pictures=4, questions=1)
        assert held.isdisjoint(picture.numpy().tobytes() for picture in batch.pixels.chunk(4))


def test_the_chat_template_is_the_text_of_the_training(tokenizer):
    """The checkpoint's chat template has the text that questions had around the picture."""
    content = [{"type": "image"}, {"type": "text", "text": "How many?"}]
    text = Template(CHAT_TEMPLATE).render(messages=[{"role": "user", "content": content}], add_generation_prompt=True)
    assert text == f"{BEFORE_PICTURE}<|image_pad|>{AFTER_PICTURE.format(question='How many?')}"
