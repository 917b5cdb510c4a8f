"""Training of the bundled model that reads pictures, `tiny-vl`, from random weights to a Hugging Face checkpoint.

    nice -n 5 python -m training.pictures.train --out DIR

Two cores are enough. First the encoder alone learns what is in a picture, then the whole model learns to answer; see
supervision.py. Every step has new pictures, and the result depends on the options only.
"""

import argparse
import json
import logging
import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from training.muon import Muon
from training.processes import run_trainers, sum_gradients

from .batches import Batch, make_batch
from .model import make_tokenizer, new_model, save
from .supervision import Supervised

logger = logging.getLogger(__name__)

__all__ = ["main", "train"]

MUON_LR, ADAM_LR = 0.01, 3e-3
ENCODER_FACTOR = 0.2
"""Factor on the encoder's learning rates in the second phase."""
WARMUP = 0.02
"""Share of each phase in which the learning rate rises from 0."""
LOG_EVERY = 20


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    out: Path
    encoder_steps: int
    steps: int
    pictures: int
    questions: int
    seed: int
    processes: int


class Optimizers:
    """Muon for the matrices of the model's layers, AdamW for all other parameters."""

    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        matrices = {n: p for n, p in parameters.items() if p.ndim == 2 and n.startswith("model.") and "embed" not in n}
        others = [p for name, p in parameters.items() if name not in matrices]
        self.both = (
            Muon(list(matrices.values()), lr=MUON_LR, momentum=0.95, weight_decay=0.01),
            torch.optim.AdamW(others, lr=ADAM_LR, betas=(0.9, 0.97), weight_decay=0.0, fused=True),
        )

    def step(self, factor: float) -> None:
        """Update all parameters, with `factor` on the learning rates, and forget the gradients."""
        for optimizer, lr in zip(self.both, (MUON_LR, ADAM_LR), strict=True):
            optimizer.param_groups[0]["lr"] = factor * lr
            optimizer.step()
            optimizer.zero_grad()


class Trainer:
    """One of several trainers, which compute different pictures of each step and sum their gradients."""

    def __init__(self, rank: int, options: Options) -> None:
        self.rank, self.options = rank, options
        self.tokenizer = make_tokenizer()
        torch.manual_seed(options.seed)
        self.supervised = Supervised(new_model(self.tokenizer))
        named = dict(self.supervised.named_parameters())
        encoder = {name: p for name, p in named.items() if ".visual." in name or name.startswith(("kind", "colour"))}
        self.encoder = Optimizers(encoder)
        self.language = Optimizers({name: p for name, p in named.items() if name not in encoder})
        self.encoder_parameters, self.parameters = list(encoder.values()), list(named.values())
        self.began, self.log = time.monotonic(), (options.out / "training_log.jsonl").open("w") if rank == 0 else None
        self.losses: dict[str, float] = {}

    def train(self) -> None:
        """Run both phases."""
        options = self.options
        for step in range(options.encoder_steps):
            _, what = self.supervised.encode(self._batch("encoder", step))
            self._backward(what, self.encoder_parameters)
            self.encoder.step(_schedule(step / options.encoder_steps, decay=0.4))
            self._record("encoder", step, {"what": what.item()})
        for step in range(options.steps):
            losses = self.supervised(self._batch("all", step))
            self._backward(losses.total(), self.parameters)
            factor = _schedule(step / options.steps, decay=0.6)
            self.language.step(factor)
            self.encoder.step(ENCODER_FACTOR * factor)
            self._record("all", step, {name: loss.item() for name, loss in losses._asdict().items()})

    def _batch(self, phase: str, step: int) -> Batch:
        rng = random.Random(f"{self.options.seed}/{phase}/{step}/{self.rank}")
        pictures = self.options.pictures // self.options.processes
        return make_batch(self.tokenizer, rng, pictures, self.options.questions)

    def _backward(self, loss: torch.Tensor, parameters: list[nn.Parameter]) -> None:
        (loss / self.options.processes).backward()
        sum_gradients(parameters, loss.detach())

    def _record(self, phase: str, step: int, losses: dict[str, float]) -> None:
        if self.log is None:
            return
        for name, loss in losses.items():
            self.losses[name] = 0.95 * self.losses.get(name, loss) + 0.05 * loss
        if step % LOG_EVERY == 0:
            rounded = {name: round(self.losses[name], 4) for name in losses}
            row = {"phase": phase, "step": step, "seconds": round(time.monotonic() - self.began), **rounded}
            self.log.write(json.dumps(row) + "\n")
            self.log.flush()
            logger.info("%s", "  ".join(f"{key} {value}" for key, value in row.items()))

    def save(self) -> None:
        """Write the checkpoint and `training.json`."""
        options = self.options
        save(self.supervised.model, self.tokenizer, options.out)
        facts = {
            "encoder_steps": options.encoder_steps,
            "steps": options.steps,
            "pictures": (options.encoder_steps + options.steps) * options.pictures,
            "questions": options.steps * options.pictures * options.questions,
            "seconds": round(time.monotonic() - self.began),
            "final_losses": {name: round(loss, 4) for name, loss in self.losses.items()},
            "parameters": sum(p.numel() for p in self.supervised.model.parameters()),
            "processes": options.processes,
            "seed": options.seed,
            "torch": torch.__version__,
        }
        (options.out / "training.json").write_text(json.dumps(facts, indent=2) + "\n")


def _schedule(progress: float, decay: float) -> float:
    """Return the factor on the learning rates at `progress` (0 to 1) of a phase whose last share `decay` falls to 0."""
    return min(1.0, (progress + 1e-3) / WARMUP, (1 - progress) / decay)


def train(rank: int, options: Options) -> None:
    """Run one of `options.processes` trainers."""
    trainer = Trainer(rank, options)
    trainer.train()
    if rank == 0:
        trainer.save()


def main() -> None:
    """Run the command line: train and write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--encoder-steps", type=int, default=1600)
    parser.add_argument("--steps", type=int, default=1300)
    parser.add_argument("--pictures", type=int, default=32, help="pictures of a step")
    parser.add_argument("--questions", type=int, default=8, help="questions for each picture")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2, help="one per core")
    options = Options(**vars(parser.parse_args()))
    if options.pictures % options.processes:
        parser.error("--pictures must be a multiple of --processes")
    options.out.mkdir(parents=True, exist_ok=True)
    run_trainers(train, options, options.processes)


if __name__ == "__main__":
    main()
