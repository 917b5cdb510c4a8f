"""The training of `tiny-tools`: its rows, its losses, and what it never sees."""

import json
from itertools import islice
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy
from transformers import Qwen2Config, Qwen2ForCausalLM

from tracellm.tiny import MODEL_DIR
from training.tools import weather
from training.tools.batches import Row, make_row
from training.tools.conversations import Toolbox, conversation, toolbox
from training.tools.draw import Draw
from training.tools.evaluate import held_out
from training.tools.fast import Fast
from training.widen import narrow, widen

TOKENIZER = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))


@pytest.fixture(scope="module")
def model() -> Qwen2ForCausalLM:
    """A small model with random weights."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=4096, hidden_size=96, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2048, tie_word_embeddings=True, initializer_range=0.1,
    )  # fmt: skip
    return Qwen2ForCausalLM(config)


@pytest.fixture(scope="module")
def row() -> Row:
    """A row of several conversations."""
    draw = Draw("rows")
    box = toolbox(draw)
    return make_row(TOKENIZER, box.text(), [conversation(draw, box) for _ in range(5)])


def _alone(model: Qwen2ForCausalLM, row: Row) -> torch.Tensor:
    """Return the loss of `row` from transformers, each conversation alone after the list of tools."""
    shared, total = row.ends[0], torch.zeros(())
    for start, end in zip(row.ends, row.ends[1:], strict=False):
        ids = torch.cat((row.input_ids[:, :shared], row.input_ids[:, start:end]), 1)
        own = (row.positions >= start) & (row.positions < end)
        logits = model(ids).logits[0, row.positions[own] - start + shared]
        total = total + cross_entropy(logits, row.targets[own], reduction="sum")
    return total


def test_a_row_has_the_losses_and_gradients_of_its_conversations(model: Qwen2ForCausalLM, row: Row) -> None:
    """The training's own forward pass agrees with transformers up to the precision of bfloat16."""
    assert len(row.ends) >= 4
    expected = _alone(model, row)
    expected.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    fast = Fast(model)
    loss, _ = fast.loss(row)
    loss.backward()
    fast.put_gradients()
    assert loss.item() == pytest.approx(expected.item(), rel=0.01)
    for name, p in model.named_parameters():
        assert p.grad is not None
        assert torch.cosine_similarity(p.grad.flatten(), gradients[name].flatten(), 0) > 0.98, name


def test_copies_are_what_they_copy(row: Row) -> None:
    """A copied token is the text of its source, its beginning or its end; a space before it does not count."""
    following = dict(zip(row.positions.tolist(), row.targets.tolist(), strict=True))
    copies = row.copies.tolist()
    assert len(copies) > len(following) / 4
    texts = [
        [TOKENIZER.decode([token]).strip() for token in (following[query], int(row.input_ids[0, source]))]
        for query, source in copies
        if query in following
    ]
    assert all(copy.startswith(source) or source.startswith(copy) or source.endswith(copy) for copy, source in texts)
    assert all(source <= query for query, source in copies)


def test_only_what_the_assistant_writes_is_learned(row: Row) -> None:
    """The learned tokens are calls and answers with their end, and no request, result or list of tools."""
    learned = TOKENIZER.decode(row.targets.tolist(), skip_special_tokens=False)
    assert "<tool_call>" in learned
    assert learned.endswith("<|im_end|>")
    assert "<tool_response>" not in learned
    assert "<|im_start|>" not in learned


def _drawn(held_out: bool) -> tuple[set[str], set[tuple[str, str]], set[str]]:
    """Return cities, pairs of numbers, and phrasings with one city, of many draws."""
    draw = Draw("drawn", held_out)
    cities = {city.lower() for _ in range(3000) for city in (draw.place("en"), draw.place("zh"))}
    phrasings = {draw.phrase((*weather._EN, *weather._ZH), c="X") for _ in range(6000)}
    return cities, {draw.numbers() for _ in range(20_000)}, phrasings


def test_what_is_held_out_is_not_drawn() -> None:
    """The training draws no held-out city or pair of numbers, and few held-out phrasings: those its noise makes."""
    cities, numbers, phrasings = _drawn(held_out=False)
    held_cities, held_numbers, held_phrasings = _drawn(held_out=True)
    assert held_cities.isdisjoint(cities)
    assert held_numbers.isdisjoint(numbers)
    assert len(held_phrasings & phrasings) < len(held_phrasings) / 20


def test_conversations_are_drawn_from_the_seed() -> None:
    """Equal seeds give equal tools and conversations."""

    def drawn(seed: str) -> list[Any]:
        draw = Draw(seed)
        boxes: list[Toolbox] = [toolbox(draw) for _ in range(20)]
        return [(json.dumps(box.sent), conversation(draw, box)) for box in boxes]

    assert drawn("a") == drawn("a")
    assert drawn("a") != drawn("b")


def test_results_are_in_the_answers() -> None:
    """A result that is a whole number is in the answer."""
    for sample in islice(held_out(10), 80):
        call = sample.exchange.call
        if call and call.result.isdigit():
            assert call.result in sample.exchange.answer


def test_narrow_undoes_widen(model: Qwen2ForCausalLM) -> None:
    """A widened model, made narrow again, has its old weights."""
    again = narrow(widen(model, 64), 24)
    assert again.config.rope_parameters["rope_theta"] == pytest.approx(model.config.rope_parameters["rope_theta"])
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], weight)
