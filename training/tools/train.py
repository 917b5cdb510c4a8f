"""Further training of `tiny` to call tools: `tiny-tools`.

    nice -n 5 python -m training.tools.train --out DIR --minutes 90

Two cores are enough. It begins with the weights of `tracellm/tiny`, narrowed to the size in which they were trained,
and writes a checkpoint of that size; `training.widen` makes the published one. `--init` continues from such a
checkpoint.
"""

import argparse
import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from tokenizers import Tokenizer
from transformers import Qwen2ForCausalLM

from tracellm.tiny import MODEL_DIR
from training.processes import run_trainers, sum_gradients
from training.tokenizer import save_tokenizer
from training.train import make_optimizers, save, schedule
from training.widen import narrow

from .batches import rows
from .fast import Fast
from .template import CHAT_TEMPLATE

logger = logging.getLogger(__name__)

__all__ = ["Options", "main", "train"]

HEAD_DIM = 48
LOG_EVERY = 5
SAVE_EVERY = 25
COPYING = 0.5
"""Weight of the loss of copies."""
USUAL = 300.0
"""Learned tokens of a usual row; keeps gradients in the middle of bfloat16's range."""


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    out: Path
    minutes: float
    steps: int
    rows: int
    seed: int
    processes: int
    init: Path | None
    lr: float


def load(init: Path | None) -> Qwen2ForCausalLM:
    """Return the model to begin with, in float32."""
    model = Qwen2ForCausalLM.from_pretrained(init or MODEL_DIR, dtype=torch.float32)
    return model if init else narrow(model, HEAD_DIM)


def train(rank: int, options: Options) -> None:
    """Run one of `options.processes` trainers, which take the rows of a step as they are free."""
    torch.manual_seed(options.seed)
    tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    model = load(options.init)
    parameters = list(model.parameters())
    optimizers = make_optimizers(model)
    base = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    stream = rows(tokenizer, f"{options.seed}/{rank}")
    queue = dist.FileStore(str(options.out / "queue"), options.processes)  # type: ignore[attr-defined]
    began, state = time.monotonic(), torch.zeros(5)  # progress; tokens, learned, loss of copies and copies of a step
    log = (options.out / "training_log.jsonl").open("w") if rank == 0 else None
    step, tokens, average, ticket = 0, 0, 0.0, queue.add("row", 1)
    while True:
        state[0] = step / options.steps if options.steps else (time.monotonic() - began) / (60 * options.minutes)
        dist.broadcast(state, src=0)
        progress, state[1:] = state[0].item(), 0
        if progress >= 1:
            break
        fast, total = Fast(model), torch.zeros(())
        while ticket <= (step + 1) * options.rows:
            row = next(stream)
            part, copying = fast.loss(row)
            ((part + COPYING * copying) / USUAL).backward()
            total += part.detach() / USUAL
            state[3:] += torch.tensor([copying.item(), len(row.copies)])
            state[1:3] += torch.tensor([row.ends[-1], len(row.targets)])
            ticket = queue.add("row", 1)
        fast.put_gradients()
        dist.all_reduce(state)
        loss = sum_gradients(parameters, total) * USUAL / state[2].item()
        for p in parameters:
            assert p.grad is not None
            p.grad *= USUAL / state[2]
        for optimizer, lr in zip(optimizers, base, strict=True):
            optimizer.param_groups[0]["lr"] = options.lr * lr * schedule(progress)
            with torch.autocast("cpu", dtype=torch.bfloat16):  # the matrix products of Muon
                optimizer.step()
        tokens += int(state[1])
        average = 0.95 * average + 0.05 * loss if step else loss
        if log and step % LOG_EVERY == 0:
            seconds = round(time.monotonic() - began)
            entry = {"step": step, "seconds": seconds, "tokens": tokens, "loss": round(average, 4)}
            log.write(json.dumps(entry) + "\n")
            log.flush()
            logger.info(
                "step %5d  %5d s  %6.2f M tokens  loss %.4f (%.4f)  copying %.3f",
                step,
                seconds,
                tokens / 1e6,
                average,
                loss,
                state[3] / state[4],
            )
        step += 1
        if log and step % SAVE_EVERY == 0:
            save(model, options.out)
    if log:
        save(model, options.out)
        facts = {
            "steps": step,
            "rows": step * options.rows,
            "tokens": tokens,
            "seconds": round(time.monotonic() - began),
            "final_loss": round(average, 4),
            "parameters": sum(p.numel() for p in parameters),
            "processes": options.processes,
            "seed": options.seed,
            "init": json.loads(((options.init or MODEL_DIR) / "training.json").read_text()),
        }
        (options.out / "training.json").write_text(json.dumps(facts, indent=2) + "\n")


def main() -> None:
    """Run the command line: train and write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--steps", type=int, default=0, help="number of steps, instead of --minutes")
    parser.add_argument("--rows", type=int, default=4, help="rows in a step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--init", type=Path, help="start from this checkpoint of the training instead of tiny")
    parser.add_argument("--lr", type=float, default=0.5, help="factor on the learning rates of training.train")
    parser.add_argument("--processes", type=int, default=2, help="one per core")
    options = Options(**vars(parser.parse_args()))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "queue").unlink(missing_ok=True)
    save_tokenizer(Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json")), options.out, 2048, CHAT_TEMPLATE)
    run_trainers(train, options, options.processes)


if __name__ == "__main__":
    main()
