"""Sounds: rates, channels, files, and those that are refused."""

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.engine.multimodal.pictures import make_prompt, make_sound
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.multimodal.media import decode_audio
from tracellm.engine.multimodal.parse import MultiModalDataParser

PARAMS = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
SOUND = make_sound(3, 0.5)


@pytest.fixture(scope="module")
def llm(vl_checkpoint: Callable[[str], Path]) -> LLM:
    """An engine whose model takes sounds of a second."""
    return LLM(vl_checkpoint("qwen2_audio"), dtype="float32", max_model_len=160)


def parsed(item: Any) -> np.ndarray:
    """Return the samples that a model of 16 kHz gets."""
    samples: np.ndarray = MultiModalDataParser(16_000).parse_mm_data({"audio": item})["audio"][0]
    return samples


def test_channels_and_whole_numbers_become_one_channel_of_fractions() -> None:
    """Two channels are averaged, whichever axis they are, and 16-bit samples are divided by their range."""
    stereo = np.stack([SOUND, np.zeros_like(SOUND)])
    for samples in (stereo, stereo.T):
        np.testing.assert_allclose(parsed(samples), SOUND / 2, atol=1e-7)
    np.testing.assert_allclose(parsed((SOUND * 32767).astype(np.int16)), SOUND, atol=1e-4)


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_another_rate_is_resampled(rate: int) -> None:
    """A tone at another rate becomes the same tone at the model's."""
    tone = np.sin(2 * np.pi * 440 * np.arange(rate) / rate).astype(np.float32)
    expected = np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)
    got = parsed((tone, rate))
    assert len(got) == 16_000
    np.testing.assert_allclose(got[800:-800], expected[800:-800], atol=2e-3)


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_a_file_gives_the_same_tokens(kind: str, llm: LLM) -> None:
    """A file in a conversation's part gives the samples that were written into it."""
    file = io.BytesIO()
    soundfile.write(file, SOUND, 16_000, format=kind)
    samples, rate = decode_audio(file.getvalue())
    assert rate == 16_000
    np.testing.assert_allclose(samples, SOUND, atol=1e-4)
    part = {"type": "input_audio", "input_audio": {"data": base64.b64encode(file.getvalue()).decode(), "format": "wav"}}
    template = "{% for m in messages %}{% for part in m.content %}<|AUDIO|>{% endfor %}{% endfor %}"
    conversation = [{"role": "user", "content": [part]}]
    said = llm.chat(conversation, PARAMS, use_tqdm=False, chat_template=template)[0]
    expected = llm.generate(make_prompt(np.asarray(samples)), PARAMS, use_tqdm=False)[0]
    assert said.outputs[0].token_ids == expected.outputs[0].token_ids


BAD_SOUNDS: dict[str, tuple[Any, str]] = {
    "an hour": (np.zeros(3600 * 16_000, np.float32), "audio 0 is 60 minutes long; at most 30 are accepted"),
    "two seconds": (np.zeros(32_000, np.float32), "audio 0 lasts 2.0 s; the model takes at most 1 s"),
    "no samples": (np.zeros(0, np.float32), "must be samples"),
    "a moment": (np.zeros(100, np.float32), "A sound is too short"),
    "text": ("a.wav", "must be samples"),
    "NaN": (np.full(900, np.nan, np.float32), "NaN or infinite"),
    "an odd rate": ((SOUND, 3), "the sampling rate must be 1000 to 384000 Hz, got 3"),
    "a rate of text": ((SOUND, "16 kHz"), "the sampling rate must be"),
}


@pytest.mark.parametrize("name", BAD_SOUNDS)
def test_a_bad_sound_gets_one_message(name: str, llm: LLM) -> None:
    """The message names the fault, and the next sound gets its tokens."""
    sound, message = BAD_SOUNDS[name]
    prompt = make_prompt(SOUND) | {"multi_modal_data": {"audio": [sound]}}
    with pytest.raises(InvalidRequestError, match=message):
        llm.generate(prompt, PARAMS, use_tqdm=False)
    assert llm.generate(make_prompt(SOUND), PARAMS, use_tqdm=False)[0].finished


def test_a_file_without_sound_is_refused() -> None:
    """Data of no known format, and a damaged file, get one message."""
    file = io.BytesIO()
    soundfile.write(file, SOUND, 16_000, format="WAV")
    for data in (b"hello", file.getvalue()[:20]):
        with pytest.raises(InvalidRequestError, match="no sound of an accepted format"):
            decode_audio(data)
