"""Tests of model directories with missing or damaged files: the message names the file and the problem."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.checkpoints import change_config
from tests.engine.watch import is_idle
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import EngineError, ModelLoadError
from tracellm.engine.model_executor.model_loader import default_loader

GREEDY = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_weights_that_are_no_numbers(qwen2_checkpoint, tmp_path, value):
    """A tensor with NaN or infinity is named when the model is loaded."""
    name = "model.layers.0.self_attn.q_proj.weight"
    folder = copy(qwen2_checkpoint, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors[name][3, 5] = float(value)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=f"tensor {name} holds NaN or infinity in torch.bfloat16"):
        LLM(str(folder))


def test_a_model_that_computes_nan_is_not_believed(qwen2_checkpoint, tmp_path):
    """A model whose activations overflow raises an error instead of generating tokens."""
    folder = copy(qwen2_checkpoint, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mlp.down_proj.weight"].mul_(1e4)
    tensors["model.layers.0.mlp.up_proj.weight"].mul_(1e4)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    llm = LLM(str(folder), dtype="float16")
    with pytest.raises(EngineError, match=r"computed NaN instead of logits, in torch\.float16.*Try another dtype"):
        llm.generate(["a", "b"], GREEDY)
    assert is_idle(llm)
    assert len(LLM(str(folder), dtype="float32").generate(["a", "b"], GREEDY)) == 2


def test_a_weight_file_that_may_not_be_read(qwen2_checkpoint, monkeypatch):
    """An error other than damage is raised unchanged."""

    def refuse(path, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(default_loader, "safe_open", refuse)
    with pytest.raises(ModelLoadError, match=r"model\.safetensors cannot be read: .*Permission denied"):
        LLM(str(qwen2_checkpoint))


def test_a_weight_file_of_eight_bits(qwen2_checkpoint, tmp_path):
    """8-bit float weights are refused, like other quantized weights."""
    folder = copy(qwen2_checkpoint, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj.weight"
    tensors[name] = tensors[name].to(torch.float8_e4m3fn)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=f"{name} holds torch.float8_e4m3fn"):
        LLM(str(folder))


def test_a_recommendation_that_is_out_of_range(qwen2_checkpoint, tmp_path):
    """An out-of-range value of generation_config.json is refused when it is used, and the message names the file."""
    folder = copy(qwen2_checkpoint, tmp_path)
    (folder / "generation_config.json").write_text('{"temperature": -3}')
    llm = LLM(str(folder))
    with pytest.raises(
        EngineError, match=r"(?s)generation_config.json of .*temperature must be non-negative, got -3.*give `sampl"
    ):
        llm.generate("a")
    assert len(llm.generate("a", GREEDY)) == 1


def copy(folder: Path, target: Path) -> Path:
    """A copy of a checkpoint for tests to damage."""
    return Path(shutil.copytree(folder, target / "model"))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("/no/such/place", "no model directory `/no/such/place`"),
        ("./here", "no model directory `./here`"),
        ("no such model", "no model directory `no such model`"),
        ("nobody/no-such-model", "not a directory, and downloading it from the Hugging Face hub failed"),
    ],
)
def test_a_model_that_is_not_there(model, message):
    """A path that does not exist, or an unknown hub id, is refused."""
    with pytest.raises(ModelLoadError, match=message):
        LLM(model)


def test_a_model_that_is_a_file(qwen2_checkpoint):
    """A weight file in place of its directory is refused."""
    with pytest.raises(ModelLoadError, match="is a file; give the directory"):
        LLM(str(qwen2_checkpoint / "model.safetensors"))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", None, "has no config.json"),
        ("config.json", '{"model_type": "qw', "config.json` is damaged"),
        ("config.json", "[]", "has no `model_type`"),
        ("config.json", '{"model_type": "no-such-type", "architectures": ["Qwen2ForCausalLM"]}', "cannot be used"),
        ("generation_config.json", "{", "generation_config.json` is damaged"),
        ("generation_config.json", "[]", "generation_config.json` is damaged"),
        ("generation_config.json", '{"eos_token_id": "x"}', "`eos_token_id` must be a token id or a list of them.*'x'"),
        ("model.safetensors.index.json", '{"weight_map": {"a": 3}}', "index.json is damaged"),
        ("model.safetensors", "", "model.safetensors is damaged or cut short"),
        ("tokenizer.json", "{", "The tokenizer of .* cannot be loaded"),
        ("tokenizer.json", None, "The tokenizer of .* cannot be loaded"),
        ("model.safetensors", None, "no weights"),
    ],
)
def test_missing_and_damaged_files(qwen2_checkpoint, tmp_path, file, content, message):
    """Each missing or damaged file is named."""
    folder = copy(qwen2_checkpoint, tmp_path)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises(ModelLoadError, match=message):
        LLM(str(folder))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_attention_heads": 0}, "`num_attention_heads` must be a whole number, at least 1, but it is 0"),
        ({"hidden_size": "64"}, "`hidden_size` must be a whole number, at least 1, but it is '64'"),
        ({"vocab_size": -1}, "`vocab_size` must be"),
        ({"max_position_embeddings": 0}, "`max_position_embeddings` must be"),
        ({"architectures": "Qwen2ForCausalLM"}, "`architectures` must be a list of names, got 'Qwen2ForCausalLM'"),
        ({"num_hidden_layers": 4}, "cannot be used: .*num_hidden_layers"),
        ({"rms_norm_eps": "a"}, "cannot be used: .*rms_norm_eps"),
        ({"dtype": "bogus"}, "cannot be used: .*bogus"),
    ],
)
def test_a_config_that_cannot_be(qwen2_checkpoint, tmp_path, changes, message):
    """An invalid entry of config.json is named."""
    folder = copy(qwen2_checkpoint, tmp_path)
    change_config(folder, **changes)
    with pytest.raises(ModelLoadError, match=message):
        LLM(str(folder))


def test_a_vocabulary_without_its_merges(qwen2_checkpoint, tmp_path):
    """An older tokenizer with one of its two files missing is refused with both names."""
    folder = copy(qwen2_checkpoint, tmp_path)
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text('{"a": 0}')
    with pytest.raises(ModelLoadError, match=r"no tokenizer\.json, nor vocab.json with merges.txt"):
        LLM(str(folder))


def test_an_architecture_that_is_not_supported_says_which_are(qwen2_checkpoint, tmp_path):
    """The message names the checkpoint's architecture and the supported ones."""
    folder = copy(qwen2_checkpoint, tmp_path)
    change_config(folder, architectures=["FalconForCausalLM"], model_type="falcon")
    with pytest.raises(ModelLoadError, match=r"FalconForCausalLM.*Supported: .*OPTForCausalLM.*Qwen2ForCausalLM"):
        LLM(str(folder))


def test_a_length_that_is_not_known(qwen2_checkpoint, tmp_path):
    """Without a length in config.json, transformers' default for the architecture is used."""
    folder = copy(qwen2_checkpoint, tmp_path)
    change_config(folder, max_position_embeddings=None)
    assert json.loads((folder / "config.json").read_text()).get("max_position_embeddings") is None
    assert LLM(str(folder), max_num_seqs=1).model_config.max_model_len == 32768
