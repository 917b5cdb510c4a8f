"""The page's section on the model in a real browser: layers, times, limit, paged attention and kernels of a step."""

from pathlib import Path

import pytest

from tests.browser import Browser
from tests.report.synthetic import a_run, a_run_folder
from tracellm.report.html import report_html
from tracellm.trace import names
from tracellm.trace.model import Span

_SECTION = "document.getElementById('model')"
_WEIGHTS = [
    "model.embed_tokens.weight=float32[4096, 64]",
    "model.layers.0-1.self_attn.qkv_proj.weight=float32[128, 64]",
    "model.layers.0-1.self_attn.o_proj.weight=float32[64, 64]",
    "model.layers.0-1.mlp.gate_up_proj.weight=float32[256, 64]",
    "model.layers.0-1.mlp.down_proj.weight=float32[64, 128]",
    "model.layers.0-1.input_layernorm.weight=float32[64]",
    "model.layers.0-1.post_attention_layernorm.weight=float32[64]",
    "model.norm.weight=float32[64]",
]


def with_model(spans: list[Span], gpu: str = "") -> list[Span]:
    """Add the shapes of a model of two layers to a handmade run; on a GPU also a launch of a kernel in each layer."""
    number = 0
    for span in spans:
        if span.name == "DefaultModelLoader.load_weights":
            span.attributes[names.LOAD_WEIGHTS] = _WEIGHTS
            span.attributes[names.LOAD_ATTENTION] = ["model.layers.0-1.attn: heads=4 kv_heads=2 head_size=16 window=0"]
            span.attributes[names.LOAD_CONFIG] = ["hidden_size=64", "hidden_act=silu", "rope=True"]
        elif span.name == "DefaultModelLoader.place_on_device" and gpu:
            span.attributes |= {names.LOAD_DEVICE: "cuda:0", names.LOAD_DEVICE_NAME: gpu}
        elif span.name == "ops.paged_attention" and gpu:
            number += 1
            span.name = "paged_attention_v1_kernel"
            span.attributes |= {
                names.LAUNCH_GRID: [2, 2],
                names.LAUNCH_CONSTANTS: ["WINDOW=0"],
                names.LAUNCH_BLOCKS: ["0,*: 1", "1,*: 2"],
                names.LAUNCH_REASON: "short_context",
                names.LAUNCH_BYTES_READ: 4_800_000,
                names.LAUNCH_FLOPS: 1000,
                names.LAUNCH_NUMBER: number,
                names.GPU_LAUNCHES: [number],
                names.GPU_TIMES: [2000],
            }
    return spans


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Path:
    """Open the page of a run on a CPU at its second step, and return its file."""
    return _open(browser, tmp_path, with_model(a_run()))


def _open(browser: Browser, folder: Path, spans: list[Span], hash: str = "#step=2") -> Path:
    file = folder / "report.html"
    file.write_text(report_html(a_run_folder(spans)), encoding="utf-8")
    browser.visit("about:blank")
    browser.visit(file.resolve().as_uri() + hash)
    assert browser.wait("document.documentElement.dataset.ready")
    _look(browser)
    return file


def _look(browser: Browser) -> None:
    browser.run(f"{_SECTION}.scrollIntoView()")
    assert browser.wait(f"{_SECTION}.innerText.includes('Paged attention')")
    assert browser.wait(f"!{_SECTION}.innerText.includes('being read')")


def _text(browser: Browser, selector: str) -> str:
    """Return the text of an element of the section, in one line."""
    return browser.run(f"return {_SECTION}.querySelector(`{selector}`).innerText.replaceAll(/\\s+/g, ' ')")


def test_layers_alike_are_one_row_that_opens(browser: Browser, page: Path):
    """The forward pass has a row for both layers; it opens, and a layer of it is then shown in full."""
    rows = "[data-shows=forward] tbody tr"
    assert browser.count(rows) == 5
    assert "Layers 0-1 ×2" in _text(browser, "[data-shows=forward] [data-part=layers]")
    # qkv, o, gate and up, down: 36,864 weights in a layer, and 4,096 x 64 of the logits, for 2 tokens
    assert "[2, 64] → [2, 4096]" in _text(browser, "[data-part=logits]")
    assert "1.05 M" in _text(browser, "[data-part=logits]")
    browser.click("[aria-label='Layers 0-1']")
    assert browser.count(rows) == 7
    browser.click("#model [data-part=inner] [aria-label='Layer 1']")
    assert browser.run("return document.querySelector('#model select').value") == "1"
    assert browser.log() == []


def test_one_layer_is_always_shown_in_full(browser: Browser, page: Path):
    """Each part has shapes, bytes and FLOPs with their formula; attention shows who writes and reads the KV cache."""
    assert "self_attn.qkv_proj = 2 × 2 × 128 × 64" in _text(browser, "[data-part=qkv]")
    assert "32.8 kB weights" in _text(browser, "[data-part=qkv]")
    assert "writes 2 slots of the KV cache: 22, 38" in _text(browser, "[data-part=write]")
    assert "reads 2 blocks of the KV cache: 1 2" in _text(browser, "[data-part=attention]")
    browser.click("#model [data-part=attention] .link")
    assert browser.run("return location.hash") == "#step=2&block=1"


def test_the_section_follows_the_step(browser: Browser, page: Path):
    """Another step has another batch, and other figures."""
    assert "2 tokens of 2 requests, 2 rows of logits" in _text(browser, "h3")
    browser.run("tracellm.goto(1)")
    assert "12 tokens of 2 requests, 2 rows of logits" in _text(browser, "h3")
    assert "[12, 64] → [12, 128]" in _text(browser, "[data-part=qkv]")


def test_programs_lead_to_requests_and_blocks(browser: Browser, page: Path):
    """A program is a sentence about its blocks; a click selects the request, and a block is that of the block map."""
    browser.click("[aria-label='Program (1, 1)']")
    sentence = (
        "Program (1, 1) reads 7 keys of request 1 in 1 block: 2 (block 2 holds 7 of 16). In this layer these are 896 B "
        "of keys and values for the KV head, and 1.79 kB for the request's 2 KV heads."
    )
    assert _text(browser, ".reading") == sentence
    assert browser.run("return location.hash") == "#step=2&request=1"
    browser.click("#model .request-chip.r0")
    assert "Program (0, 0) reads 7 keys of request 0" in _text(browser, ".reading")
    browser.click("#model .read-block.r1")
    assert browser.run("return location.hash") == "#step=2&request=1&block=2"
    assert browser.run("return document.querySelector('.cell[aria-pressed=true]').dataset.block") == "2"
    assert "slot 38 = block 2, offset 6" in _text(browser, ".reads .chosen")


def test_a_gpu_has_its_data_sheet_and_its_kernels(browser: Browser, tmp_path: Path):
    """Recorded launches give grid, reason and agreement; kernels have the GPU's time and their share of its peak."""
    _open(browser, tmp_path, with_model(a_run(), gpu="NVIDIA H200"))
    assert "NVIDIA H200, by its data sheet: 67.0 TFLOP/s and 4.80 TB/s" in _text(browser, "[data-shows=limit]")
    assert browser.count("#model .point.possible") > 5
    attention = _text(browser, "[data-shows=attention]")
    assert "paged_attention_v1_kernel was launched with a grid of 2 × 2 programs." in attention
    assert "The blocks that the launch recorded are the same." in attention
    layers = browser.run("return document.querySelectorAll('#model [data-shows=kernels] tbody tr').length")
    assert layers == 1
    row = _text(browser, "[data-shows=kernels] tbody tr")
    assert "2.40 TB/s" in row
    assert "50.0%" in row  # 4.8 MB at 4.8 TB/s take 1 of the 2 µs
    launches = int(row.split()[1])
    browser.click("[aria-label='Whole run']")
    assert int(_text(browser, "[data-shows=kernels] tbody tr").split()[1].replace(",", "")) == 17 * launches


def test_an_unknown_gpu_has_no_limit(browser: Browser, tmp_path: Path):
    """No peak is invented for a device without a data sheet."""
    _open(browser, tmp_path, with_model(a_run(), gpu="NVIDIA Unheard-of"))
    assert "tracellm has no data sheet of NVIDIA Unheard-of" in _text(browser, "[data-shows=limit]")
    assert browser.count("#model svg") == 0


def test_a_run_without_the_models_shapes(browser: Browser, tmp_path: Path):
    """An old recording still shows attention, and says what it lacks."""
    _open(browser, tmp_path, a_run())
    assert "does not have the shapes of the model" in _text(browser, ".callout")
    assert "Program (0, 0) reads 7 keys" in _text(browser, ".reading")
    assert browser.count("#model [data-shows=forward]") == 0


def test_layers_of_an_image_encoder_are_not_counted(browser: Browser, tmp_path: Path):
    """The first sentence has the number and the width of the language model's layers."""
    spans = with_model(a_run())
    for span in spans:
        if names.LOAD_WEIGHTS in span.attributes:
            span.attributes[names.LOAD_CONFIG] = ["hidden_size=64", "num_hidden_layers=2"]
            span.attributes[names.LOAD_WEIGHTS] = [*_WEIGHTS, "visual.blocks.0-4.mlp.weight=float32[8, 8]"]
    _open(browser, tmp_path, spans)
    assert "2 layers of width 64" in _text(browser, "p")


def test_a_run_without_layers_says_how_to_record_them(browser: Browser, tmp_path: Path):
    """Figures that follow from the shapes are there, times are not."""
    _open(browser, tmp_path, with_model(a_run(layers=0)))
    assert "--detail kernel" in _text(browser, "[data-shows=forward]")
    assert browser.count("#model thead th") > 5


@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_the_window_in_both_languages(browser: Browser, page: Path, width: int):
    """Nothing is wider than the window, and the other language has the same panels."""
    browser.visit(page.resolve().as_uri() + "#step=2", width=width)
    assert browser.wait("document.documentElement.dataset.ready")
    _look(browser)
    assert browser.run("return document.documentElement.scrollWidth") == width
    panels = browser.count("#model .panel")
    browser.click("#language")
    assert browser.wait("document.documentElement.lang === 'zh-CN'")
    browser.run(f"{_SECTION}.scrollIntoView()")
    assert browser.wait(f"{_SECTION}.innerText.includes('前向计算')")
    assert browser.count("#model .panel") == panels
    assert "model." not in browser.run(f"return {_SECTION}.innerText.replaceAll(/model\\.(layers|norm|embed)/g, '')")
    assert browser.log() == []
