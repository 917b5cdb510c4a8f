"""Training of the bundled model, which is written as a Hugging Face checkpoint.

    nice -n 5 python -m training.train --out DIR --minutes 60

Two cores are enough. The model is transformers' Qwen2; matrices are trained with Muon, the rest with AdamW. The
learning rate depends on the elapsed part of `--minutes`, so on a slower machine the model is worse, and the time the
same. With `--steps` instead of `--minutes` the result depends on the seed only.
"""

import argparse
import json
import logging
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy, linear
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

from .batches import Batch, batches
from .corpus.render import END_OF_TEXT, IM_END
from .muon import Muon
from .processes import run_trainers, sum_gradients
from .tokenizer import VOCAB_SIZE, corpus_texts, save_tokenizer, train_tokenizer

logger = logging.getLogger(__name__)

__all__ = ["CONFIG", "Options", "main", "train"]

CONFIG: dict[str, Any] = {
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
WARMUP, DECAY = 0.02, 0.6
"""Shares of the training in which the learning rate rises from 0, and falls to 0 at the end."""

DOCUMENTS_PER_STEP, TOKENS_PER_BATCH = 224, 1024
LOG_EVERY = 20


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    out: Path
    minutes: float
    steps: int
    seed: int
    processes: int
    init: Path | None
    lr: float


def schedule(progress: float) -> float:
    """Return the factor on the learning rates at `progress` (0 to 1) of the training."""
    return min(1.0, progress / WARMUP, max(0.0, 1 - progress) / DECAY)


def new_model(tokenizer: Tokenizer) -> Qwen2ForCausalLM:
    """Return a model with random weights."""
    end_of_text, im_end = (tokenizer.token_to_id(t) for t in (END_OF_TEXT, IM_END))
    return Qwen2ForCausalLM(Qwen2Config(**CONFIG, eos_token_id=im_end, pad_token_id=end_of_text, bos_token_id=None))


@torch.no_grad()
def load_weights(model: Qwen2ForCausalLM, tokenizer: Tokenizer, directory: Path) -> None:
    """Load the weights of the checkpoint in `directory`, which may have another tokenizer.

    The embedding of a new token is the mean of the old tokens that spell it.
    """
    old = Qwen2ForCausalLM.from_pretrained(directory, dtype=torch.float32)
    old_tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    model.model.layers.load_state_dict(old.model.layers.state_dict())
    model.model.norm.load_state_dict(old.model.norm.state_dict())
    old_embedding, old_ids = old.get_input_embeddings().weight, old_tokenizer.get_vocab()
    embedding = model.get_input_embeddings().weight
    for token, i in tokenizer.get_vocab().items():
        if token in old_ids:
            embedding[i] = old_embedding[old_ids[token]]
        elif pieces := old_tokenizer.encode(tokenizer.decode([i]), add_special_tokens=False).ids:
            embedding[i] = old_embedding[pieces].mean(0)


def make_optimizers(model: Qwen2ForCausalLM) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices of the layers, and AdamW for the embedding, the norms and the biases."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    return [
        Muon(matrices, lr=MUON_LR, momentum=0.95, weight_decay=0.01),
        torch.optim.AdamW(others, lr=ADAM_LR, betas=(0.9, 0.97), weight_decay=0.0, fused=True),
    ]


def loss_of(model: Qwen2ForCausalLM, batch: Batch) -> torch.Tensor:
    """Return the summed cross entropy (nats) of the learned tokens of `batch`; only these get logits."""
    hidden = model.model(input_ids=batch.input_ids, use_cache=False).last_hidden_state.flatten(0, 1)[batch.positions]
    return cross_entropy(linear(hidden, model.lm_head.weight), batch.targets, reduction="sum")


def train(rank: int, options: Options) -> None:
    """Run one of `options.processes` trainers, which compute the micro-batches in turns."""
    torch.manual_seed(options.seed)
    tokenizer = Tokenizer.from_file(str(options.out / "tokenizer.json"))
    model = new_model(tokenizer)
    if options.init:
        load_weights(model, tokenizer, options.init)
    parameters = list(model.parameters())
    optimizers = make_optimizers(model)
    base = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    log = Log(options, model) if rank == 0 else None
    began, now = time.monotonic(), torch.zeros(2)  # progress, loss of the step
    for step, micro in enumerate(batches(tokenizer, options.seed, DOCUMENTS_PER_STEP, TOKENS_PER_BATCH)):
        now[0] = step / options.steps if options.steps else (time.monotonic() - began) / (60 * options.minutes)
        dist.broadcast(now, src=0)
        progress = now[0].item()
        if progress >= 1:
            break
        learned = sum(len(batch.targets) for batch in micro)
        total = torch.zeros(())
        for batch in micro[rank :: options.processes]:
            part = loss_of(model, batch) / learned
            part.backward()
            total += part.detach()
        loss = sum_gradients(parameters, total)
        for optimizer, lr in zip(optimizers, base, strict=True):
            optimizer.param_groups[0]["lr"] = options.lr * lr * schedule(progress)
            optimizer.step()
            optimizer.zero_grad()
        if log:
            log.step(step, sum(batch.num_tokens for batch in micro), loss)
    if log:
        log.close(step)


class Log:
    """Log of rank 0: a line every 20 steps, a checkpoint every 200, and `training.json` at the end."""

    def __init__(self, options: Options, model: Qwen2ForCausalLM) -> None:
        self.options, self.model = options, model
        self.began, self.tokens, self.average = time.monotonic(), 0, math.nan
        self.file = (options.out / "training_log.jsonl").open("w")

    def step(self, step: int, tokens: int, loss: float) -> None:
        """Add a step of `tokens` tokens with mean `loss`."""
        self.tokens += tokens
        self.average = loss if math.isnan(self.average) else 0.95 * self.average + 0.05 * loss
        if step % LOG_EVERY == 0:
            seconds = time.monotonic() - self.began
            row = {"step": step, "seconds": round(seconds, 1), "tokens": self.tokens, "loss": round(self.average, 4)}
            self.file.write(json.dumps(row) + "\n")
            self.file.flush()
            logger.info("step %5d  %6.0f s  %6.2f M tokens  loss %.4f", step, seconds, self.tokens / 1e6, self.average)
            if step and step % (10 * LOG_EVERY) == 0:
                save(self.model, self.options.out)

    def close(self, steps: int) -> None:
        """Write the checkpoint and `training.json`."""
        self.file.close()
        save(self.model, self.options.out)
        facts = {
            "steps": steps,
            "documents": steps * DOCUMENTS_PER_STEP,
            "tokens": self.tokens,
            "seconds": round(time.monotonic() - self.began),
            "final_loss": round(self.average, 4),
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "processes": self.options.processes,
            "seed": self.options.seed,
            "init": json.loads((init / "training.json").read_text()) if (init := self.options.init) else None,
        }
        (self.options.out / "training.json").write_text(json.dumps(facts, indent=2) + "\n")


def save(model: Qwen2ForCausalLM, out: Path) -> None:
    """Write weights (bfloat16), config and generation config into `out`; `model` is not changed."""
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()}
    copy = Qwen2ForCausalLM(model.config).to(torch.bfloat16)
    copy.load_state_dict(weights)
    eos, pad = model.config.eos_token_id, model.config.pad_token_id
    copy.generation_config = GenerationConfig(eos_token_id=[eos, pad], pad_token_id=pad, do_sample=False)
    copy.save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    config = json.loads((out / "config.json").read_text())
    # the names of transformers 4
    config |= {"rope_theta": model.config.rope_parameters["rope_theta"], "torch_dtype": "bfloat16"}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    """Run the command line: train and write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--steps", type=int, default=0, help="number of steps, instead of --minutes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--init", type=Path, help="start from this checkpoint instead of random weights")
    parser.add_argument("--lr", type=float, default=1.0, help="factor on the learning rates; below 1 after --init")
    parser.add_argument("--processes", type=int, default=2, help="one per core")
    options = Options(**vars(parser.parse_args()))
    options.out.mkdir(parents=True, exist_ok=True)
    save_tokenizer(train_tokenizer(corpus_texts()), options.out, CONFIG["max_position_embeddings"])
    run_trainers(train, options, options.processes)


if __name__ == "__main__":
    main()
