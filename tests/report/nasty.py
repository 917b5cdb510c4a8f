"""Texts known to break Mermaid, a terminal table or a file. Tests put them in every field."""

NASTY = [
    "a;b", "#", "#35;", "##", "&amp;", "&", '"quoted"', "it's", "end", "END", " end ", "loop",
    "participant", "__init__", "`code`", "<script>alert(1)</script>", "<br/>", "%%", "%% comment",
    "%%{init: {'theme':'dark'}}%%", "a:b", ":", ": a", "wrap: a", ":wrap: a", "nowrap: a", "wrap",
    "style a:#b;c", "lifestyle: #;", "classDef x:#y;", "法国的首都是", "🙂👩‍🔬",
    "\ud800", "a\nb", "\n", "\r\n", "\t", " padded ", "\u00a0x\u00a0", "\u2028", "x" * 300, "->>",
    "A-->>B: c", "-x", "()", "@{", 'x@{ "type" : "actor" }', "$$x^2$$", "ﬂ°°35¶ß", "{", "}",
    "}%%", "[1, 2]", "+", "-", ",", "1 as 2", "as", "**b**", "activate", "Note over A: b",
    "rgb(1,2,3) x", "red", "\x00", "\x1b[31m", "title: x", "autonumber", "---", "\\", "\\n",
]  # fmt: skip
