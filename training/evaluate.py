"""Evaluation of a checkpoint on samples held out of the training.

    python -m training.evaluate --model DIR        # writes DIR/evaluation.json and DIR/README.md, the model card

Generation is greedy, in float32. Three measures: the loss on held-out documents; held-out samples of the generator, per
subject and language, as a chat and as raw text; and the questions of `training/questions.py`, written by hand.
"""

import argparse
import json
from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase, Qwen2ForCausalLM

from .card import write_card
from .corpus import SUBJECTS, held_out_samples
from .corpus.render import Document, chat, raw
from .corpus.sample import Sample
from .questions import QUESTIONS

__all__ = ["EXAMPLES", "Answerer", "evaluate", "load"]

EXAMPLES = (
    "Hello, my name is",
    "The president of the United States is",
    "The capital of France is",
    "The future of AI is",
    "The largest ocean is",
    "What is the capital of Japan?",
    "2 + 3 =",
    "What does the scheduler do?",
    "Count from 1 to 10.",
    "法国的首都是哪里?",
    "什么是 KV cache?",
    "从1数到10。",
)
"""Raw prompts of the examples in the model card."""

MAX_NEW_TOKENS = 128
Score = dict[str, float]


def load(directory: Path) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerBase]:
    """Return the checkpoint in `directory`, in float32, and its tokenizer."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(directory, padding_side="left")


class Answerer:
    """Greedy generation for batches of prompts."""

    def __init__(self, model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerBase) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.ends = set(model.generation_config.eos_token_id)

    def __call__(self, prompts: list[str], batch_size: int = 32) -> list[tuple[str, bool]]:
        """Return each prompt's continuation, and whether it ended with a stop token."""
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        answers: list[tuple[str, bool]] = [("", False)] * len(prompts)
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            inputs = self.tokenizer([prompts[i] for i in rows], return_tensors="pt", padding=True)
            with torch.inference_mode():
                output = self.model.generate(**inputs, max_new_tokens=MAX_NEW_TOKENS, do_sample=False)
            for i, ids in zip(rows, output[:, inputs.input_ids.shape[1] :].tolist(), strict=True):
                end = next((j for j, token in enumerate(ids) if token in self.ends), None)
                answers[i] = (self.tokenizer.decode(ids[:end]), end is not None)
        return answers


def right(sample: Sample, answer: str) -> bool:
    """Return whether `answer` has the key of `sample`, or is its whole answer if there is no key."""
    return sample.key in answer if sample.key else answer.strip() == sample.answer


def _chinese(text: str) -> bool:
    return any("\u4e00" <= c <= "\u9fff" for c in text)


def has_one_answer(sample: Sample) -> bool:
    """Return whether there is one right answer; a story or the name after "Hello, my name is" may be any."""
    return sample.subject not in ("openers", "stories") and (sample.subject, sample.form) != ("greetings", "completion")


def score(samples: list[Sample], answers: list[tuple[str, bool]]) -> Score:
    """Return the shares of exact, right, stopped and right-language answers among `samples`."""
    pairs = [(s, text, stopped) for s, (text, stopped) in zip(samples, answers, strict=True)]
    fixed = [(s, text) for s, text, _ in pairs if has_one_answer(s)]
    spoken = [(s, text) for s, text, _ in pairs if _chinese(s.answer) == (s.lang == "zh")]
    result = {"count": len(pairs), "stopped": sum(stopped for *_, stopped in pairs) / len(pairs)}
    result["language_kept"] = sum(_chinese(text) == (s.lang == "zh") for s, text in spoken) / max(1, len(spoken))
    if fixed:
        result["exact"] = sum(text.strip() == s.answer for s, text in fixed) / len(fixed)
        result["right"] = sum(right(s, text) for s, text in fixed) / len(fixed)
    return {name: round(value, 4) for name, value in result.items()}


def held_out_loss(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerBase, documents: list[Document]) -> float:
    """Return the mean cross entropy, nats per token, of the answers and end tokens of `documents`."""
    total, count = 0.0, 0
    for document in documents:
        prompt = tokenizer(document.prompt).input_ids
        answer = tokenizer(document.answer + document.end).input_ids
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        total += cross_entropy(logits, torch.tensor(answer), reduction="sum").item()
        count += len(answer)
    return total / count


def evaluate(directory: Path, per_group: int = 60, seed: int = 20_000) -> dict[str, Any]:
    """Return all figures of the checkpoint in `directory`, with up to `per_group` samples per subject and language."""
    model, tokenizer = load(directory)
    answerer = Answerer(model, tokenizer)
    groups: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    num_samples = 2 * per_group * len(SUBJECTS)
    for sample in islice(held_out_samples(seed), 10 * num_samples):
        if len(groups[sample.subject, sample.lang]) < per_group:
            groups[sample.subject, sample.lang].append(sample)
    held_out, all_samples, all_answers = [], [], []
    for (subject, lang), samples in sorted(groups.items()):
        for layout, to_document in (("chat", chat), ("raw", raw)):
            suitable = [s for s in samples if layout == "raw" or s.form == "question"]
            if not suitable:
                continue
            answers = answerer([to_document(s).prompt for s in suitable])
            held_out.append({"subject": subject, "language": lang, "layout": layout, **score(suitable, answers)})
            all_samples += suitable
            all_answers += answers
    documents = [chat(s) if s.form == "question" else raw(s) for samples in groups.values() for s in samples]
    by_hand: dict[str, Any] = {}
    for layout in ("chat", "raw"):
        samples = [Sample("questions", lang, "question", prompt, "") for lang, prompt, _ in QUESTIONS]
        answers = answerer([(chat if layout == "chat" else raw)(s).prompt for s in samples])
        rows = list(zip(QUESTIONS, answers, strict=True))
        for lang in ("en", "zh"):
            good = [any(key in text for key in keys) for (language, _, keys), (text, _) in rows if language == lang]
            by_hand[f"{lang} {layout}"] = {"count": len(good), "right": round(sum(good) / len(good), 4)}
        by_hand[f"wrong {layout}"] = [[p, text] for (_, p, keys), (text, _) in rows if not any(k in text for k in keys)]
    return {
        "held_out_loss": round(held_out_loss(model, tokenizer, documents), 4),
        "all": score(all_samples, all_answers),
        "held_out": held_out,
        "by_hand": by_hand,
        "examples": [[p, text] for p, (text, _) in zip(EXAMPLES, answerer(list(EXAMPLES)), strict=True)],
        "training": json.loads((directory / "training.json").read_text()),
    }


def main() -> None:
    """Run the command line: evaluate a checkpoint, write its figures and its card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--per-group", type=int, default=60)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    figures = evaluate(args.model, args.per_group)
    (args.model / "evaluation.json").write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    write_card(args.model)


if __name__ == "__main__":
    main()
