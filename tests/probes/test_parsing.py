"""Spans of reasoning and tool calls that the server finds in generated text."""

from pathlib import Path

from tests.engine.test_reasoning_parsers import make as make_reasoning_parser
from tests.probes.tracing import outline, record
from tests.server.test_tool_parsers import make
from tracellm.probes.catalog.engine import CATALOG
from tracellm.report.facts.messages import ParsedMessage, parsed_messages
from tracellm.trace import names
from tracellm.trace.model import Trace

CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'


def test_complete_texts(tmp_path: Path) -> None:
    """A complete text has a span with the names of the called functions and the lengths of the other parts."""

    def run() -> None:
        make_reasoning_parser("qwen3").extract_reasoning("<think>one</think>four")
        make("hermes").extract_tool_calls(f"four{CALL}{CALL}")
        make("pythonic").extract_tool_calls("four")

    assert outline(record(tmp_path, run, CATALOG), names.ARGUMENTS, names.RESULT).splitlines()[1:] == [
        "  Qwen3ReasoningParser.extract_reasoning arguments=['model_output=str of 22'] "
        "result=reasoning: str of 3, content: str of 4",
        f"  Hermes2ProToolParser.extract_tool_calls arguments=['model_output=str of {len(CALL) * 2 + 4}'] "
        "result=tool call of f, tool call of f, content: str of 4",
        "  PythonicToolParser.extract_tool_calls arguments=['model_output=str of 4'] "
        "result=no tool call, content: str of 4",
    ]


def test_streams(tmp_path: Path) -> None:
    """Each piece of a stream has a span with what it adds to the message."""

    def run() -> None:
        reasoning_parser, tool_parser = make_reasoning_parser("deepseek_r1"), make("hermes")
        for piece in ("one</thi", "nk>four"):
            reasoning_parser.extract_reasoning_streaming(piece)
        for piece in ("four<tool", CALL[5:], ""):
            tool_parser.extract_tool_calls_streaming(piece, finished=not piece)

    trace = record(tmp_path, run, CATALOG)
    assert [span.attributes[names.RESULT] for root in trace.roots for depth, span in trace.walk(root) if depth] == [
        "reasoning: str of 3",
        "content: str of 4",
        "content: str of 4",
        "tool call of f, arguments: str of 2",
        "nothing yet",
    ]


def test_the_message_of_an_http_request(tmp_path: Path) -> None:
    """An HTTP request has the sum of what the parsers found below it; content that both parsers saw counts once."""

    def run() -> None:
        reasoning_parser, tool_parser = make_reasoning_parser("deepseek_r1"), make("hermes")
        for piece in ("one</thi", f"nk>four{CALL}", CALL):
            _, content = reasoning_parser.extract_reasoning_streaming(piece)
            tool_parser.extract_tool_calls_streaming(content)
        tool_parser.extract_tool_calls_streaming("", finished=True)

    trace = record(tmp_path, run, CATALOG)
    [script] = trace.roots
    assert parsed_messages(trace) == {}
    script.attributes[names.HTTP_METHOD] = "POST"
    assert parsed_messages(Trace(trace.spans)) == {script.span_id: ParsedMessage(3, 4, ("f", "f"))}
