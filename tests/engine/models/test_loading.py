"""Tests of the model loader: what it reads, and the error for each kind of damage."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.checkpoints import FAMILIES, change_config, make_checkpoint
from tests.engine.worker.driver import make_config
from tracellm.engine.config.errors import ModelLoadError
from tracellm.engine.model_executor.model_loader import DefaultModelLoader, default_loader
from tracellm.engine.model_executor.model_loader.weight_files import find_weight_files
from tracellm.engine.model_executor.models.registry import get_supported_archs, resolve_model_cls

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(qwen2_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the Qwen2 checkpoint that a test may damage."""
    return Path(shutil.copytree(qwen2_checkpoint, tmp_path / "model"))


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A Qwen2 checkpoint in several files."""
    return make_checkpoint(tmp_path / "sharded", "qwen2", max_shard_size="200KB")


def load(folder: Path) -> Any:
    """Load a checkpoint in float32."""
    return DefaultModelLoader().load_model(make_config(folder))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Apply `change` to the dictionary of a checkpoint's tensors."""
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_host_never_holds_the_whole_checkpoint(folder: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is on its device before the first tensor is read, and each tensor is copied there separately."""
    placed: list[Any] = []
    devices: set[str] = set()

    class Loader(DefaultModelLoader):
        def place_on_device(self, model: Any, device: torch.device) -> Any:
            placed.append(super().place_on_device(model, device))
            return placed[-1]

        def _get_all_weights(self, weight_files: Any) -> Iterator[tuple[str, torch.Tensor]]:
            assert placed, "placed before it is read"
            devices.update(tensor.device.type for tensor in (*model.parameters(), *model.buffers()))
            return super()._get_all_weights(weight_files)

    config = make_config(folder)
    config.device_config.device = torch.device(device)
    model: Any = resolve_model_cls(["Qwen2ForCausalLM"])(config)
    monkeypatch.setattr(default_loader, "resolve_model_cls", lambda architectures: lambda config: model)
    loaded: Any = Loader().load_model(config)
    assert loaded is model
    assert devices == {device}
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


def test_the_three_stages_return_what_they_did(folder: Path) -> None:
    """Finding, allocating and reading weights each return their result."""
    loader, config = DefaultModelLoader(), make_config(folder)
    files = loader._prepare_weights(config.model_config.model)
    assert [path.name for path in files.files] == [WEIGHTS]
    assert files.num_bytes == (folder / WEIGHTS).stat().st_size
    model = resolve_model_cls(["Qwen2ForCausalLM"])(config)
    placed = loader.place_on_device(model, torch.device("cpu"))
    loaded = loader.load_weights(model, files)
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        assert loaded.num_tensors == len(list(file.keys()))
    assert loaded.num_parameters == sum(tensor.numel() for tensor in load_file(folder / WEIGHTS).values())
    assert loaded.dtype == torch.float32
    assert placed.device.type == "cpu"
    assert placed.num_bytes >= 4 * loaded.num_parameters


def test_tied_embeddings_are_one_tensor(folder: Path) -> None:
    """Tied embeddings share one tensor with the output layer."""
    model = load(folder)
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_merged_projections_hold_the_parts_in_order(folder: Path) -> None:
    """The rows of the merged matrices are those of q, k and v, and of gate and up."""
    tensors, layer = load_file(folder / WEIGHTS), load(folder).model.layers[1]
    for merged, parts in {
        layer.self_attn.qkv_proj: [f"self_attn.{name}_proj" for name in "qkv"],
        layer.mlp.gate_up_proj: ["mlp.gate_proj", "mlp.up_proj"],
    }.items():
        assert torch.equal(merged.weight, torch.cat([tensors[f"model.layers.1.{name}.weight"] for name in parts]))


def test_sharded_checkpoint_equals_a_single_file(sharded: Path, folder: Path) -> None:
    """A checkpoint in several files, listed in an index, loads to the same model."""
    assert len(find_weight_files(str(sharded)).files) > 2
    state = load(folder).state_dict()
    for name, tensor in load(sharded).state_dict().items():
        assert torch.equal(tensor, state[name]), name


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_loads_from_shards_of_sixteen_bits(
    family: str, dtype: str, family_checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    """A sharded 16-bit checkpoint of every family loads in float32 with unchanged values."""
    folder = make_checkpoint(tmp_path, family, max_shard_size="100KB", dtype=dtype)
    assert len(find_weight_files(str(folder)).files) > 2
    expected = load(family_checkpoint(family)).to(getattr(torch, dtype)).float().state_dict()
    for name, tensor in load(folder).state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def test_shards_without_an_index_load_too(sharded: Path, folder: Path) -> None:
    """Shards without an index are found by their file names."""
    (sharded / "model.safetensors.index.json").unlink()
    assert torch.equal(load(sharded).model.norm.weight, load(folder).model.norm.weight)


def test_the_same_weights_in_another_form_are_not_read(folder: Path, sharded: Path) -> None:
    """The second copy of the weights in Mistral's checkpoints, under other names, is not read."""
    for one, files in ((folder, 1), (sharded, len(list(sharded.glob("*.safetensors"))))):
        save_file({"tok_embeddings.weight": torch.zeros(2, 2)}, one / "consolidated.safetensors")
        assert len(find_weight_files(str(one)).files) == files
        load(one)


@pytest.mark.parametrize("with_index", [True, False])
def test_missing_shard_is_named(sharded: Path, with_index: bool) -> None:
    """A missing shard is named, with an index or without."""
    shards = sorted(sharded.glob("*.safetensors"))
    shards[1].unlink()
    if not with_index:
        (sharded / "model.safetensors.index.json").unlink()
    with pytest.raises(ModelLoadError, match=shards[1].name):
        load(sharded)


@pytest.mark.parametrize("content", ["{", "[]", '{"weight_map": 3}'])
def test_damaged_index_is_named(sharded: Path, content: str) -> None:
    """An invalid index is named."""
    (sharded / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ModelLoadError, match=r"index\.json is damaged"):
        load(sharded)


@pytest.mark.parametrize("keep", [0, 5, 100, 2000, -1])
def test_truncated_file_is_named(folder: Path, keep: int) -> None:
    """A file truncated anywhere is named."""
    file = folder / WEIGHTS
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ModelLoadError, match=r"model\.safetensors is damaged or cut short"):
        load(folder)


def test_git_lfs_pointer_is_recognized(folder: Path) -> None:
    """A Git LFS pointer in place of the weights is recognized."""
    (folder / WEIGHTS).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(ModelLoadError, match="git lfs pull"):
        load(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickled_weights_are_refused(folder: Path, name: str) -> None:
    """Pickled weights are not opened, and the message has advice."""
    (folder / WEIGHTS).rename(folder / name)
    with pytest.raises(ModelLoadError, match=f"pickled weights \\({name}\\).*safetensors"):
        load(folder)


def test_folder_without_weights_is_refused(folder: Path) -> None:
    """A folder without weights is refused."""
    (folder / WEIGHTS).unlink()
    with pytest.raises(ModelLoadError, match="holds no weights"):
        load(folder)


def test_folder_without_config_is_refused(folder: Path) -> None:
    """A folder without config.json is refused."""
    (folder / "config.json").unlink()
    with pytest.raises(ModelLoadError, match=r"holds no config\.json"):
        find_weight_files(str(folder))


def test_missing_tensor_is_named(folder: Path) -> None:
    """A missing tensor of a merged layer is named as in the checkpoint."""
    change_weights(folder, lambda tensors: tensors.pop("model.layers.1.self_attn.k_proj.bias"))
    with pytest.raises(ModelLoadError, match=r"lacks 1 tensor \(model\.layers\.1\.self_attn\.k_proj\.bias\)"):
        load(folder)


def test_unexpected_tensor_is_named(folder: Path) -> None:
    """A tensor unknown to the model is refused."""
    change_weights(folder, lambda tensors: tensors.update({"model.layers.9.bias": torch.zeros(3)}))
    with pytest.raises(ModelLoadError, match=r"model\.layers\.9\.bias"):
        load(folder)


def test_wrong_shape_is_named(folder: Path) -> None:
    """A tensor of the wrong shape is refused with both shapes, even if it could be broadcast."""
    change_weights(folder, lambda tensors: tensors.update({"model.norm.weight": torch.zeros(1)}))
    with pytest.raises(ModelLoadError, match=r"model\.norm\.weight has the shape \[1\].*\[64\]"):
        load(folder)


def test_config_of_another_size_is_refused(folder: Path) -> None:
    """Weights that do not fit config.json are refused."""
    change_config(folder, intermediate_size=128)
    with pytest.raises(ModelLoadError, match=r"mlp\.(gate|up|down)_proj\.weight has the shape"):
        load(folder)


def test_integer_weights_are_refused(folder: Path) -> None:
    """Integer weights are refused."""
    change_weights(folder, lambda tensors: tensors.update({"model.norm.weight": torch.zeros(64, dtype=torch.int8)}))
    with pytest.raises(ModelLoadError, match="quantized"):
        load(folder)


def test_quantized_checkpoint_is_refused(folder: Path) -> None:
    """A quantized checkpoint is refused with its method."""
    change_config(folder, quantization_config={"quant_method": "awq", "bits": 4})
    with pytest.raises(ModelLoadError, match="awq"):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "gelu"}, r"`hidden_act` to 'gelu'; models of the type `qwen2` run here with 'silu' only"),
        ({"is_causal": False}, r"`is_causal` to False"),
        ({"layer_types": ["full_attention", "linear_attention", "full_attention"]}, r"`linear_attention` for layer 1"),
    ],
)
def test_unsupported_settings_are_refused(folder: Path, changes: dict[str, object], message: str) -> None:
    """Unsupported settings in config.json are named."""
    change_config(folder, **changes)
    with pytest.raises(ModelLoadError, match=message):
        load(folder)


@pytest.mark.parametrize("architectures", [["GPTBigCodeForCausalLM"], [], None])
def test_unknown_architecture_is_refused_with_the_list(architectures: list[str] | None) -> None:
    """An unsupported architecture is refused with the list of supported ones."""
    with pytest.raises(ModelLoadError, match=", ".join(get_supported_archs())):
        resolve_model_cls(architectures)


def test_every_registered_architecture_has_its_class() -> None:
    """Each line of the registry leads to a class of that name."""
    assert [resolve_model_cls([name]).__name__ for name in get_supported_archs()] == get_supported_archs()


def test_hub_id_offline_gives_one_message() -> None:
    """A hub id that is not cached, without a network, is refused with what to check."""
    with pytest.raises(ModelLoadError, match=r"nobody/no-such-model.*Check the name and the network"):
        find_weight_files("nobody/no-such-model")


def test_gpt2_checkpoint_of_the_bare_model(family_checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    """GPT-2 checkpoints load without the leading `transformer.`, and with the causal masks of old ones."""
    folder = Path(shutil.copytree(family_checkpoint("gpt2"), tmp_path / "gpt2"))
    expected = load(folder).state_dict()
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in load_file(folder / WEIGHTS).items()}
    masks = {"h.0.attn.bias": torch.ones(1, 1, 256, 256), "h.0.attn.masked_bias": torch.tensor(-1e4)}
    save_file(tensors | masks, folder / WEIGHTS)
    for name, tensor in load(folder).state_dict().items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("gpt2", {"activation_function": "relu"}, "`activation_function` to 'relu'.* with 'gelu_new' only"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "`scale_attn_by_inverse_layer_idx` to True"),
        ("gemma2", {"hidden_activation": "silu"}, "`hidden_activation` to 'silu'"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "`use_bidirectional_attention`"),
    ],
)
def test_what_other_families_do_not_do_is_refused(
    family: str, changes: dict[str, object], message: str, family_checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    """Settings of GPT-2 and Gemma that are not implemented are named."""
    folder = Path(shutil.copytree(family_checkpoint(family), tmp_path / family))
    change_config(folder, **changes)
    with pytest.raises(ModelLoadError, match=message):
        load(folder)


def test_opt_checkpoint_without_leading_model(opt_checkpoint: Path, tmp_path: Path) -> None:
    """OPT checkpoints that name their tensors `decoder.*` load."""
    folder = Path(shutil.copytree(opt_checkpoint, tmp_path / "opt"))
    expected = load(folder).state_dict()
    tensors = load_file(folder / WEIGHTS)
    save_file({name.removeprefix("model."): tensor for name, tensor in tensors.items()}, folder / WEIGHTS)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "opt"
    for name, tensor in load(folder).state_dict().items():
        assert torch.equal(tensor, expected[name]), name
