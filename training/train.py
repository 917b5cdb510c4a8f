"""Trains the embedded model and writes it as a Hugging Face checkpoint.

    nice -n 5 python -m training.train --out DIR --minutes 60

Two cores are enough. The network is transformers' own Qwen2; matrices are trained with Muon, the rest with AdamW. The
learning rate follows the clock: it falls to zero over the last part of `--minutes`, so a slower machine makes a somewhat
worse model, not a longer wait. With `--steps` instead of `--minutes` the result depends on the seed alone.
"""

import argparse
import json
import math
import os
import time
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy, linear
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

from .batches import Batch, batches
from .corpus.render import END_OF_TEXT, IM_END
from .tokenizer import VOCAB_SIZE, save_tokenizer, train_tokenizer

__all__ = ["CONFIG", "main", "train"]

CONFIG = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
MUON_LR, ADAM_LR = 0.02, 3e-3
WARMUP, DECAY = 0.02, 0.5
"""Shares of the training in which the learning rate rises from 0 and falls back to 0."""


def schedule(progress: float) -> float:
    """Factor on the learning rates at `progress` (0 to 1) of the training."""
    return min(1.0, progress / WARMUP, max(0.0, 1 - progress) / DECAY)


def loss_of(model: Qwen2ForCausalLM, batch: Batch) -> torch.Tensor:
    """Summed cross entropy (nats) of the learned tokens of `batch`; logits are computed for these only."""
    hidden = model.model(input_ids=batch.input_ids, use_cache=False).last_hidden_state.flatten(0, 1)[batch.where]
    return cross_entropy(linear(hidden, model.lm_head.weight), batch.targets, reduction="sum")


def train(out: Path, *, minutes: float, steps: int, seed: int, log_every: int) -> None:
    """Train for `minutes` (or for `steps`, when given) and write the checkpoint into `out`."""
    torch.manual_seed(seed)
    tokenizer = train_tokenizer(seed)
    end_of_text, im_end = (tokenizer.token_to_id(t) for t in (END_OF_TEXT, IM_END))
    config = Qwen2Config(**CONFIG, eos_token_id=im_end, pad_token_id=end_of_text, bos_token_id=None)
    model = Qwen2ForCausalLM(config)
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    optimizers = [
        torch.optim.Muon(matrices, lr=MUON_LR, weight_decay=0.01, momentum=0.95, adjust_lr_fn="original"),
        torch.optim.AdamW(others, lr=ADAM_LR, betas=(0.9, 0.97), weight_decay=0.0, fused=True),
    ]
    base = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    average, began, tokens, step = math.nan, time.monotonic(), 0, 0
    out.mkdir(parents=True, exist_ok=True)
    log = (out / "training_log.jsonl").open("w")
    for step, micro in enumerate(batches(tokenizer, seed, documents_per_step=192, tokens_per_batch=4096)):
        elapsed = time.monotonic() - began
        progress = step / steps if steps else elapsed / (60 * minutes)
        if progress >= 1:
            break
        learned = sum(len(batch.targets) for batch in micro)
        total = 0.0
        for batch in micro:
            loss = loss_of(model, batch) / learned
            loss.backward()
            total += loss.item()
            tokens += batch.input_ids.numel()
        for optimizer, lr in zip(optimizers, base, strict=True):
            optimizer.param_groups[0]["lr"] = lr * schedule(progress)
            optimizer.step()
            optimizer.zero_grad()
        average = total if math.isnan(average) else 0.95 * average + 0.05 * total
        if step % log_every == 0:
            row = {"step": step, "seconds": round(elapsed, 1), "tokens": tokens, "loss": round(average, 4)}
            log.write(json.dumps(row) + "\n")
            log.flush()
            print(f"step {step:5d}  {elapsed:6.0f} s  {tokens / 1e6:6.2f} M tokens  loss {average:.4f}", flush=True)
            if step and step % (20 * log_every) == 0:
                save(model, out)
    log.close()
    save(model, out)
    save_tokenizer(tokenizer, out, CONFIG["max_position_embeddings"])
    facts = {"seconds": round(time.monotonic() - began), "steps": step, "tokens": tokens, "final_loss": round(average, 4), "seed": seed,
             "parameters": sum(p.numel() for p in model.parameters()), "threads": torch.get_num_threads()}  # fmt: skip
    (out / "training.json").write_text(json.dumps(facts, indent=2) + "\n")


def save(model: Qwen2ForCausalLM, out: Path) -> None:
    """Write weights (bfloat16), config and generation config into `out`; `model` stays as it is."""
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()}
    copy = Qwen2ForCausalLM(model.config).to(torch.bfloat16)
    copy.load_state_dict(weights)
    eos, pad = model.config.eos_token_id, model.config.pad_token_id
    copy.generation_config = GenerationConfig(eos_token_id=[eos, pad], pad_token_id=pad, do_sample=False)
    copy.save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    config = json.loads((out / "config.json").read_text())
    config |= {"rope_theta": CONFIG["rope_theta"], "torch_dtype": "bfloat16"}  # as transformers 4 names them
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def _keep_memory() -> None:
    """Start over with an allocator that does not give memory back: on a virtual machine this makes training 4 times as fast."""
    settings = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000", "MALLOC_TOP_PAD_": "268435456"}
    if any(os.environ.get(name) != value for name, value in settings.items()):
        import sys

        os.environ.update(settings)
        os.execv(sys.executable, [sys.executable, "-m", "training.train", *sys.argv[1:]])


def main() -> None:
    """Command line: train and write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--steps", type=int, default=0, help="train so many steps, whatever the clock says")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    _keep_memory()
    torch.set_num_threads(args.threads)
    train(args.out, minutes=args.minutes, steps=args.steps, seed=args.seed, log_every=20)


if __name__ == "__main__":
    main()
