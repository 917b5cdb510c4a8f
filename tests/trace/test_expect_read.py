"""Expectations read from diagrams and tables, handwritten or generated."""

from pathlib import Path

import pytest

from tracellm.trace.expect import Arrow, ExpectError, read
from tracellm.trace.expect.read import call_names, plain_names, unescape


def arrows(tmp_path: Path, text: str, name: str = "expected.mmd") -> list[Arrow]:
    """Return the arrows of a file with this text."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read(str(tmp_path / name)).arrows


def diagram(*lines: str) -> str:
    """Return a Mermaid diagram of these lines."""
    return "\n".join(["sequenceDiagram", *(f"    {line}" for line in lines)])


def short(found: list[Arrow]) -> list[str]:
    """Return each arrow on one line: `A|B→C.name`."""
    return [f"{'|'.join(sorted(a.source))}→{'|'.join(sorted(a.target))}.{a.names[0]}" for a in found]


def test_calls_of_a_diagram(tmp_path: Path):
    """Solid arrows are calls, in order and with their lines; other elements are none."""
    found = arrows(
        tmp_path,
        diagram(
            "autonumber",
            "%% a comment A->>B: no",
            "# 注释",
            "box transparent main",
            "participant A",
            "end",
            "actor B as The<br/>Other",
            "Note over A,B: A->>B: not this",
            "A->>+B: f(x=1, y='->>')",
            "loop every step",
            "B->>B: Base.g #加载模型",
            "B-->>-A: f",
            "end",
            "alt one",
            "A -) B : h",
            "else other",
            "A->>B: i; A->>B: j",
            "end",
            "B->>-A: return",
            "A--xB: Error",
            "deactivate B",
        ),
    )
    assert [(arrow.line, arrow.names[0]) for arrow in found] == [(10, "f"), (12, "g"), (16, "h"), (18, "i"), (18, "j")]
    assert short(found)[0] == "A→B|Other|The.f"
    assert found[1].owner == "Base"
    assert found[1].text == "B->>B: Base.g"


def test_notes_over_lifelines_begin_phases(tmp_path: Path):
    """A note over lifelines begins a phase, in English and in Chinese."""
    for startup, generate in (("启动流程", "生成阶段 #分割线"), ("Start-up", "Generation")):
        found = arrows(
            tmp_path, diagram(f"Note over A,B: {startup}", "A->>B: f", f"Note over A,B: {generate}", "A->>B: g")
        )
        assert [arrow.phase for arrow in found] == ["startup", "generate"]


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("Worker(gpu_worker)", {"Worker", "Worker(gpu_worker)"}),
        ("XXXMultiModalProcessor<br/>Base", {"XXXMultiModalProcessor", "Base"}),
        ("api_server.py", {"api_server"}),
        ("P #35;1;", {"P #1;"}),
    ],
)
def test_names_of_a_lifeline(label: str, expected: set[str]):
    """A lifeline's label may have remarks in brackets, alternatives and files."""
    assert plain_names(label) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run_server", (("run_server",), "", "")),
        ("MPClient.__init__", (("__init__",), "MPClient", "")),
        ("self.waiting.append(seq_group)", (("append",), "", "waiting")),
        ("waiting.add_request", (("add_request",), "", "waiting")),
        ("self.step()", (("step",), "", "")),
        ("allocate_slots(request='0') ×3", (("allocate_slots",), "", "")),
        ("1. f()", (("f",), "", "")),
        ("load data(x)", (("load", "load data"), "", "")),
        ("a_very_long_na…(x)", (("a_very_long_na…",), "", "")),
        ("GET /health → 200 ×2", (("GET", "GET /health"), "", "")),
        ("ADD, 312 bytes", (("ADD", "ADD, 312 bytes"), "", "")),
        ("return", ((), "", "")),
        ("", ((), "", "")),
    ],
)
def test_names_of_a_call(text: str, expected: tuple[tuple[str, ...], str, str]):
    """A call's text has its names, its defining class and its object."""
    assert call_names(text) == expected


def test_entities():
    """Mermaid entities are decoded, and other text is unchanged."""
    assert unescape("#59;#35;#quot; #nope; #99999999;") == ';#" #nope; #99999999;'


PAGE_MD = """\
# A page
```python
sequenceDiagram  # not a diagram
```
```mermaid
flowchart LR
    A->>B: no
```
```mermaid
---
title: x
---
%% first
sequenceDiagram
    A->>B: f
```
~~~ {mermaid}
sequenceDiagram
    A->>B: g
~~~
"""

PAGE_RST = """\
Title
=====

.. mermaid::

    sequenceDiagram
        A->>B: f

.. mermaid::
    :caption: second

    sequenceDiagram
        A->>B: g
text A->>B: h
"""


@pytest.mark.parametrize("page", [PAGE_MD, PAGE_RST])
def test_diagrams_of_a_page(tmp_path: Path, page: str):
    """The first sequence diagram is used, or the one after `#`; `of` has the number of diagrams."""
    file = tmp_path / "page"
    file.write_text(page)
    first, second = read(str(file)), read(f"{file}#2")
    assert (short(first.arrows), first.number, first.of) == (["A→B.f"], 1, 2)
    assert (short(second.arrows), second.number, second.of) == (["A→B.g"], 2, 1)
    assert page.splitlines()[second.arrows[0].line - 1].strip() == "A->>B: g"


def test_a_table(tmp_path: Path):
    """Three columns are enough, in any order, and rows with conditions have them."""
    found = arrows(tmp_path, "to\tcall\tfrom\tneeds\tphase\nB\tBase.f\tA\ttext\tstartup\n\n#\nB\tg\tA\tmm\t\n", "a.tsv")
    assert short(found) == ["A→B.f", "A→B.g"]
    assert [(arrow.line, arrow.owner, arrow.needs, arrow.phase) for arrow in found] == [
        (2, "Base", "", "startup"),
        (5, "", "mm", ""),
    ]


def test_of_several_columns_of_calls_the_last_counts(tmp_path: Path):
    """If a table has several columns of calls, the last is used."""
    assert short(arrows(tmp_path, "from\tto\tcall_in_document\tcall_in_vllm\nA\tB\tslip\tf\n")) == ["A→B.f"]
    assert short(arrows(tmp_path, "from\tto\tcall\tcall_in_vllm\nA\tB\tf\tg\n")) == ["A→B.f"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"hello\n", "no_diagram"),
        (b"\xff\xfe\x00", "no_text"),
        (b"```mermaid\nflowchart LR\n```\n", "no_diagram"),
        (b"sequenceDiagram\n", "no_calls"),
        (b"sequenceDiagram\n A-->>B: f\n", "no_calls"),
        (b"from\tto\tcall\n", "no_calls"),
        (b"from\tto\n", "columns"),
        (b"A\tB\tf\n", "columns"),
        (b"from\tto\tcall\nA\tB\n", "row"),
        (b"from\tto\tcall\nA\t\tf\n", "row_empty"),
        (b"from\tto\tcall\nA\tB\treturn\n", "row_empty"),
    ],
)
def test_files_in_which_nothing_is_expected(tmp_path: Path, text: bytes, code: str):
    """Each file without expectations has its own reason, with the file's name."""
    (tmp_path / "x").write_bytes(text)
    with pytest.raises(ExpectError) as caught:
        read(str(tmp_path / "x"))
    assert (caught.value.code, caught.value.values["path"]) == (code, str(tmp_path / "x"))


def test_files_that_are_none(tmp_path: Path):
    """A missing file, a folder and a missing diagram are refused; a file name may contain #."""
    (tmp_path / "a#2").write_text(diagram("A->>B: f"))
    assert short(read(str(tmp_path / "a#2")).arrows) == ["A→B.f"]
    for name, code in {"none": "missing", "none#1": "missing", "": "unreadable", "a#2#2": "no_such_diagram"}.items():
        with pytest.raises(ExpectError) as caught:
            read(str(tmp_path / name))
        assert caught.value.code == code
