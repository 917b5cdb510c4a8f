"""Images and sounds in a recorded run of a real engine: facts, texts, the diagram, and the page in a browser."""

import base64
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.browser import Browser
from tests.engine.multimodal.pictures import make_picture, make_prompt, make_sound, write_image_tokens, write_processor
from tests.mermaid import ParseMermaid
from tests.multimodal_checkpoints import make_multimodal_checkpoint
from tests.probes.tracing import record
from tracellm import LLM, SamplingParams
from tracellm.probes.catalog import CATALOG
from tracellm.report.diagram.key_calls import ITEM_CALLS
from tracellm.report.diagram.sequence import sequence_diagram
from tracellm.report.facts.items.item import Item, read_items
from tracellm.report.facts.items.uses import ItemUse, item_uses
from tracellm.report.facts.requests import RequestFacts, requests
from tracellm.report.html import report_html
from tracellm.report.step_text import step_text
from tracellm.report.steps_table import steps_table
from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import Encoded, EncoderState, steps

PARAMS = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
A, B, C = make_picture(1, 320, 208), make_picture(2), make_picture(3, 200, 200)
UUID = "<b>cat</b>"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Qwen2-VL."""
    folder = make_multimodal_checkpoint(tmp_path_factory.mktemp("vl"), "qwen2_vl")
    write_processor(folder)
    write_image_tokens(folder)
    return folder


def ask(checkpoint: Path) -> None:
    """Generate for two requests that share an image; then again for the first, with n, and for one more image.

    A step encodes at most 80 tokens, and so many are kept: the images have 54, 24 and 64.
    """
    llm = LLM(checkpoint, dtype="float32", max_model_len=160, max_num_batched_tokens=80)
    first, both = make_prompt(5, A, 6), make_prompt(7, A, 8, B)
    llm.generate([first, both], PARAMS, use_tqdm=False)
    llm.generate(first, SamplingParams(n=2, temperature=1, seed=1, max_tokens=2), use_tqdm=False)
    llm.generate({**make_prompt(9, C), "multi_modal_uuids": {"image": [UUID]}}, PARAMS, use_tqdm=False)


@pytest.fixture(scope="module")
def run(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The recorded run of `ask`."""
    folder = tmp_path_factory.mktemp("run")
    record(folder, lambda: ask(checkpoint), CATALOG)
    return RunFolder.open(folder)


@pytest.fixture(scope="module")
def trace(run: RunFolder) -> Trace:
    """Its spans."""
    return run.trace


def by_id(trace: Trace) -> dict[str, RequestFacts]:
    """Return the requests by their ids."""
    return {request.id: request for request in requests(trace.spans)}


# -- what is recorded --------------------------------------------------------------------------------------------------


def test_items_of_requests(trace: Trace) -> None:
    """A request has place, size and squares of each item, and whether the processor had seen it."""
    found = by_id(trace)
    places = {
        id: [(item.offset, item.length, item.size, item.grid, item.cached) for item in request.items]
        for id, request in found.items()
    }
    assert places == {
        "0": [(2, 54, (320, 208), (6, 9), False)],
        "1": [(2, 54, (320, 208), (6, 9), True), (59, 24, (46, 30), (4, 6), False)],
        "0_2": [(2, 54, (320, 208), (6, 9), True)],
        "1_2": [(2, 54, (320, 208), (6, 9), True)],
        "3": [(2, 64, (200, 200), (8, 8), False)],
    }
    assert {item.modality for request in found.values() for item in request.items} == {"image"}
    assert found["0"].items[0].identifier == found["1"].items[0].identifier
    assert len(found["0"].items[0].identifier) == 12
    assert found["3"].items[0].identifier == UUID


def test_pictures_are_small(trace: Trace) -> None:
    """Each picture is a JPEG of at most 96 pixels on a side and 6 kB, with the shape of the image."""
    for request in requests(trace.spans):
        for item in request.items:
            head, _, data = item.picture.partition(",")
            assert (head, len(item.picture) <= 6_000) == ("data:image/jpeg;base64", True)
            picture = Image.open(io.BytesIO(base64.b64decode(data)))
            assert item.size is not None
            scale = min(1, 96 / max(item.size))
            assert picture.size == (round(item.size[0] * scale), round(item.size[1] * scale))


def test_the_encoder_of_steps(trace: Trace) -> None:
    """A step has the encoded items, the budget, the space of the cache, and what was evicted."""
    found = by_id(trace)
    encoders = [step.encoder for step in steps(trace)]
    a, b = (item.identifier for item in found["1"].items)
    encoding = [encoder for encoder in encoders if encoder is not None and encoder.items]
    assert encoding == [
        EncoderState((Encoded("0", 0, 54),), 80, 80, 26, 0, ()),
        EncoderState((Encoded("1", 1, 24),), 80, 80, 2, 78, ()),
        EncoderState((Encoded("3", 0, 64),), 80, 80, 16, 64, (b, a)),  # a was used after b
    ]
    assert all(encoder is not None for encoder in encoders)


def test_origins_and_blocks(trace: Trace) -> None:
    """An item is encoded, found in the encoder cache, or not needed as the prefix cache has its tokens."""
    uses = {id: item_uses(trace)[request.span_id] for id, request in by_id(trace).items()}
    joined = {id: step.index for step in steps(trace) for id in step.new}
    assert uses["0"] == (ItemUse([(1, "encoded")], (1, 2, 3, 4)),)
    assert [use.sources for use in uses["1"]] == [[(1, "found")], [(2, "encoded")]]
    assert [len(use.blocks) for use in uses["1"]] == [4, 3]
    for id in ("0_2", "1_2"):  # of 59 tokens, three blocks of 16 are cached; the item ends at 56
        assert [use.sources for use in uses[id]] == [[(joined[id], "found")]]
    assert uses["3"][0].sources == [(joined["3"], "encoded")]


def test_whole_items_in_the_prefix_cache(checkpoint: Path, tmp_path: Path) -> None:
    """An item whose tokens are all in the prefix cache is not encoded, and has the cached blocks."""

    def again() -> None:
        llm = LLM(checkpoint, dtype="float32", max_model_len=160)
        for _ in range(2):
            llm.generate(make_prompt(B, *range(40)), PARAMS, use_tqdm=False)

    trace = record(tmp_path, again, CATALOG)
    first, second = (item_uses(trace)[request.span_id] for request in requests(trace.spans))
    assert (first[0].sources, second[0].sources) == ([(1, "encoded")], [(4, "prefix")])
    assert first[0].blocks == second[0].blocks == (1, 2)
    assert "not encoded for step 4: the prefix cache had its tokens" in step_text(trace, 4)


def test_sounds(tmp_path: Path) -> None:
    """A sound has its seconds, and no picture."""
    folder = make_multimodal_checkpoint(tmp_path / "model", "qwen2_audio", audio_config={"max_source_positions": 50})
    write_processor(folder)

    def listen() -> None:
        llm = LLM(folder, dtype="float32", max_model_len=160)
        llm.generate(make_prompt(5, make_sound(1, 0.75)), PARAMS, use_tqdm=False)

    trace = record(tmp_path / "run", listen, CATALOG)
    [request] = requests(trace.spans)
    [item] = request.items
    assert (item.modality, item.seconds, item.size, item.grid, item.picture) == ("audio", 0.75, None, None, "")
    assert names.REQUEST_PICTURES not in trace.by_id[request.span_id].attributes
    assert "mm_features[0]: sound · 0.75 s" in step_text(trace, 1)
    page = report_html(RunFolder.open(tmp_path / "run"))
    assert "<span>0.75 s</span>" in page
    assert "img-src" not in page.partition("<title>")[0]


def test_the_page_does_not_propose_whatif(run: RunFolder, tmp_path: Path) -> None:
    """The page proposes `tracellm whatif` for a run of text, and not for one with images, which whatif refuses."""
    assert "tracellm whatif RUN" not in report_html(run)
    record(tmp_path, lambda: LLM(max_model_len=64).generate("a", PARAMS, use_tqdm=False), CATALOG)
    assert "tracellm whatif RUN" in report_html(RunFolder.open(tmp_path))


def test_a_text_model_has_none_of_it(tmp_path: Path) -> None:
    """Spans of a text model have no attribute of items or the encoder."""
    trace = record(tmp_path, lambda: LLM(max_model_len=64).generate("a", PARAMS, use_tqdm=False), CATALOG)
    used = {name for span in trace.spans for name in span.attributes}
    new = {names.REQUEST_ITEMS, names.REQUEST_PICTURES} | {name for name in names.ATTRIBUTES if ".encoder." in name}
    assert len(new) == 10
    assert used.isdisjoint(new)
    assert "img-src" not in report_html(RunFolder.open(tmp_path)).partition("<title>")[0]


def test_no_text_leaves_no_picture(checkpoint: Path, tmp_path: Path) -> None:
    """Without text, items have no picture; the page shows their squares."""
    trace = record(tmp_path, lambda: ask(checkpoint), CATALOG, text=False)
    assert [len(request.items) for request in requests(trace.spans)] == [1, 2, 1, 1, 1]
    assert not any(item.picture for request in requests(trace.spans) for item in request.items)
    assert not any(b"data:image" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    page = report_html(RunFolder.open(tmp_path))
    assert "<image" not in page
    assert page.count('class="lines"') == 5  # of both outputs of a request once


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("modality", "offset", "length", "identifier", "size", "seconds", "cached", "patches")


@given(values=st.dictionaries(st.sampled_from(FIELDS), ANYTHING), picture=ANYTHING)
def test_damaged_items(values: dict[str, object], picture: object) -> None:
    """Whatever an attribute holds, an item is read of it, with squares for all tokens or none."""
    attributes = {names.REQUEST_ITEMS: [json.dumps(values)], names.REQUEST_PICTURES: [picture]}
    [item] = read_items(Span(names.REQUEST_SPAN, "", "", None, 0, 0, attributes))
    assert item.grid is None or item.grid[0] * item.grid[1] == item.length
    assert item.picture == ""


@pytest.mark.parametrize(
    "picture", ['data:image/png;base64,AA"><script>', "data:image/svg+xml;base64,AAAA", "http://a.b/c.png", 5, None]
)
def test_only_pictures_are_pictures(picture: object) -> None:
    """A picture is a data URL of a JPEG or PNG; anything else is left out."""
    attributes = {names.REQUEST_ITEMS: ["[]"], names.REQUEST_PICTURES: [picture]}
    assert read_items(Span(names.REQUEST_SPAN, "", "", None, 0, 0, attributes)) == (Item("?", 0, 0, ""),)


# -- words -------------------------------------------------------------------------------------------------------------


def test_the_table_of_steps(trace: Trace) -> None:
    """The table names the encoded items with the budget, the cache, and what was evicted, in both languages."""
    table = steps_table(trace, width=120)
    assert "    encoded mm_features[1] of request 1: 24 of 80 tokens of the encoder's budget\n" in table
    assert "    encoder cache: 2 of 80 tokens free, 78 kept though not needed, 0 needed\n" in table
    a, b = (item.identifier for item in by_id(trace)["1"].items)
    assert f"    evicted from the encoder cache: {b}, {a}\n" in table
    zh = steps_table(trace, lang="zh", width=120)
    assert "    编码请求 1 的 mm_features[1]：编码器预算 80 个 token 中用了 24 个\n" in zh
    assert f"    从编码器缓存驱逐：{b}、{a}\n" in zh


def test_the_text_of_a_step(trace: Trace) -> None:
    """The state of a step has the encoder's budget and cache, and the items that its tokens reach."""
    lines = step_text(trace, 2, width=200).splitlines()
    at = lines.index("Encoder  max_num_encoder_input_tokens")
    assert lines[at + 1 : at + 4] == [
        "  24 of 80 tokens",
        "  Encoder cache: 2 of 80 tokens free, 78 kept though not needed, 0 needed.",
        "  1  mm_features[1]: image · 46 × 30 pixels · 4 × 6 squares, a token for each · 24 tokens of the prompt, "
        "positions 59–82 · encoded in step 2",
    ]
    assert "第 1 步从编码器缓存找到" in step_text(trace, 1, lang="zh")


def test_reasons_of_budget_and_cache(checkpoint: Path, tmp_path: Path) -> None:
    """A request that waits for the encoder's budget, or for the encoder cache, has the reason with its numbers."""

    def wait() -> None:
        llm = LLM(checkpoint, dtype="float32", max_model_len=160, max_num_batched_tokens=100)
        scheduler = llm.llm_engine.engine_core.engine_core.scheduler  # type: ignore[attr-defined]
        scheduler.max_num_encoder_input_tokens = 64
        llm.generate([make_prompt(5, A), make_prompt(6, C)], PARAMS, use_tqdm=False)

    table = steps_table(record(tmp_path, wait, CATALOG), width=140)
    assert "request 1 partly scheduled: mm_features[0] has 64 tokens, the encoder's budget of 64 had 10 left" in table


# -- the diagram -------------------------------------------------------------------------------------------------------


def test_the_diagram_has_the_calls_of_items(trace: Trace, parse_mermaid: ParseMermaid) -> None:
    """The sequence diagram shows the processor's lifeline, and the eight calls that images need."""
    parsed = parse_mermaid(sequence_diagram(trace))
    calls = {event["text"].partition("(")[0] for event in parsed["events"]}
    methods = {name.rpartition(".")[2] for name in ITEM_CALLS} - {"embed_multimodal", "_cached_apply_hf_processor"}
    assert len(methods) == 8
    assert methods <= calls
    assert "Qwen2VLMultiModalProcessor" in {participant["id"] for participant in parsed["participants"]}


# -- the page ----------------------------------------------------------------------------------------------------------


def open_page(browser: Browser, run: RunFolder, folder: Path, width: int = 1280) -> None:
    """Open the report of the run."""
    page = folder / "report.html"
    page.write_text(report_html(run), encoding="utf-8")
    browser.open(page, width=width)
    assert browser.wait("document.documentElement.dataset.ready")


def test_the_page_shows_pictures(browser: Browser, run: RunFolder, tmp_path: Path) -> None:
    """The Requests section shows each picture with its squares, tokens, blocks and origin, and loads nothing."""
    open_page(browser, run, tmp_path)
    figure = "[aria-labelledby=requests] article:nth-of-type(1) figure.item"
    assert browser.run(f"return document.querySelector('{figure} image').href.baseVal.slice(0, 22)") == (
        "data:image/jpeg;base64"
    )
    assert browser.run(f"return document.querySelector('{figure} svg').getAttribute('viewBox')") == "0 0 9 6"
    lines = browser.run(f"return document.querySelector('{figure} .lines').getAttribute('d').split('M').length - 1")
    assert lines == 5 + 8
    facts = browser.run(f"return [...document.querySelectorAll('{figure} span')].map(one => one.textContent)")
    assert facts == [
        "320 × 208 pixels",
        "6 × 9 squares, a token for each",
        "54 tokens of the prompt, positions 2–55",
        "KV cache blocks 1-4",
        "encoded in step 1",
    ]
    loaded = "return fetch(document.querySelector('figure.item image').href.baseVal).then(() => 1, () => 0)"
    assert browser.run(loaded) == 0  # the policy lets nothing else use the picture
    assert all("Content Security Policy" in line for line in browser.log())


@pytest.mark.parametrize("width", [1280, 390])
def test_the_step_view_shows_the_selected_requests_items(
    browser: Browser, run: RunFolder, tmp_path: Path, width: int
) -> None:
    """The step view has the encoder's budget, and the selected request's pictures with later squares dimmed."""
    open_page(browser, run, tmp_path, width)
    browser.run("location.hash = '#step=1&request=1'")
    assert browser.wait("document.querySelector('[data-shows=items] figure')")
    panel = "return document.querySelector('[data-shows={}]').textContent"
    assert "54 of 80 tokens" in browser.run(panel.format("encoder"))
    assert "20 of 54 tokens computed after this step" in browser.run(panel.format("items"))
    assert browser.count("[data-shows=items] .pending") == 2
    dimmed = browser.run("return document.querySelector('[data-shows=items] .pending').getAttribute('d')")
    assert dimmed == "M2 2H9V3H2ZM0 3H9V6H0Z"
    browser.run("location.hash = '#step=2&request=1'")
    assert browser.wait("document.querySelectorAll('[data-shows=items] .pending').length === 0")
    assert "encoded in step 2" in browser.run(panel.format("items"))
    pieces = browser.run("return [...document.querySelectorAll('.placeholders')].map(one => one.textContent)")
    assert pieces == ["mm_features[0]: image ×54", "mm_features[1]: image ×24"]
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.log() == []
