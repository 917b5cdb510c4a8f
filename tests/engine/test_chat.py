"""Tests of `LLM.chat`: conversations, templates and tools."""

import json
import shutil

import pytest

from tests.engine.watch import token_ids
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import InvalidRequestError

GREEDY = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(qwen2_checkpoint) -> LLM:
    """Shared LLM; each test leaves it unchanged."""
    return LLM(str(qwen2_checkpoint), dtype="float32")


def test_chat_fills_in_the_template(llm):
    """The prompt of each conversation is the filled-in template, tokenized without further special tokens."""
    conversation = [{"role": "user", "content": "Hello"}]
    in_parts = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    outputs = llm.chat([conversation, in_parts], GREEDY)
    text = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert [output.prompt for output in outputs] == [text, text]
    assert outputs[0].prompt_token_ids == llm.get_tokenizer().encode(text, add_special_tokens=False)
    assert token_ids(llm.chat(conversation, GREEDY)) == token_ids(outputs[:1]) == token_ids(outputs[1:])


def test_chat_options(llm):
    """Options omit the answer's opening, continue the last message, or replace the template."""
    conversation = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Wel"}]
    prompt = llm.chat(conversation, GREEDY, add_generation_prompt=False)[0].prompt
    assert prompt is not None
    assert prompt.endswith("Wel<|im_end|>\n")
    prompt = llm.chat(conversation, GREEDY, add_generation_prompt=False, continue_final_message=True)[0].prompt
    assert prompt is not None
    assert prompt.endswith("assistant\nWel")
    template = "{% for m in messages %}{{ m.content }}{{ mark }}{% endfor %}"
    output = llm.chat(conversation, GREEDY, chat_template=template, chat_template_kwargs={"mark": "!"})[0]
    assert output.prompt == "Hello!Wel!"
    variables = {"mark": "?", "chat_template": template, "add_generation_prompt": False}  # accepted by vLLM, too
    assert llm.chat(conversation, GREEDY, chat_template_kwargs=variables)[0].prompt == "Hello?Wel?"


TEMPLATE = """{%- for tool in tools or [] %}[{{ tool.function.name }}]{% endfor -%}
{%- for m in messages %}{{ m.role }}:
{%- if m.content is string %}{{ m.content }}
{%- else %}{% for part in m.content %}<{{ part.text }}>{% endfor %}{% endif -%}
{%- for call in m.tool_calls or [] %}{{ call.function.name }}({{ call.function.arguments.city }}){% endfor %};
{%- endfor %}"""


def test_chat_with_tools(llm):
    """Tools go to the template; a message with tool calls needs no content, and their arguments become a dict."""
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    conversation = [
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "No.", "tool_call_id": "1"},
    ]
    output = llm.chat(conversation, GREEDY, chat_template=TEMPLATE, tools=tools)[0]
    assert output.prompt == "[weather]user:<Rain?>;assistant:weather(Paris);tool:<No.>;"
    assert call["function"]["arguments"] == '{"city": "Paris"}'  # type: ignore[index]


def test_forms_of_content(llm):
    """Parts are joined for a template that uses text, and a text is one part for a template that uses parts."""
    conversation = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    for form, expected in (
        ("auto", "system:<Be kind.>;user:<a><b>;"),
        ("string", "system:Be kind.;user:a\nb;"),
        ("openai", "system:<Be kind.>;user:<a><b>;"),
    ):
        output = llm.chat(conversation, GREEDY, chat_template=TEMPLATE, chat_template_content_format=form)[0]
        assert output.prompt == expected
    prompts = llm.preprocess_chat(conversation, chat_template=TEMPLATE)
    assert prompts == [
        {"prompt": output_text, "prompt_token_ids": llm.get_tokenizer().encode(output_text)}
        for output_text in ["system:<Be kind.>;user:<a><b>;"]
    ]


def test_contents_that_vllm_takes(llm):
    """Refusals and thoughts are texts, and a message may have no content, an assistant's also null."""
    conversation = [
        {"role": "user"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}, {"type": "thinking", "thinking": "x"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Why?"}]},
    ]
    output = llm.chat(conversation, GREEDY, chat_template=TEMPLATE, chat_template_content_format="string")[0]
    assert output.prompt == "user:;assistant:;assistant:no\nx;user:Why?;"


def test_fields_that_a_template_gets(llm):
    """A template gets the fields that vLLM gives it, and no empty list of calls: that is absent, like null."""
    conversation = [
        {"role": "user", "content": "a", "name": "Ann", "tool_calls": None, "prefix": True},
        {"role": "assistant", "content": "b", "name": None, "tool_calls": None, "function_call": None},
        {"role": "assistant", "content": "b", "tool_calls": []},
        {"role": "tool", "content": "c", "tool_call_id": "1", "tool_calls": [1]},
    ]
    template = "{% for m in messages %}{{ m | list | sort | join(' ') }};{% endfor %}"
    output = llm.chat(conversation, GREEDY, chat_template=template)[0]
    assert output.prompt == "content name role;content role;content role;content role tool_call_id;"


def test_a_template_of_a_processor(llm, qwen2_checkpoint, tmp_path):
    """Without a template of its own, a tokenizer has that of chat_template.json."""
    shutil.copytree(qwen2_checkpoint, tmp_path, dirs_exist_ok=True)
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "{{ messages[0].content }}?"}))
    output = LLM(str(tmp_path), dtype="float32").chat([{"role": "user", "content": "Hello"}], GREEDY)[0]
    assert output.prompt == "Hello?"


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("Hello", "A conversation is a list of messages"),
        ([], "A conversation is a list of messages"),
        ([[]], "The conversation is empty"),
        ([{"role": "user", "content": None}], r"messages\[0\] needs a `content`"),
        ([{"role": "user", "content": "a"}, {"content": "Hello"}], r"messages\[1\] needs a `role`"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "only text parts are supported"),
    ],
)
def test_chat_refuses_what_is_no_conversation(llm, messages, message):
    """Each mistake is reported with its position."""
    with pytest.raises(InvalidRequestError, match=message):
        llm.chat(messages, GREEDY)


def test_chat_without_a_template_says_so(qwen2_checkpoint, tmp_path):
    """A model without a chat template is refused with advice."""
    folder = shutil.copytree(qwen2_checkpoint, tmp_path / "model")
    for file in folder.glob("chat_template*"):
        file.unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({k: v for k, v in config.items() if k != "chat_template"}))
    with pytest.raises(InvalidRequestError, match="no chat template"):
        LLM(str(folder)).chat([{"role": "user", "content": "Hello"}])


def test_a_template_that_refuses_is_a_refused_request(llm):
    """A template's error message is part of the refusal."""
    with pytest.raises(InvalidRequestError, match="only one question"):
        llm.chat([{"role": "user", "content": "a"}], chat_template="{{ raise_exception('only one question') }}")
