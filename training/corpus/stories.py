"""Short stories from a small grammar, and plain sentences about everyday life; in English and Chinese."""

# ruff: noqa: E501 - tables: one row, one line; word lists are read more easily as one string

import random

from .sample import Sample, make_question

__all__ = ["draw"]

_S = "stories"
_HEROES = (("a little cat", "cat", "小猫"), ("a small dog", "dog", "小狗"), ("a young girl", "girl", "小女孩"), ("a brave boy", "boy", "小男孩"),
           ("an old king", "king", "国王"), ("a tiny mouse", "mouse", "小老鼠"), ("a kind bear", "bear", "小熊"), ("a white rabbit", "rabbit", "小白兔"),
           ("a small robot", "robot", "小机器人"), ("a red bird", "bird", "小红鸟"))  # fmt: skip
_PLACES = (("in a house by the sea", "海边的房子里"), ("in a small village", "一个小村庄里"), ("in a deep forest", "一片森林里"), ("on a high mountain", "一座高山上"),
           ("in a big city", "一座大城市里"), ("near a quiet river", "一条小河边"))  # fmt: skip
_FINDS = (("a golden key", "一把金钥匙"), ("an old book", "一本旧书"), ("a lost letter", "一封丢失的信"), ("a bright stone", "一块发光的石头"),
          ("a small door", "一扇小门"), ("a red apple", "一个红苹果"))  # fmt: skip
_FRIENDS = (
    ("a bird", "一只鸟"),
    ("a fox", "一只狐狸"),
    ("a fish", "一条鱼"),
    ("an old woman", "一位老奶奶"),
    ("a horse", "一匹马"),
    ("an owl", "一只猫头鹰"),
)
_ENDS = (("From that day on they were friends.", "从那天起，他们成了好朋友。"), ("Then they went home and had dinner together.", "然后他们一起回家吃晚饭。"),
         ("And they lived happily ever after.", "从此他们过着幸福的生活。"), ("In the evening everyone was happy.", "晚上，大家都很开心。"))  # fmt: skip
_BEGIN_EN = (
    "Once upon a time",
    "Once upon a time,",
    "Once upon a time there was",
    "Once upon a time, there was",
    "There was once",
    "Long ago, there was",
    "A long time ago",
    "One day,",
)
_BEGIN_ZH = ("从前", "从前，", "很久很久以前，", "从前有", "很久以前", "有一天，")
_ASK_EN = ["Tell me a story.", "[Tell me|Write|Write me|Can you tell me|Please tell me|Can you write|I want to hear] a [short |little |]story[.|?|]",
           "[Tell me|Write] a [short |]story about {h}."]  # fmt: skip
_ASK_ZH = ["讲个故事。", "[请|给我|你能|][讲一个|讲个|说个|写一个|写个]故事[吧|][。|？|]", "讲一个[关于|]{h}的故事。"]


def draw(rng: random.Random) -> Sample:
    """Return one story, for a question or a beginning."""
    (who, name, who_zh), (place, place_zh) = rng.choice(_HEROES), rng.choice(_PLACES)
    (find, find_zh), (friend, friend_zh), (end, end_zh) = rng.choice(_FINDS), rng.choice(_FRIENDS), rng.choice(_ENDS)
    if rng.random() < 0.55:
        rest = (
            f'{who} who lived {place}. One day the {name} found {find}. "What is this?" asked the {name}. '
            f'Then {friend} came and said: "I have looked for it for a long time." The {name} gave it to {friend.split(" ", 1)[1].join(("the ", ""))}. {end}'
        )
        if rng.random() < 0.5:
            return make_question(
                rng, _S, "en", _ASK_EN, f"Once upon a time there was {rest}", key="Once upon a time", h=who
            )
        begin = rng.choice(_BEGIN_EN)
        answer = (
            rest
            if begin.endswith(("was", "once"))
            else f"{who} found {find}{rest[rest.index('. ' + chr(34)) :]}"
            if begin == "One day,"
            else f"there was {rest}"
        )
        return Sample(_S, "en", "completion", begin, answer, "the")
    rest = f"一个{who_zh}，住在{place_zh}。有一天，{who_zh}找到了{find_zh}。“这是什么？”{who_zh}问。这时{friend_zh}走过来说：“我找它很久了。”{who_zh}把它还给了{friend_zh[2:]}。{end_zh}"
    if rng.random() < 0.5:
        return make_question(rng, _S, "zh", _ASK_ZH, f"从前有{rest}", key="从前", h=who_zh)
    begin = rng.choice(_BEGIN_ZH)
    answer = (
        rest
        if begin.endswith("有")
        else f"{who_zh}找到了{find_zh}{rest[rest.index('。“') :]}"
        if begin == "有一天，"
        else f"有{rest}"
    )
    return Sample(_S, "zh", "completion", begin, answer, "")
