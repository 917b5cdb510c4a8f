"""A person's name and age, taken from a text: what instructor and output types of agents ask for."""

from training.corpus.sample import Lang

from .draw import Draw
from .exchange import Call, Exchange
from .schemas import Tool

__all__ = ["ask", "offer"]

_NAMES = (
    "Person",
    "User",
    "UserInfo",
    "UserDetail",
    "final_result",
    "extract_person",
    "save_person",
    "add_user",
    "Contact",
    "Response",
    "Customer",
    "create_user",
)
_EN = (
    "{n} is {a} years old.",
    "[Extract|Save|Store|Find|Read|Note]: {n} is {a}[ years old|].",
    "[My|The user's|The] name is {n} and [I am|the age is] {a}[ years old|].",
    "[I am|I'm|This is] {n}, {a}[ years old|].",
    "[Extract|Get|Find|Take] the [person|user|name and age] from[ this text|]: {n} is {a}[ years old|].",
    "{n}[, a|, aged|, age|:|,] {a}[ years old|][.|]",
    "[My friend|My neighbour|Our customer|The teacher] {n} [is|turned|has turned] {a}[ years old| today| last week|].",
)
_ZH = (
    "{n}今年{a}岁。",
    "[提取|保存|记录|读取|记下][：|:| ]{n}[今年|，|]{a}岁[。|]",
    "我叫{n}，[今年|我|]{a}岁[。|]",
    "{n}[，|是|现在|已经|刚满]{a}岁[了|][。|]",
    "[从这段话|请|帮我][提取|找出][姓名和年龄|人物信息][：|:]{n}[今年|，]{a}岁[。|]",
    "[我的朋友|邻居|老师|客户]{n}[今年|]{a}岁[。|了]",
)


def offer(draw: Draw) -> Tool:
    """Return a tool that takes a name and an age."""
    rng = draw.rng
    name = rng.choice(_NAMES)
    descriptions = (
        f"Correctly extracted `{name}` with all the required parameters with correct types",
        "A person.",
        "The final response which ends this conversation",
        "Save a person.",
        "保存一个人",
        "",
    )
    keys = rng.choice((("name", "age"), ("name", "age"), ("age", "name"), ("full_name", "age"), ("name", "years")))
    types = {key: {"type": "integer" if key in ("age", "years") else "string"} for key in keys}
    roles = {("age" if key in ("age", "years") else "name"): key for key in keys}
    return Tool(name, types, rng.choice(descriptions), (), roles)


def ask(draw: Draw, tool: Tool, lang: Lang) -> Exchange:
    """Return a text with a name and an age."""
    name, age = draw.person(lang), draw.rng.randint(1, 99)
    phrase = draw.phrase(_EN if lang == "en" else _ZH, n=name, a=age)
    values = {tool.roles["name"]: name, tool.roles["age"]: age}
    call = Call(
        tool.name,
        {key: values[key] for key in tool.arguments},
        draw.rng.choice(("ok", "saved", "Done.", '{"status": "ok"}')),
    )
    return Exchange(
        "person", lang, phrase, (call,), f"{name} is {age} years old." if lang == "en" else f"{name}今年{age}岁。"
    )
