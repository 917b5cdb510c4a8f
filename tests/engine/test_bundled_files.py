"""Tests that the bundled model's files, read without transformers, have the values that transformers reads."""

import copy
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerFast

from tracellm import LLM, SamplingParams
from tracellm.engine.config.hf_config import LightConfig, get_config, get_generation_config, is_bundled
from tracellm.engine.config.tokenizer import LightTokenizer, get_tokenizer, load_complete_tokenizer

TINY = Path(__file__).parents[2] / "tracellm" / "tiny"
CONFIG = AutoConfig.from_pretrained(TINY)
TOKENIZER = PreTrainedTokenizerFast.from_pretrained(TINY, truncation_side="left")
GREEDY = SamplingParams(temperature=0, max_tokens=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the bundled model, without its weights."""
    for file in TINY.glob("*.json"):
        shutil.copy(file, tmp_path)
    return tmp_path


def test_the_configuration_is_transformers_own() -> None:
    """Attributes have the values and types of transformers', also after pickling and copying."""
    config: Any = get_config(str(TINY))
    assert isinstance(config, LightConfig)
    for one in (config, pickle.loads(pickle.dumps(config)), copy.deepcopy(config)):
        assert {name: getattr(one, name) for name in vars(CONFIG)} == {**vars(CONFIG), "_name_or_path": str(TINY)}
        for name, value in vars(one).items():
            assert (getattr(CONFIG, name), type(getattr(CONFIG, name))) == (value, type(value)), name
        assert not any(hasattr(one, name) or hasattr(CONFIG, name) for name in [*LightConfig._ABSENT, "__no_such__"])
        assert one.to_dict() == CONFIG.to_dict() | {"_name_or_path": str(TINY)}
        with pytest.raises(AttributeError):
            one.no_such_setting  # noqa: B018


def test_the_generation_configuration_is_transformers_own() -> None:
    """The bundled generation_config.json has the values that transformers reads."""
    assert get_generation_config(str(TINY)) == GenerationConfig.from_pretrained(TINY).to_diff_dict()


def test_another_folder_is_read_by_transformers(folder: Path) -> None:
    """A copy in another folder is read by transformers, with the same result."""
    assert not is_bundled(folder)
    config, tokenizer = get_config(str(folder)), get_tokenizer(str(folder))
    assert isinstance(config, type(CONFIG))
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    assert load_complete_tokenizer(tokenizer) is tokenizer
    assert config.to_dict() | {"_name_or_path": ""} == CONFIG.to_dict() | {"_name_or_path": ""}
    assert get_generation_config(str(folder)) == get_generation_config(str(TINY))


def test_overrides_are_for_transformers() -> None:
    """An `hf_overrides` function gets transformers' configuration."""
    seen = []
    changed = get_config(str(TINY), lambda config: seen.append(config) or config)  # type: ignore[func-returns-value]
    assert isinstance(changed, type(CONFIG))
    assert seen == [changed]


@settings(max_examples=60, deadline=None)
@given(
    st.text(max_size=40) | st.sampled_from(["<|im_start|>user\nHi<|im_end|>", " a  b\n\n", "你好，世界"]),
    st.integers(0, 9),
)
def test_text_becomes_the_same_tokens_and_back(text: str, length: int) -> None:
    """Texts are encoded, truncated and decoded as by transformers, with special tokens."""
    tokenizer = LightTokenizer(TINY)
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
    """The bundled tokenizer.json equals transformers'; copies work, and other folders use transformers."""
    written = PreTrainedTokenizerFast.from_pretrained(TINY).backend_tokenizer.to_str()
    for tokenizer in (LightTokenizer(TINY), copy.deepcopy(LightTokenizer(TINY))):
        assert tokenizer.backend_tokenizer.to_str() == written
        assert (len(tokenizer), tokenizer.eos_token_id) == (len(TOKENIZER), TOKENIZER.eos_token_id)
        assert tokenizer._complete is None
        assert tokenizer.encode(["Hello", "there"]) == TOKENIZER.encode(["Hello", "there"])  # type: ignore[arg-type]
        assert tokenizer.chat_template == TOKENIZER.chat_template
        assert tokenizer.decode(7) == TOKENIZER.decode(7)  # type: ignore[arg-type]
        assert tokenizer("Hello") == TOKENIZER("Hello")
        tokenizer.eos_token = "<|endoftext|>"
        assert (tokenizer.eos_token_id, load_complete_tokenizer(tokenizer).eos_token_id) == (0, 0)


def test_what_a_user_changes_in_the_tokenizer_counts() -> None:
    """`get_tokenizer` always returns the same transformers tokenizer, and the engine uses changes to it."""
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
