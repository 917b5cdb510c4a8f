"""Checks of lab 2: norms, rotary embedding, activations, decoder layers and a whole model against transformers.

A case holds sizes and a seed, from which both processes make the same inputs and weights. Only the grader's process
imports transformers. The student's code runs with `TorchOps`, so the layers are never fused.
"""

import math
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tracellm.lab.checks import Check, Failure
from tracellm.lab.tensors import compare_tensors, generator, to_plain

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CHECKS"]

_EPSILONS = (1e-6, 1e-5, 1e-3)
_THETAS = (100.0, 10000.0, 1000000.0)


def _where(index: tuple[int, ...]) -> tuple[str, str]:
    return f"token {index[0]}, dimension {index[1]}", f"token {index[0]} 第 {index[1]} 维"


class _Norm(Check):
    """A norm of random rows of very different sizes."""

    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`. A size of 0.001 makes the epsilon matter."""
        return {
            "seed": random.randrange(10**6),
            "sizes": [random.choice((0.001, 0.01, 1.0, 30.0)) for _ in range(random.randint(2, 4))],
            "hidden": random.choice((4, 8, 12)),
            "epsilon": random.choice(_EPSILONS),
        }

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out rows."""
        for index in range(len(case["sizes"])):
            if len(case["sizes"]) > 1:
                yield case | {"sizes": case["sizes"][:index] + case["sizes"][index + 1 :]}


def _norm_inputs(case: Any) -> tuple["Tensor", "Tensor"]:
    """Return x [T, n], and weights [n] between 0.5 and 1.5."""
    import torch

    numbers = generator(case["seed"])
    sizes = torch.tensor(case["sizes"])[:, None]
    x = torch.randn(len(sizes), case["hidden"], generator=numbers) * sizes
    return x, torch.rand(case["hidden"], generator=numbers) + 0.5


def _transformers_norm(x: "Tensor", weight: "Tensor", epsilon: float, gemma: bool = False) -> "Tensor":
    from torch import nn
    from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
    from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

    norm = (Gemma2RMSNorm if gemma else Qwen2RMSNorm)(len(weight), eps=epsilon)
    norm.weight = nn.Parameter(weight, requires_grad=False)
    result: Tensor = norm(x)
    return result


def _compare_norm(
    name: str, case: Any, x: "Tensor", factors: "Tensor", output: Any, expected: "Tensor", tolerance: float = 1e-4
) -> Failure | None:
    """Describe a wrong norm by the root that its rows were divided by, where there is one."""
    failure = compare_tensors(name, output, expected, _where, tolerance=tolerance)
    if failure is None or output.get("shape") != list(x.shape):
        return failure
    rows = [output["values"][start : start + len(factors)] for start in range(0, x.numel(), len(factors))]
    for number, (row, vector, right) in enumerate(zip(rows, x.double(), expected.double().tolist(), strict=True)):
        if max(abs(a - b) for a, b in zip(row, right, strict=True)) <= tolerance * max(1.0, *map(abs, right)):
            continue
        roots = [
            one * factor / got for one, factor, got in zip(vector.tolist(), factors.tolist(), row, strict=True) if got
        ]
        square = float(vector.square().mean())
        if len(roots) == len(row) and max(roots) - min(roots) < 0.02 * abs(roots[0]):
            root = (square + case["epsilon"]) ** 0.5
            return Failure(
                f"{name}, token {number}: it was divided by {roots[0]:.4g}; its mean square is {square:.4g} and "
                f"epsilon {case['epsilon']:g}, so it is divided by {root:.4g}",
                f"{name}，token {number}：除数为 {roots[0]:.4g}；均方为 {square:.4g}，epsilon 为 {case['epsilon']:g}，"
                f"除数应为 {root:.4g}",
            )
        break
    return failure


class RmsNormDividesByTheRoot(_Norm):
    """RMS norm divides each token by the root of its mean square plus epsilon, then multiplies by the weight."""

    zh = "RMS 归一化将每个 token 除以（均方加 epsilon）的平方根，再乘以权重。"
    cases = 6

    def run(self, case: Any) -> Any:
        """See `Check`."""
        from tracellm.engine.model_executor.ops.torch_ops import TorchOps

        x, weight = _norm_inputs(case)
        return to_plain(TorchOps().rms_norm(x, weight, case["epsilon"]))

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare with Qwen2RMSNorm."""
        x, weight = _norm_inputs(case)
        return _compare_norm("rms_norm", case, x, weight, output, _transformers_norm(x, weight, case["epsilon"]))


class NormsComputeInFloat32(_Norm):
    """A norm of 16-bit numbers squares and adds them in float32, and returns 16-bit numbers."""

    zh = "对 16 位数做归一化时，平方与求和用 float32，结果仍为 16 位。"
    cases = 5

    def make(self, random: Random) -> Any:
        """See `Check`. The squares of float16 numbers beyond 255 overflow, those below 0.0002 vanish."""
        case = super().make(random)
        sizes = [random.choice((0.0001, 400.0)), random.choice((1.0, 800.0))]
        function = random.choice(("rms_norm", "gemma_rms_norm"))
        return case | {"sizes": sizes, "epsilon": 1e-9, "dtype": "float16", "function": function}

    def run(self, case: Any) -> Any:
        """See `Check`."""
        import torch

        from tracellm.engine.model_executor.ops.torch_ops import TorchOps

        x, weight = (tensor.to(getattr(torch, case["dtype"])) for tensor in _norm_inputs(case))
        return to_plain(getattr(TorchOps(), case["function"])(x, weight, case["epsilon"]))

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare with transformers' norm of the same dtype; roundings to 16 bits may differ."""
        import torch

        x, weight = (tensor.to(getattr(torch, case["dtype"])) for tensor in _norm_inputs(case))
        gemma = case["function"] == "gemma_rms_norm"
        right = _transformers_norm(x, weight, case["epsilon"], gemma)
        name = f"{case['function']} ({case['dtype']}, up to {torch.finfo(x.dtype).max:g})"
        return _compare_norm(name, case, x, weight.float() + gemma, output, right, tolerance=0.01)


class ResidualIsAddedFirst(_Norm):
    """The fused norm adds x to the residual, and returns the norm of the sum and the sum itself."""

    zh = "融合的归一化先把 x 加到残差上，返回和的归一化以及和本身。"
    cases = 4

    def run(self, case: Any) -> Any:
        """See `Check`."""
        from tracellm.engine.model_executor.ops.torch_ops import TorchOps

        x, weight = _norm_inputs(case)
        result = TorchOps().fused_add_rms_norm(x.clone(), x.flip(-1), weight, case["epsilon"])
        return [to_plain(one) for one in result]

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare the norm, then the sum."""
        x, weight = _norm_inputs(case)
        total = x + x.flip(-1)
        if len(output) != 2:
            return Failure(
                f"fused_add_rms_norm returned {len(output)} values; it should be 2",
                f"fused_add_rms_norm 返回了 {len(output)} 个值，应为 2 个",
            )
        failure = compare_tensors("fused_add_rms_norm, second result (x + residual)", output[1], total, _where)
        if failure is not None:
            return failure
        right = _transformers_norm(total, weight, case["epsilon"])
        return _compare_norm("fused_add_rms_norm", case, total, weight, output[0], right)


class GemmaNormAddsOneToTheWeight(_Norm):
    """Gemma's norm multiplies by 1 + weight, so that a weight of zero changes nothing."""

    zh = "Gemma 的归一化乘以 1 + 权重，因此权重为零时不改变结果。"
    cases = 4

    def run(self, case: Any) -> Any:
        """See `Check`."""
        from tracellm.engine.model_executor.ops.torch_ops import TorchOps

        x, weight = _norm_inputs(case)
        return to_plain(TorchOps().gemma_rms_norm(x, weight - 1, case["epsilon"]))

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare with Gemma2RMSNorm."""
        x, weight = _norm_inputs(case)
        right = _transformers_norm(x, weight - 1, case["epsilon"], gemma=True)
        return _compare_norm("gemma_rms_norm", case, x, weight, output, right)


def _rotary(case: Any, query: "Tensor", key: "Tensor") -> tuple[Any, Any]:
    """Rotate query [T, H, D] and key [T, K, D] with the code under test."""
    import torch

    from tracellm.engine.model_executor.ops.torch_ops import TorchOps

    head_size, positions = case["head_size"], torch.tensor(case["positions"])
    exponents = torch.arange(0, head_size, 2) / head_size
    angles = torch.outer(torch.arange(max(case["positions"]) + 2.0), case["theta"] ** -exponents)
    cache = torch.cat((angles.cos(), angles.sin()), dim=-1)
    rotated_query, rotated_key = TorchOps().rotary_embedding(positions, query, key, cache)
    return to_plain(rotated_query), to_plain(rotated_key)


class RotaryPairsTheHalves(Check):
    """Dimension i of a head is rotated together with dimension i + D/2, towards it for a positive angle."""

    zh = "头的第 i 维与第 i + D/2 维一起旋转，角度为正时由前者转向后者。"
    cases = 5
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`. One dimension is 1, all others are 0."""
        head_size = random.choice((4, 6, 8))
        return {
            "dimension": random.randrange(head_size),
            "head_size": head_size,
            "theta": _THETAS[0],
            "positions": [random.randint(1, 3)],
        }

    def run(self, case: Any) -> Any:
        """See `Check`."""
        import torch

        unit = torch.zeros(1, 1, case["head_size"])
        unit[..., case["dimension"]] = 1.0
        return _rotary(case, unit, unit)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Name the dimension into which the unit vector was rotated."""
        size, dimension, position = case["head_size"], case["dimension"], case["positions"][0]
        half = size // 2
        partner, sign = (dimension + half, 1) if dimension < half else (dimension - half, -1)
        angle = position * case["theta"] ** (-2 * (dimension % half) / size)
        right = {dimension: math.cos(angle), partner: sign * math.sin(angle)}
        for name, plain in zip(("query", "key"), output, strict=True):
            if "values" not in plain or len(plain["values"]) != size:
                got_instead = plain.get("type", plain.get("shape"))
                return Failure(
                    f"the rotated {name} is {got_instead}; it should be a tensor of shape [1, 1, {size}]",
                    f"旋转后的 {name} 为 {got_instead}，应为形状 [1, 1, {size}] 的张量",
                )
            got = {i: value for i, value in enumerate(plain["values"]) if abs(value) > 1e-6}
            if all(abs(got.get(i, 0.0) - right.get(i, 0.0)) < 1e-4 for i in got.keys() | right.keys()):
                continue
            shown, wanted = (
                ", ".join(f"[{i}] = {value:.4f}" for i, value in sorted(one.items())) for one in (got, right)
            )
            return Failure(
                f"a {name} head of size {size} is 1 in dimension {dimension} and 0 elsewhere; position {position} "
                f"turns it by {angle:.4f}: {shown or 'all 0'}; it should be {wanted}",
                f"大小为 {size} 的 {name} 头在第 {dimension} 维为 1，其余为 0；位置 {position} 使其旋转 {angle:.4f}："
                f"{shown or '全为 0'}；应为 {wanted}",
            )
        return None


class RotaryTurnsByThePosition(Check):
    """Each token's query and key heads are turned by the angles of its own position."""

    zh = "每个 token 的 query 和 key 头按其自身位置的角度旋转。"
    cases = 6
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`. Positions are in any order: a batch holds several sequences."""
        kv_heads = random.randint(1, 2)
        return {
            "seed": random.randrange(10**6),
            "theta": random.choice(_THETAS),
            "head_size": random.choice((4, 8)),
            "heads": kv_heads * random.randint(1, 3),
            "kv_heads": kv_heads,
            "positions": [random.choice((0, random.randint(1, 60))) for _ in range(random.randint(2, 5))],
        }

    def run(self, case: Any) -> Any:
        """See `Check`."""
        return _rotary(case, *_heads(case))

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare with transformers' Qwen2RotaryEmbedding and apply_rotary_pos_emb."""
        import torch
        from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding, apply_rotary_pos_emb

        config = _transformers_config(case, hidden=case["heads"] * case["head_size"])
        query, key = (heads.transpose(0, 1)[None] for heads in _heads(case))  # [1, heads, T, D]
        cos, sin = Qwen2RotaryEmbedding(config)(query, torch.tensor([case["positions"]]))
        right = apply_rotary_pos_emb(query, key, cos, sin)

        def where(index: tuple[int, ...]) -> tuple[str, str]:
            token, head, dimension = index
            position = case["positions"][token]
            return (
                f"token {token} at position {position}, head {head}, dimension {dimension} of {case['head_size']}",
                f"位置 {position} 的 token {token}，头 {head}，第 {dimension} 维（共 {case['head_size']} 维）",
            )

        for name, plain, rotated in zip(("query", "key"), output, right, strict=True):
            if failure := compare_tensors(f"the rotated {name}", plain, rotated[0].transpose(0, 1), where):
                return failure
        return None

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out tokens and heads."""
        for index in range(len(case["positions"])):
            if len(case["positions"]) > 1:
                yield case | {"positions": case["positions"][:index] + case["positions"][index + 1 :]}
        if case["heads"] > 1:
            yield case | {"heads": 1, "kv_heads": 1}


def _heads(case: Any) -> tuple["Tensor", "Tensor"]:
    import torch

    numbers, shape = generator(case["seed"]), (len(case["positions"]), -1, case["head_size"])
    sizes = [shape[0] * case[name] * shape[2] for name in ("heads", "kv_heads")]
    query, key = (torch.randn(size, generator=numbers).view(shape) for size in sizes)
    return query, key


class GatesTheFirstHalf(Check):
    """The activation applies to the first half of each token, and the result is multiplied by the second half."""

    zh = "激活函数作用于每个 token 的前一半，结果再乘以后一半。"
    cases = 6
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`."""
        return {"seed": random.randrange(10**6), "tokens": random.randint(1, 4), "size": random.randint(2, 6)}

    def run(self, case: Any) -> Any:
        """See `Check`."""
        from tracellm.engine.model_executor.ops.torch_ops import TorchOps

        return {name: to_plain(getattr(TorchOps(), name)(_gate_and_up(case))) for name in _ACTIVATIONS}

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare with transformers' activations, and name the two factors."""
        from transformers.activations import ACT2FN

        gate, up = _gate_and_up(case).split(case["size"], dim=-1)

        def where(index: tuple[int, ...]) -> tuple[str, str]:
            token, number = index
            numbers = f"gate {float(gate[index]):.4f}, up {float(up[index]):.4f}"
            return f"token {token}, element {number} ({numbers})", f"token {token} 第 {number} 个元素（{numbers}）"

        for name, activation in _ACTIVATIONS.items():
            right = ACT2FN[activation](gate) * up
            if failure := compare_tensors(name, output[name], right, where, tolerance=1e-5):
                return failure
        return None

    def shrink(self, case: Any) -> Iterator[Any]:
        """Reduce to one token and one pair."""
        if case["tokens"] > 1:
            yield case | {"tokens": 1}
        if case["size"] > 1:
            yield case | {"size": 1}


_ACTIVATIONS = {"silu_and_mul": "silu", "gelu_tanh_and_mul": "gelu_pytorch_tanh"}
"""Functions, and transformers' names of their activations."""


def _gate_and_up(case: Any) -> "Tensor":
    import torch

    return 2 * torch.randn(case["tokens"], 2 * case["size"], generator=generator(case["seed"]))


class _Layers(Check):
    """Random models and prompts; a case's `prompts` are the lengths of its sequences."""

    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`."""
        kv_heads = random.choice((1, 2))
        return {
            "seed": random.randrange(10**6),
            "layers": random.randint(1, 2),
            "heads": kv_heads * random.choice((1, 2)),
            "kv_heads": kv_heads,
            "head_size": random.choice((4, 8)),
            "hidden": random.choice((8, 12)),
            "intermediate": random.choice((6, 10)),
            "theta": random.choice(_THETAS),
            "epsilon": random.choice(_EPSILONS),
            "prompts": [random.randint(1, 5) for _ in range(random.randint(1, 3))],
        }

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out sequences, layers, tokens."""
        prompts = case["prompts"]
        for index in range(len(prompts)):
            if len(prompts) > 1:
                yield case | {"prompts": prompts[:index] + prompts[index + 1 :]}
        if case["layers"] > 1:
            yield case | {"layers": 1}
        if max(prompts) > 1:
            yield case | {"prompts": [max(1, length - 1) for length in prompts]}


class FeedForwardGatesAndProjects(_Layers):
    """The feed-forward block projects to gate and up, applies the activation, and projects back."""

    zh = "前馈块先投影出 gate 和 up，经激活后再投影回来。"
    cases = 3

    def run(self, case: Any) -> Any:
        """See `Check`."""
        layer = _Model(case).model.layers[0]
        return to_plain(layer.mlp(_embeddings(case)))

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare with Qwen2MLP."""
        right = _transformers_model(case).layers[0].mlp(_embeddings(case))
        return compare_tensors("Qwen2MLP.forward", output, right, _where)


class LayersAddToTheStream(_Layers):
    """A layer's attention and feed-forward block each read a norm of the residual stream, and add to the stream."""

    zh = "每层的注意力和前馈块都读取残差流的归一化结果，并把输出加回残差流。"
    cases = 6

    def run(self, case: Any) -> Any:
        """Return the stream after each layer, and what each module of a layer returned."""
        model = _Model(case)
        returned: list[list[Any]] = []
        for number, layer in enumerate(model.model.layers):
            for name in _STAGES:
                layer.get_submodule(name).register_forward_hook(_note(returned, number, name))
        with model.step(case["prompts"]):
            hidden_states, residual, streams = _embeddings(case), None, []
            for layer in model.model.layers:
                hidden_states, residual = layer(model.positions, hidden_states, residual)
                streams.append(to_plain(hidden_states + residual))
        return {"streams": streams, "returned": returned}

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare the streams; the first module that returns other numbers explains a difference."""
        stages: list[list[Any]] = []
        model = _transformers_model(case)
        for number, layer in enumerate(model.layers):
            for name in _STAGES:
                layer.get_submodule(name).register_forward_hook(_note(stages, number, name, plain=False))
            layer.register_forward_hook(_note(stages, number, "stream", plain=False))
        _run_transformers(model, case)
        right = {(number, name): tensors for number, name, tensors in _by_stage(stages)}
        for number, plain in enumerate(output["streams"]):
            failure = compare_tensors(
                f"layer {number}: the stream after it", plain, right[number, "stream"], _where_in(case), tolerance=1e-3
            )
            if failure is not None:
                return self._explain(case, number, output["returned"], right) or _sum(case, number, right, failure)
        return None

    def _explain(self, case: Any, layer: int, returned: Any, right: Any) -> Failure | None:
        """Return the first module up to this layer that returns other numbers than transformers', if there is one."""
        found = {(number, name): plain for number, name, plain in returned}
        for number in range(layer + 1):
            missing: list[str] = []
            for name in _STAGES:
                if (number, name) not in found:  # computed without the module, or forgotten
                    missing.append(name)
                    continue
                title, plain = f"layer {number}: {name}", found[number, name]
                failure = compare_tensors(title, plain, right[number, name], _where_in(case), tolerance=1e-3)
                if failure is not None:
                    en = "all modules before it in this layer return what transformers' do"
                    zh = "本层在它之前的模块都与 transformers 一致"
                    if missing:
                        en, zh = (
                            f"before it, {' and '.join(missing)} was not called",
                            f"在它之前没有调用 {'、'.join(missing)}",
                        )
                    return Failure(f"{failure.en}; {en}", f"{failure.zh}；{zh}")
        return None


def _sum(case: Any, layer: int, right: Any, failure: Failure) -> Failure:
    """Add the three summands of a stream to a failure in which every module returned the right numbers."""
    before = right[layer - 1, "stream"] if layer else _embeddings(case)
    parts = (before, right[layer, "self_attn"], right[layer, "mlp"])
    first = " + ".join(f"{float(one[0, 0]):.4g}" for one in parts)
    return Failure(
        f"{failure.en}; its modules return what transformers' do, so the sum is wrong: stream before the layer + "
        f"self_attn + mlp, at the first token's dimension 0: {first} = {float(right[layer, 'stream'][0, 0]):.4g}",
        f"{failure.zh}；各模块都与 transformers 一致，因此是求和有误：层前的残差流 + self_attn + mlp，"
        f"第一个 token 的第 0 维为 {first} = {float(right[layer, 'stream'][0, 0]):.4g}",
    )


_STAGES = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")
"""Modules of a layer in the order in which they are called; transformers has the same names."""


def _note(returned: list[list[Any]], number: int, name: str, plain: bool = True) -> Any:
    """Return a hook that stores what a module returns; of several values the first."""

    def hook(module: Any, arguments: Any, output: Any) -> None:
        value = output[0] if isinstance(output, tuple) else output
        returned.append([number, name, to_plain(value) if plain else value])

    return hook


def _by_stage(stages: list[list[Any]]) -> list[list[Any]]:
    """Join the tokens of all sequences: transformers runs them one by one."""
    import torch

    found: dict[tuple[int, str], list[Any]] = {}
    for number, name, value in stages:
        found.setdefault((number, name), []).append(value.flatten(0, -2))
    return [[number, name, torch.cat(values)] for (number, name), values in found.items()]


class ModelsContinueASequence(_Layers):
    """A whole model gives the same numbers whether a sequence comes at once, in chunks or token by token."""

    zh = "无论序列一次输入、分块输入还是逐个 token 输入，整个模型给出的数值都相同。"
    cases = 5

    def make(self, random: Random) -> Any:
        """See `Check`. `chunks` are the numbers of tokens of each step, the same for all sequences."""
        case = super().make(random)
        chunks = [random.randint(1, 4) for _ in range(random.randint(1, 3))]
        return case | {"layers": 2, "chunks": chunks, "prompts": [sum(chunks)] * random.randint(1, 2)}

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out sequences, then steps."""
        if len(case["prompts"]) > 1:
            yield case | {"prompts": case["prompts"][:1]}
        for end in range(1, len(case["chunks"])):
            chunks = case["chunks"][:end]
            yield case | {"chunks": chunks, "prompts": [sum(chunks)] * len(case["prompts"])}

    def run(self, case: Any) -> Any:
        """Return the hidden states of each step."""
        import torch

        model, steps, before = _Model(case), [], 0
        sequences = _tokens(case)
        for chunk in case["chunks"]:
            with model.step([chunk] * len(sequences), before):
                ids = torch.cat([ids[before : before + chunk] for ids in sequences])
                steps.append(to_plain(model.model(ids, model.positions)))
            before += chunk
        return steps

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare with Qwen2Model, which gets each sequence at once."""
        import torch

        model, before = _transformers_model(case), 0
        with torch.inference_mode():
            whole = [model(ids[None], use_cache=False).last_hidden_state[0] for ids in _tokens(case)]
        for step, (plain, chunk) in enumerate(zip(output, case["chunks"], strict=True), start=1):
            right = torch.cat([states[before : before + chunk] for states in whole])
            where = _where_in(case | {"prompts": [chunk] * len(whole)}, before)
            if failure := compare_tensors(f"step {step}: Qwen2Model.forward", plain, right, where, tolerance=1e-3):
                return failure
            before += chunk
        return None


def _where_in(case: Any, before: int = 0) -> Any:
    """Return the description of an element [token, dimension] of a batch, whose sequences have `before` tokens."""
    places = [(number, before + at) for number, length in enumerate(case["prompts"]) for at in range(length)]

    def where(index: tuple[int, ...]) -> tuple[str, str]:
        sequence, position = places[index[0]]
        return (
            f"sequence {sequence}, position {position}, dimension {index[1]}",
            f"序列 {sequence} 位置 {position} 第 {index[1]} 维",
        )

    return where


def _tokens(case: Any) -> list["Tensor"]:
    import torch

    numbers = generator(case["seed"] + 1)
    return [torch.randint(_VOCABULARY, (length,), generator=numbers) for length in case["prompts"]]


_VOCABULARY = 11
_BLOCK_SIZE = 4


def _embeddings(case: Any) -> "Tensor":
    """Return inputs of a layer for all tokens of a case: [T, hidden]."""
    import torch

    return torch.randn(sum(case["prompts"]), case["hidden"], generator=generator(case["seed"] + 2))


def _weight(name: str, shape: Any, seed: int) -> "Tensor":
    """Return the weight of this name, the same for transformers' model and the engine's."""
    import torch

    numbers = generator(seed + sum(index * byte for index, byte in enumerate(name.encode(), start=1)))
    if "norm" in name:
        return torch.rand(*shape, generator=numbers) + 0.5
    return torch.randn(*shape, generator=numbers) * (0.5 if name.endswith("bias") else shape[-1] ** -0.5)


class _Model:
    """The engine's Qwen2Model with random weights and a KV cache, run with the code under test."""

    def __init__(self, case: Any) -> None:
        import torch

        from tracellm.engine.model_executor.models.qwen2 import Qwen2Model
        from tracellm.engine.model_executor.ops import using_ops
        from tracellm.engine.model_executor.ops.torch_ops import TorchOps

        length = max(case["prompts"])
        config = SimpleNamespace(
            vocab_size=_VOCABULARY,
            hidden_size=case["hidden"],
            intermediate_size=case["intermediate"],
            num_hidden_layers=case["layers"],
            num_attention_heads=case["heads"],
            num_key_value_heads=case["kv_heads"],
            rms_norm_eps=case["epsilon"],
            rope_parameters={"rope_type": "default", "rope_theta": case["theta"]},
            max_position_embeddings=length,
        )
        model_config = SimpleNamespace(hf_config=config, max_model_len=length, get_head_size=lambda: case["head_size"])
        with using_ops(TorchOps()):
            self.model: Any = Qwen2Model(SimpleNamespace(model_config=model_config), "model")  # type: ignore[arg-type]
        merged = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
        sizes = dict(zip(merged["qkv_proj"], (case["heads"], case["kv_heads"], case["kv_heads"]), strict=True))
        for name, parameter in self.model.named_parameters():
            module, parts = next(((m, p) for m, p in merged.items() if m in name), (None, ()))
            if module is None:
                parameter.data = _weight(name, parameter.shape, case["seed"])
            else:
                rows = [sizes[part] * case["head_size"] if part in sizes else case["intermediate"] for part in parts]
                pieces = [
                    _weight(name.replace(module, part), (count, *parameter.shape[1:]), case["seed"])
                    for part, count in zip(parts, rows, strict=True)
                ]
                parameter.data = torch.cat(pieces)
        self._blocks_each = -(-length // _BLOCK_SIZE)
        shape = (2, len(case["prompts"]) * self._blocks_each, _BLOCK_SIZE, case["kv_heads"], case["head_size"])
        for attention in self.model.modules():
            if hasattr(attention, "impl"):
                attention.kv_cache = torch.zeros(shape)

    def step(self, lengths: list[int], before: int = 0) -> Any:
        """Return a context in which each sequence adds `lengths` tokens to its `before` earlier ones."""
        import torch

        from tracellm.engine.attention.backend import CommonAttentionMetadata
        from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec
        from tracellm.engine.model_executor.layers.forward_context import set_forward_context

        layers = [layer.self_attn.attn for layer in self.model.layers]
        table = torch.arange(len(lengths) * self._blocks_each, dtype=torch.int32).view(len(lengths), -1)
        positions = [torch.arange(before, before + length) for length in lengths]
        first_slots = torch.arange(len(lengths)) * self._blocks_each * _BLOCK_SIZE
        self.positions = torch.cat(positions)
        common = CommonAttentionMetadata(
            query_start_loc=torch.tensor([0, *lengths]).cumsum(0).int(),
            seq_lens=torch.tensor([before + length for length in lengths], dtype=torch.int32),
            block_table=table,
            slot_mapping=torch.cat([first + one for first, one in zip(first_slots, positions, strict=True)]),
            query_lens_cpu=lengths,
            seq_lens_cpu=[before + length for length in lengths],
        )
        spec = FullAttentionSpec(_BLOCK_SIZE, layers[0].num_kv_heads, layers[0].head_size, torch.float32)
        builder = layers[0].attn_backend.get_builder_cls()(spec, [layer.impl for layer in layers])
        metadata = builder.build(common)
        return set_forward_context({layer.layer_name: metadata for layer in layers})


def _transformers_config(case: Any, hidden: int) -> Any:
    from transformers import Qwen2Config

    return Qwen2Config(
        vocab_size=_VOCABULARY,
        hidden_size=hidden,
        intermediate_size=case.get("intermediate", 8),
        num_hidden_layers=case.get("layers", 1),
        num_attention_heads=case["heads"],
        num_key_value_heads=case["kv_heads"],
        head_dim=case["head_size"],
        rms_norm_eps=case.get("epsilon", 1e-6),
        rope_theta=case["theta"],
        attn_implementation="eager",
    )


def _transformers_model(case: Any) -> Any:
    """Return transformers' Qwen2Model with the weights of a case."""
    from transformers import Qwen2Model

    model = Qwen2Model(_transformers_config(case, case["hidden"])).eval()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(False)
        parameter.data = _weight(name, parameter.shape, case["seed"])
    return model


def _run_transformers(model: Any, case: Any) -> None:
    """Run transformers' layers on the embeddings of each sequence."""
    import torch

    with torch.inference_mode():
        for one in _embeddings(case).split(case["prompts"]):
            model(inputs_embeds=one[None], use_cache=False)


CHECKS: tuple[Check, ...] = (
    RmsNormDividesByTheRoot(),
    NormsComputeInFloat32(),
    ResidualIsAddedFirst(),
    GemmaNormAddsOneToTheWeight(),
    RotaryPairsTheHalves(),
    RotaryTurnsByThePosition(),
    GatesTheFirstHalf(),
    FeedForwardGatesAndProjects(),
    LayersAddToTheStream(),
    ModelsContinueASequence(),
)
