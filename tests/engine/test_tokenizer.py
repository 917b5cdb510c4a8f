"""Test of the tokenizers that can be loaded."""

import json

import pytest

from tracellm.engine.config.errors import ModelLoadError
from tracellm.engine.config.tokenizer import get_tokenizer


@pytest.mark.parametrize(("name", "loads"), [("GPT2Tokenizer", True), ("CTRLTokenizer", False)])
def test_a_tokenizer_written_in_python_is_refused(tmp_path, name, loads):
    """Without tokenizer.json, vocab.json and merges.txt are enough, and a tokenizer written in Python is refused."""
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, "<unk>": 2, "ab": 3}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    if loads:
        assert get_tokenizer(str(tmp_path)).encode("ab") == [3]
    else:
        with pytest.raises(ModelLoadError, match=r"CTRLTokenizer is written in Python.*tokenizer\.json"):
            get_tokenizer(str(tmp_path))
