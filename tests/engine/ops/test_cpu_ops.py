"""Tests of the CPU's linear layers in their own layout, and of the fallback without kernels."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.engine.ops.attention_batch import Batch
from tests.engine.ops.implementations import DTYPES, assert_near
from tracellm.engine.attention.selector import get_attn_backend
from tracellm.engine.config.vllm_config import OpsChoice
from tracellm.engine.model_executor.layers.linear import ReplicatedLinear
from tracellm.engine.model_executor.layers.vocab_embedding import ParallelLMHead, VocabParallelEmbedding
from tracellm.engine.model_executor.ops import cpu_ops, make_ops, using_ops
from tracellm.engine.model_executor.ops.choice import choose_ops
from tracellm.engine.model_executor.ops.cpu import native
from tracellm.engine.model_executor.ops.cpu_ops import CpuOps, PackedWeight
from tracellm.engine.model_executor.ops.torch_ops import TorchOps


class Model(nn.Module):
    """Embedding tied to the output layer, and a layer with a bias."""

    def __init__(self, vocabulary: int, size: int) -> None:
        super().__init__()
        self.embedding = VocabParallelEmbedding(vocabulary, size)
        self.layer = ReplicatedLinear(size, size + 3, bias=True)
        self.head = ParallelLMHead(vocabulary, size, tied_to=self.embedding)
        for parameter in self.parameters():
            parameter.data.normal_()


@settings(max_examples=40, deadline=None)
@given(
    rows=st.sampled_from([0, 1, 2, 5, 6, 7, 13, 16, 31, 64]) | st.integers(1, 300),
    outputs=st.integers(1, 70),
    inputs=st.integers(1, 40) | st.sampled_from([255, 256, 257, 513, 700]),
    dtype=st.sampled_from(DTYPES),
    checkpoint=st.sampled_from(DTYPES),
    bias=st.booleans(),
    own=st.booleans(),
    seed=st.integers(0, 5),
)
def test_linear(
    rows: int,
    outputs: int,
    inputs: int,
    dtype: torch.dtype,
    checkpoint: torch.dtype,
    bias: bool,
    own: bool,
    seed: int,
) -> None:
    """Any number of rows, outputs and inputs gives `x @ weight.T + bias`, for any dtype of the weights.

    x may be a slice of a wider tensor. It holds for oneDNN, if this CPU uses it, and for this package's kernels.
    """
    torch.manual_seed(seed)
    ops = CpuOps()
    with using_ops(ops):
        layer = ReplicatedLinear(inputs, outputs, bias).to(dtype)
    for parameter in layer.parameters():
        parameter.data = parameter.data.normal_().to(checkpoint).to(dtype)
    expected_weight = layer.weight.double()
    x = torch.randn(rows, inputs + 3).to(dtype)[:, 2:-1]
    expected = x.double() @ expected_weight.T + (layer.bias.double() if layer.bias is not None else 0)
    with pytest.MonkeyPatch.context() as patch:
        if own:
            patch.setattr(cpu_ops, "_onednn_is_faster", lambda dtype: False)
        ops.prepare_weights(layer)
    assert_near(layer(x), expected)


@pytest.mark.usefixtures("own_kernels")
def test_a_row_does_not_depend_on_its_neighbours() -> None:
    """A row's result is the same bit for bit, alone and in a batch."""
    torch.manual_seed(0)
    ops = CpuOps()
    for dtype in DTYPES:
        weight = ops._pack(torch.randn(50, 600).to(dtype))
        assert weight is not None
        x = torch.randn(40, 600).to(dtype)
        together = ops.linear(x, weight, None)
        for row in range(40):
            assert torch.equal(ops.linear(x[row : row + 1], weight, None)[0], together[row])


@pytest.mark.usefixtures("own_kernels")
@pytest.mark.parametrize("checkpoint", [torch.bfloat16, torch.float16], ids=str)
def test_weights_of_16_bits_stay_so(checkpoint: torch.dtype) -> None:
    """16-bit weights computed in float32 stay in 16 bits, and give the same numbers bit for bit."""
    torch.manual_seed(0)
    ops, x, weight = CpuOps(), torch.randn(17, 300), torch.randn(70, 300).to(checkpoint).float()
    packed = ops._pack(weight)
    assert packed is not None
    assert packed.dtype == checkpoint
    narrow = ops.linear(x, packed, None)
    weight[-1, -1] = 1 + 2**-20
    wide = ops._pack(weight)
    assert wide is not None
    assert wide.dtype == torch.float32
    assert torch.equal(ops.linear(x, wide, None)[:, :-1], narrow[:, :-1])


@pytest.mark.usefixtures("own_kernels")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_number_of_threads_changes_nothing(dtype: torch.dtype) -> None:
    """Every operation gives the same bits with one thread and with three."""
    torch.manual_seed(0)
    ops = CpuOps()
    with using_ops(ops):
        layer = ReplicatedLinear(600, 200, bias=True).to(dtype)
    for parameter in layer.parameters():
        parameter.data.normal_()
    ops.prepare_weights(layer)
    x, weight = torch.randn(300, 600).to(dtype), torch.randn(600).to(dtype)
    batch = Batch([(1, 70), (90, 200), (1, 33), (5, 5)], heads=(6, 2), block_size=16, head_size=40, dtype=dtype)
    turns = torch.randn(300, 20).to(dtype)

    def results() -> list[torch.Tensor]:
        heads = x.view(300, 30, 20)
        return [
            layer(x),
            ops.rms_norm(x, weight, 1e-6),
            *ops.fused_add_rms_norm(x, x, weight, 1e-6),
            ops.silu_and_mul(x),
            *ops.rotary_embedding(torch.arange(300), heads[:, :25], heads[:, 25:], turns),
            batch.attend("cpu"),
        ]

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = results()
        torch.set_num_threads(3)
        together = results()
    finally:
        torch.set_num_threads(before)
    for one, other in zip(alone, together, strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("own_kernels")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_every_number_of_16_bits(dtype: torch.dtype) -> None:
    """Every 16-bit number, subnormal or infinite, is read and rounded as in PyTorch, and NaN stays NaN."""
    ops, every = CpuOps(), torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    for seed in range(4):
        others = every[torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))]
        _, total = ops.fused_add_rms_norm(every, others, torch.ones_like(every), 1e-6)
        expected = every + others
        assert torch.equal(total.isnan(), expected.isnan())
        assert torch.equal(total[~total.isnan()].view(torch.int16), expected[~expected.isnan()].view(torch.int16))
    numbers = every[every.isfinite()]
    weight = ops._pack(numbers.view(-1, 1))  # a column of each
    assert weight is not None
    products = ops.linear(torch.ones(1, 1, dtype=dtype), weight, None)[0]
    assert torch.equal(products, numbers)


def check_misfits(dtype: torch.dtype, rows: int = 2) -> None:
    """Check that a weight of 8 x 16 refuses inputs of another dtype or size."""
    ops = CpuOps()
    weight = ops._pack(torch.ones(8, 16, dtype=dtype))
    assert weight is not None
    for x in (torch.ones(rows, 16, dtype=torch.float64), torch.ones(rows, 8, dtype=dtype)):
        with pytest.raises(TypeError, match=r"^linear: x is "):
            ops.linear(x, weight, None)


@pytest.mark.usefixtures("own_kernels")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_input_that_does_not_fit(dtype: torch.dtype) -> None:
    """An input of another dtype or size than the weight's is refused before it is read."""
    check_misfits(dtype)


@pytest.mark.parametrize("rows", [0, 2])
def test_an_input_that_does_not_fit_with_onednn(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With oneDNN too, an input of another dtype or size is refused with the same message."""
    monkeypatch.setattr(cpu_ops, "_onednn_is_faster", lambda dtype: True)
    check_misfits(torch.float32, rows)


@pytest.mark.parametrize("name", ["torch", "cpu"])
def test_no_tokens(name: str) -> None:
    """A batch without tokens gives an empty result."""
    ops = make_ops(name)
    none, weight = torch.empty(0, 2, 8), torch.ones(8)
    cache = torch.zeros(3, 4, 2, 8)
    impl = get_attn_backend(name).get_impl_cls()(2, 8, 1.0, 2)
    impl.reshape_and_cache(none, none, cache, cache.clone(), torch.empty(0, dtype=torch.int64))
    assert ops.rms_norm(none, weight, 1e-6).shape == none.shape
    assert ops.silu_and_mul(none).shape == (0, 2, 4)
    assert ops.rotary_embedding(torch.empty(0, dtype=torch.int64), none, none, torch.ones(4, 8))[1].shape == none.shape


def test_weights_are_laid_out_once() -> None:
    """Packed weights replace those of the layers, and an embedding tied to the output layer is kept."""
    ops = CpuOps()
    with using_ops(ops):
        model = Model(vocabulary=37, size=16)
    before = model.embedding.weight
    logits, turned = model.head(torch.ones(2, 16)), model.layer(torch.ones(2, 16))
    ops.prepare_weights(model)
    assert isinstance(model.layer.weight, PackedWeight)
    assert isinstance(model.head.weight, PackedWeight)
    assert model.embedding.weight is before
    torch.testing.assert_close(model.head(torch.ones(2, 16)), logits)
    torch.testing.assert_close(model.layer(torch.ones(2, 16)), turned)


def test_weights_in_the_layout_of_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """If oneDNN is faster it computes, for any number of rows, with a bias or without."""
    monkeypatch.setattr(cpu_ops, "_onednn_is_faster", lambda dtype: True)
    torch.manual_seed(0)
    ops = CpuOps()
    with using_ops(ops):
        model = Model(vocabulary=37, size=16)
    assert model.layer.bias is not None
    weight, bias, rows = model.layer.weight.double(), model.layer.bias.double(), model.embedding.weight.double()
    ops.prepare_weights(model)
    assert model.layer.weight.is_mkldnn
    for count in (0, 1, 16, 17, 70, 128, 129):
        x = torch.randn(count, 20)[:, 2:18]
        assert_near(model.layer(x), x.double() @ weight.T + bias)
        assert_near(model.layer(x.view(count, 1, 16)), (x.double() @ weight.T + bias).unsqueeze(1))
        assert_near(model.head(x), x.double() @ rows.T)


def test_onednn_needs_few_kernels() -> None:
    """Products of 1 to 2,048 rows need 55 kernels of oneDNN, of an eighth more rows at most or a tile of AMX."""
    kernels = {rows: cpu_ops._rows_of_kernel(rows) for rows in range(1, 2049)}
    assert len(set(kernels.values())) == 55
    for rows, rows_of_kernel in kernels.items():
        assert rows <= rows_of_kernel <= max(rows + rows // 8, rows + 15 * (rows > 16))
        assert cpu_ops._rows_of_kernel(rows_of_kernel) == rows_of_kernel


def test_layers_of_another_engine_are_left_alone() -> None:
    """Each of two engines in a process changes the layout of its own layers' weights only."""
    ops = CpuOps()
    with using_ops(TorchOps()):
        model = Model(vocabulary=37, size=16)
    ops.prepare_weights(model)
    assert not isinstance(model.layer.weight, PackedWeight)


@pytest.mark.usefixtures("fresh")
def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler PyTorch's operations compute with unchanged weights, and the reason is stored."""
    monkeypatch.setenv(native.COMPILER, "")
    ops, reference = CpuOps(), TorchOps()
    assert native.load().reason == "no C++ compiler: TRACELLM_CXX is ''"
    assert choose_ops(None, torch.device("cpu")) == OpsChoice("cpu", "cpu_uncompiled")
    with using_ops(ops):
        model = Model(vocabulary=37, size=16)
    ops.prepare_weights(model)
    x, weight = torch.randn(6, 16), torch.randn(16)
    assert torch.equal(model.layer(x), reference.linear(x, model.layer.weight, model.layer.bias))
    assert torch.equal(ops.rms_norm(x, weight, 1e-6), reference.rms_norm(x, weight, 1e-6))
    assert torch.equal(ops.gemma_rms_norm(x, weight, 1e-6), reference.gemma_rms_norm(x, weight, 1e-6))
    assert torch.equal(ops.silu_and_mul(x), reference.silu_and_mul(x))
    assert torch.equal(ops.gelu_tanh_and_mul(x), reference.gelu_tanh_and_mul(x))
    batches = [Batch([(1, 9), (4, 7)], heads=(4, 2), block_size=4) for _ in range(2)]
    assert torch.equal(batches[0].attend("cpu"), batches[1].attend("torch"))
