"""Spans of the tool and reasoning parsers of a real vLLM, which need only a tokenizer."""

from pathlib import Path

from tests.real_vllm import in_vllm
from tracellm.trace import names
from tracellm.trace.run_folder import RunFolder

TOKENIZER = Path(__file__).parents[1] / "fixtures" / "tiny-random-qwen2"
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
SCRIPT = f"""
import sys
from transformers import AutoTokenizer
try:
    from vllm.entrypoints.openai.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.tool_parsers import ToolParserManager
except ImportError:  # a later version
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager
from vllm.reasoning import ReasoningParserManager

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
tokenizer.add_tokens(["<think>", "</think>"])
request = ChatCompletionRequest(messages=[], model="m")
make = ToolParserManager.get_tool_parser("hermes")
make(tokenizer).extract_tool_calls("Well. " + {CALL!r}, request)
make(tokenizer).extract_tool_calls_streaming("", "Well", "Well", [], [5], [5], request=request)
parser = ReasoningParserManager.get_reasoning_parser("deepseek_r1")(tokenizer)
parser.extract_reasoning("one</think>four", request)
parser.extract_reasoning_streaming("", "one", "one", [], [5], [5])
"""


def test_parsers_of_a_real_vllm(tmp_path: Path) -> None:
    """The parsers have spans with what they find, as tracellm's have."""
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    explain = ["-m", "tracellm", "run", "--explain", "--quiet", "--out", "run"]
    done = in_vllm([*explain, "script.py", TOKENIZER], tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    found = {span.name: span.attributes.get(names.RESULT) for span in RunFolder.open(tmp_path / "run").trace.spans}
    assert found["Hermes2ProToolParser.extract_tool_calls"] == "tool call of f, content: str of 6"
    assert found["Hermes2ProToolParser.extract_tool_calls_streaming"] == "content: str of 4"
    assert found["DeepSeekR1ReasoningParser.extract_reasoning"] == "reasoning: str of 3, content: str of 4"
    assert "DeepSeekR1ReasoningParser.extract_reasoning_streaming" in found
