"""What is read without transformers, for the model inside, is what transformers reads; the unusual is left to it."""

import copy
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerFast

from tracellm import LLM, SamplingParams
from tracellm.engine.config.hf_config import get_config, get_generation_config
from tracellm.engine.config.light_config import (
    _ANOTHER_FAMILYS,
    PlainConfig,
    complete_config,
    read_plain_config,
    read_plain_generation_config,
)
from tracellm.engine.config.light_tokenizer import PlainTokenizer, complete_tokenizer, read_plain_tokenizer

TINY = Path(__file__).parents[2] / "tracellm" / "tiny"
CONFIG = AutoConfig.from_pretrained(TINY)
TOKENIZER = PreTrainedTokenizerFast.from_pretrained(TINY, truncation_side="left")
GREEDY = SamplingParams(temperature=0, max_tokens=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the model inside, without its weights."""
    for file in TINY.glob("*.json"):
        shutil.copy(file, tmp_path)
    return tmp_path


def change(file: Path, **changes: Any) -> None:
    """Change entries of a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def plain_tokenizer() -> PlainTokenizer:
    """That of the model inside, new."""
    tokenizer = read_plain_tokenizer(TINY)
    assert tokenizer is not None
    return tokenizer


def test_the_configuration_is_transformers_own() -> None:
    """Every attribute has transformers' value and type; what it does not have is missing here too; so it is pickled."""
    config = read_plain_config(TINY)
    assert config is not None
    for one in (config, pickle.loads(pickle.dumps(config)), copy.deepcopy(config)):
        assert {name: getattr(one, name) for name in vars(CONFIG)} == {**vars(CONFIG), "_name_or_path": str(TINY)}
        for name, value in vars(one).items():
            assert (getattr(CONFIG, name), type(getattr(CONFIG, name))) == (value, type(value)), name
        assert not any(hasattr(one, name) or hasattr(CONFIG, name) for name in [*_ANOTHER_FAMILYS, "__no_such__"])
        assert one.to_dict() == CONFIG.to_dict() | {"_name_or_path": str(TINY)}
        with pytest.raises(AttributeError):
            one.no_such_setting  # noqa: B018


def test_the_generation_configuration_is_transformers_own() -> None:
    """What generation_config.json sets is the same by both ways."""
    assert read_plain_generation_config(TINY / "generation_config.json") == get_generation_config(str(TINY))
    assert get_generation_config(str(TINY)) == GenerationConfig.from_pretrained(TINY).to_diff_dict()


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": 250},
        {"layer_types": ["full_attention"] * 3},
        {"layer_types": ["sliding_attention"] * 4},
        {"layer_types": [[]] * 4},
        {"model_type": "qwen3"},
        {"num_hidden_layers": 4.0},
        {"quantization_config": {}},
        {"rms_norm_eps": "1e-6"},
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}},
        {"rope_parameters": None},
        {"rope_theta": 1.0},
        {"tie_word_embeddings": 1},
        {"torch_dtype": "float16"},
        {"use_sliding_window": True},
    ],
    ids=str,
)
def test_an_unusual_configuration_is_left_to_transformers(folder: Path, changes: dict[str, Any]) -> None:
    """A setting more, another kind, or one that contradicts another: transformers has to say what it means."""
    assert isinstance(get_config(str(folder)), PlainConfig)
    change(folder / "config.json", **changes)
    assert read_plain_config(folder) is None


def test_overrides_are_for_transformers() -> None:
    """A function that changes the configuration gets transformers' own, and no stand-in."""
    seen = []
    changed = get_config(str(TINY), lambda config: seen.append(config) or config)  # type: ignore[func-returns-value]
    assert isinstance(changed, type(CONFIG))
    assert seen == [changed]
    assert isinstance(complete_config(get_config(str(TINY))), type(CONFIG))


@pytest.mark.parametrize("changes", [{"temperature": 0.5}, {"eos_token_id": "2"}, {"do_sample": 1}], ids=str)
def test_an_unusual_generation_configuration_is_left_to_transformers(folder: Path, changes: dict[str, Any]) -> None:
    """What is not only about special tokens is for transformers."""
    file = folder / "generation_config.json"
    change(file, **changes)
    assert read_plain_generation_config(file) is None


@settings(max_examples=60, deadline=None)
@given(
    st.text(max_size=40) | st.sampled_from(["<|im_start|>user\nHi<|im_end|>", " a  b\n\n", "你好，世界"]),
    st.integers(0, 9),
)
def test_text_becomes_the_same_tokens_and_back(text: str, length: int) -> None:
    """Encoded, truncated and decoded as by transformers, special tokens and all."""
    tokenizer = plain_tokenizer()
    token_ids = tokenizer.encode(text)
    assert token_ids == TOKENIZER.encode(text)
    assert tokenizer.encode(text, truncation=True, max_length=length, verbose=False) == TOKENIZER.encode(
        text, truncation=True, max_length=length
    )
    for skip in (True, False):
        assert tokenizer.decode(token_ids, skip_special_tokens=skip) == TOKENIZER.decode(
            token_ids, skip_special_tokens=skip
        )
    assert tokenizer._complete is None


def test_the_tokenizer_is_transformers_own() -> None:
    """Its tokenizer.json is that which transformers makes of it; copies are as good, and others ask transformers."""
    written = PreTrainedTokenizerFast.from_pretrained(TINY).backend_tokenizer.to_str()
    for tokenizer in (plain_tokenizer(), copy.deepcopy(plain_tokenizer())):
        assert tokenizer.backend_tokenizer.to_str() == written
        assert (len(tokenizer), tokenizer.eos_token_id) == (len(TOKENIZER), TOKENIZER.eos_token_id)
        assert tokenizer._complete is None
        assert tokenizer.encode(["Hello", "there"]) == TOKENIZER.encode(["Hello", "there"])  # type: ignore[arg-type]
        assert tokenizer.chat_template == TOKENIZER.chat_template
        assert tokenizer.decode(7) == TOKENIZER.decode(7)  # type: ignore[arg-type]
        assert tokenizer("Hello") == TOKENIZER("Hello")
        tokenizer.eos_token = "<|endoftext|>"
        assert (tokenizer.eos_token_id, complete_tokenizer(tokenizer).eos_token_id) == (0, 0)


def test_what_a_user_changes_in_the_tokenizer_counts() -> None:
    """`get_tokenizer` gives transformers' tokenizer, always the same, and from then on the engine uses that."""
    llm = LLM(num_gpu_blocks_override=32, max_num_seqs=4)
    before = llm.generate("Hello<new>", GREEDY, use_tqdm=False)[0].prompt_token_ids
    tokenizer = llm.get_tokenizer()
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    assert llm.get_tokenizer() is tokenizer
    assert llm.generate("Hello<new>", GREEDY, use_tqdm=False)[0].prompt_token_ids == before
    tokenizer.add_special_tokens({"eos_token": "<|endoftext|>"})
    assert llm.llm_engine.tokenizer is not None
    assert llm.llm_engine.tokenizer.eos_token_id == 0
    tokenizer.add_tokens(["<new>"])
    assert len(llm.llm_engine.tokenizer) == len(TOKENIZER) + 1
    assert llm.llm_engine.tokenizer.encode("Hello<new>")[-1] == len(TOKENIZER)


@pytest.mark.parametrize(
    "changes",
    [
        {"add_bos_token": True},
        {"add_prefix_space": True},
        {"additional_special_tokens": ["<x>"]},
        {"clean_up_tokenization_spaces": True},
        {"pad_token": "<pad>"},
        {"eos_token": {"content": "<|im_end|>"}},
    ],
    ids=str,
)
def test_an_unusual_tokenizer_is_left_to_transformers(folder: Path, changes: dict[str, Any]) -> None:
    """Settings that may change how text becomes tokens, and special tokens that tokenizer.json does not have."""
    assert read_plain_tokenizer(folder) is not None
    change(folder / "tokenizer_config.json", **changes)
    assert read_plain_tokenizer(folder) is None


def test_what_else_lies_in_the_folder_is_left_to_transformers(folder: Path) -> None:
    """A tokenizer.json that truncates, and files in which older transformers kept special tokens."""
    file = folder / "tokenizer.json"
    change(file, truncation={"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0})
    assert read_plain_tokenizer(folder) is None
    shutil.copy(TINY / "tokenizer.json", file)
    assert read_plain_tokenizer(folder) is not None
    (folder / "special_tokens_map.json").write_text("{}")
    assert read_plain_tokenizer(folder) is None
    assert complete_tokenizer(TOKENIZER) is TOKENIZER
