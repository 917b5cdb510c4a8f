"""Training of the tokenizer: byte-level BPE on the corpus.

Text is normalized (NFC) and split as in Qwen2, with one token per digit. Merges are learned with every Chinese
character split off, so no token spans two of them and a fact has the same tokens in every context.

    python -m training.tokenizer --out DIR
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from .corpus import documents
from .corpus.render import CHAT_TEMPLATE, END_OF_TEXT, IM_END, IM_START

__all__ = ["SPECIAL_TOKENS", "VOCAB_SIZE", "corpus_texts", "save_tokenizer", "train_tokenizer"]

VOCAB_SIZE = 4096
SPECIAL_TOKENS = (END_OF_TEXT, IM_START, IM_END)
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The expression of Qwen2; transformers uses it for every Qwen2 checkpoint, whatever the file has."""


def _pre_tokenizer(*before: pre_tokenizers.PreTokenizer) -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(_SPLIT), "isolated")
    return pre_tokenizers.Sequence([*before, split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def corpus_texts(seed: int = 0, num_documents: int = 60_000) -> Iterator[str]:
    """Yield documents of the corpus."""
    return (f"{d.prompt}{d.answer}" for d in islice(documents(seed), num_documents))


def train_tokenizer(
    texts: Iterable[str], vocab_size: int = VOCAB_SIZE, special_tokens: tuple[str, ...] = SPECIAL_TOKENS
) -> Tokenizer:
    """Return a tokenizer for `texts` with at most `vocab_size` entries, special tokens first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(pre_tokenizers.Split(Regex(r"\p{Han}"), "isolated"))
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special_tokens),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.pre_tokenizer = _pre_tokenizer()  # since no merge spans two Chinese characters
    return tokenizer


def save_tokenizer(
    tokenizer: Tokenizer, directory: Path, model_max_length: int, chat_template: str = CHAT_TEMPLATE
) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` (with the chat template) into `directory`."""
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "model_max_length": model_max_length,
        "add_prefix_space": False,
        "bos_token": None,
        "eos_token": IM_END,
        "pad_token": END_OF_TEXT,
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
        "chat_template": chat_template,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    """Run the command line: train the tokenizer and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    save_tokenizer(train_tokenizer(corpus_texts()), out, model_max_length=2048)


if __name__ == "__main__":
    main()
