"""Widening of a trained checkpoint: larger heads, which every kernel supports, with unchanged logits.

    python -m training.widen --model DIR --out DIR --head-dim 64

vLLM's attention on CPUs supports head sizes 32, 64, 96 ... but not 48. New dimensions are zeros, with corrections:
RMSNorm divides by the mean over more dimensions, so its weight and epsilon are smaller; attention divides by the root
of the head size, so queries are larger; the angles of RoPE depend on the head size, so its base is larger.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from .train import save

__all__ = ["narrow", "widen"]


def _heads(weight: torch.Tensor, head_dim: int, new_head_dim: int) -> torch.Tensor:
    """Pad (heads * head_dim, columns) to (heads * new_head_dim, columns), each half of a head, as RoPE pairs them."""
    halves = weight.reshape(-1, 2, head_dim // 2, weight.shape[-1])
    padded = torch.nn.functional.pad(halves, (0, 0, 0, (new_head_dim - head_dim) // 2))
    return padded.reshape(-1, weight.shape[-1])


@torch.no_grad()
def widen(model: Qwen2ForCausalLM, head_dim: int) -> Qwen2ForCausalLM:
    """Return a float32 model with head size `head_dim` and the same logits as `model`."""
    old = model.config
    size, old_head_dim = head_dim * old.num_attention_heads, old.hidden_size // old.num_attention_heads
    ratio = size / old.hidden_size
    config = Qwen2Config.from_dict(old.to_dict() | {"hidden_size": size, "rms_norm_eps": old.rms_norm_eps / ratio})
    config.rope_parameters = {"rope_type": "default", "rope_theta": old.rope_parameters["rope_theta"] ** ratio}
    wide = Qwen2ForCausalLM(config)
    more = size - old.hidden_size
    weights = {}
    for name, weight in model.float().state_dict().items():
        if ".self_attn." in name and "o_proj" not in name:
            weight = _heads(weight if weight.ndim == 2 else weight[:, None], old_head_dim, head_dim)
            weight = weight * ratio**0.5 if "q_proj" in name else weight
            weight = weight[:, 0] if "bias" in name else torch.nn.functional.pad(weight, (0, more))
        elif "o_proj" in name:
            weight = torch.nn.functional.pad(_heads(weight.T, old_head_dim, head_dim).T, (0, 0, 0, more))
        elif "down_proj" in name:
            weight = torch.nn.functional.pad(weight, (0, 0, 0, more))
        else:
            weight = torch.nn.functional.pad(weight, (0, more))
            weight = weight / ratio**0.5 if "norm" in name else weight
        weights[name] = weight
    wide.load_state_dict(weights)
    return wide


@torch.no_grad()
def narrow(model: Qwen2ForCausalLM, head_dim: int) -> Qwen2ForCausalLM:
    """Return the float32 model with head size `head_dim` that `widen` made into `model`."""
    wide = model.config
    wide_head_dim = wide.hidden_size // wide.num_attention_heads
    size = head_dim * wide.num_attention_heads
    ratio = wide.hidden_size / size
    config = Qwen2Config.from_dict(wide.to_dict() | {"hidden_size": size, "rms_norm_eps": wide.rms_norm_eps * ratio})
    config.rope_parameters = {"rope_type": "default", "rope_theta": wide.rope_parameters["rope_theta"] ** (1 / ratio)}
    half = torch.arange(wide_head_dim) % (wide_head_dim // 2) < head_dim // 2
    weights = {}
    for name, weight in model.float().state_dict().items():
        if ".self_attn." in name and "o_proj" not in name:
            weight = weight[half.repeat(len(weight) // wide_head_dim)]
            weight = weight / ratio**0.5 if "q_proj" in name else weight
            weight = weight[:, :size] if weight.ndim == 2 else weight
        elif "o_proj" in name:
            weight = weight[:size, half.repeat(weight.shape[1] // wide_head_dim)]
        elif "down_proj" in name:
            weight = weight[:size]
        else:
            weight = weight[..., :size]
            weight = weight * ratio**0.5 if "norm" in name else weight
        weights[name] = weight.contiguous()
    small = Qwen2ForCausalLM(config)
    small.load_state_dict(weights)
    return small


def main() -> None:
    """Run the command line: widen a checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--head-dim", type=int, default=64)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    wide = widen(Qwen2ForCausalLM.from_pretrained(args.model, dtype=torch.float32), args.head_dim)
    save(wide, args.out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(args.model / name, args.out / name)
    facts = json.loads((args.model / "training.json").read_text())
    facts["parameters"] = sum(p.numel() for p in wide.parameters())
    (args.out / "training.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
