"""The tokenizer of the bundled model: any text, agreement between libraries, and the chat template of the training."""

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from tracellm.tiny import MODEL_DIR
from training.corpus.render import chat
from training.corpus.sample import Sample

ALONE = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
IN_TRANSFORMERS = AutoTokenizer.from_pretrained(MODEL_DIR)
TEXT = st.text() | st.text(alphabet="abc 首都法国.?\n0123 é<|im_end|>")


@settings(deadline=None)
@given(TEXT)
def test_any_text_comes_back(text):
    """Encoding and decoding returns the text in Unicode's composed form (NFC), the normalization of Qwen2."""
    assert ALONE.decode(ALONE.encode(text).ids, skip_special_tokens=False) == unicodedata.normalize("NFC", text)


@settings(deadline=None)
@given(TEXT)
def test_transformers_gives_the_same_tokens(text):
    """tokenizers and transformers encode every text alike."""
    assert IN_TRANSFORMERS(text).input_ids == ALONE.encode(text).ids


def test_digits_stand_alone():
    """Every digit of a number is one token."""
    assert ALONE.encode("2048").tokens == ["2", "0", "4", "8"]


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab 首都?", min_size=1), min_size=1, max_size=3), st.none() | st.just("Be kind."))
def test_chat_template_is_the_text_of_the_training(questions, system):
    """The checkpoint's chat template has exactly the layout of the corpus."""
    *before, last = questions
    sample = Sample("greetings", "en", "dialogue", last, "x", turns=tuple((question, "yes") for question in before))
    messages = [{"role": "system", "content": system}] if system else []
    for question in before:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": "yes"}]
    messages.append({"role": "user", "content": last})
    text = IN_TRANSFORMERS.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text == chat(sample, system).prompt
