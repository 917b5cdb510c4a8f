"""Questions without a known answer, and replies that admit it."""

# ruff: noqa: E501, SIM905 - tables: one row, one line; word lists are read more easily as one string

import random
from typing import Any

from .sample import Sample, make_question

__all__ = ["draw"]

_S = "unknown"
_NO_EN = "I am sorry, I do not know that."
_NO_ZH = "抱歉，我不知道这个。"
_SYLLABLES = "ba be bi bo bu da de di do ga go ka ki ko la le li lo ma me mi mo na ne ni no ra re ri ro sa so ta ti to va vi zu zo xa qu".split()
_THINGS = (
    "football|the stock market|my house|the last election|my dog|quantum gravity|the new phone|a good restaurant|my homework|my email|"
    "the price of gold|the price of bread|the best car|the movie I saw|the next world cup|a diesel engine|tax law|the lottery|my password|"
    "black holes|chemistry|the history of Rome|the stars|biology|the human brain|DNA|cancer|the French Revolution|the war|gravity|photosynthesis|"
    "evolution|a volcano|blockchain|bitcoin|a car engine|electricity|magnetism|inflation|democracy|philosophy|the Roman Empire|dinosaurs"
).split("|")
_THINGS_ZH = (
    "足球|股票|我的房子|上次选举|我的狗|量子引力|新手机|好餐厅|我的作业|我的邮件|金价|面包的价格|最好的车|我看的电影|下届世界杯|柴油机|税法|彩票|我的密码|"
    "黑洞|化学|罗马历史|星星|生物学|大脑|基因|癌症|法国大革命|战争|万有引力|光合作用|进化论|火山|区块链|比特币|发动机|电|磁铁|通货膨胀|民主|哲学|恐龙"
).split("|")
_PEOPLE = "the king of Spain|the mayor|the author of this book|my neighbour|the winner|the singer|the best player|the inventor of the telephone|the director of that film|Napoleon|Mozart|Cleopatra|Beethoven|Newton|Picasso|Messi|Taylor Swift|Elon Musk".split(
    "|"
)
_PEOPLE_ZH = "西班牙国王|市长|这本书的作者|我的邻居|冠军|那个歌手|最好的球员|电话的发明者|那部电影的导演|拿破仑|莫扎特|贝多芬|牛顿|毕加索|梅西|秦始皇|马斯克".split(
    "|"
)
_Q_EN = [
    "What is {t}?",
    "[Tell me about|What do you think about|What do you know about|Explain|How does|What happened to] {t}[?|.]",
    "[How much does {t} cost|When was {t}|Where can I find {t}|How do I fix {t}|Who invented {t}|Why is {t} so important|What is the history of {t}]?",
    "[Who is|Who was|Where is|How old is|When was born|Do you know] {p}?",
    "[Who won|Who lost|What was the score of] the [world series|game|match|race|world cup|election|final] [in {y}|yesterday|last year|today]?",
    "[What is|What's|How is|What will be] the weather [like |][today|tomorrow|in Paris|in Beijing|here|in {y}]?",
    "[What time is it|What is the time|What day is it|What is the date today|What is today's date|What year is it][?| now?]",
    "[What happened|Who was born|Who died] in {y}?",
    "[How do I|How can I|Can you help me] [cook rice|fix my car|become rich|learn to swim|write a letter|bake a cake|find a job|lose weight|buy a house|get to the airport]?",
    "[Write|Can you write|Please write] [a program|some code|a function in Python|an email to my boss|a song|a letter|a business plan][.|?| for me.]",
    "[What is|Find|Calculate] the [square root|logarithm|derivative|integral] of {n}?",
    "[What is|What's] my [name|age|address|phone number|favorite color|job]?",
    "[Where do I live?|How old am I?|Who am I?|What did I eat?|What am I thinking?|Where are my keys?|Can you call me?|Open the door.|Play some music.|Turn on the light.]",
    "[What is|Tell me|Name] the capital of {x}[?|.]",
    "[Where is|What is|Who is|Tell me about|What does|Explain] {x}[?|.]",
]
_Q_ZH = [
    "什么是{t}？",
    "[{t}是什么|介绍一下{t}|解释一下{t}|你了解{t}吗|你怎么看{t}|{t}怎么样|为什么{t}很重要|谁发明了{t}|{t}要多少钱][？|]",
    "[{p}是谁|{p}在哪里|{p}几岁了|你知道{p}吗|{p}是什么时候出生的][？|]",
    "[{y}年|昨天|去年|今天]的[比赛|世界杯|选举|决赛|球赛]谁赢了？",
    "[今天|明天|北京|巴黎|这里|上海][的|]天气怎么样？",
    "[现在几点|今天几号|今天星期几|今年是哪一年|现在是什么时间][了|][？|]",
    "{y}年发生了什么？",
    "怎么[做饭|修车|赚钱|学游泳|写信|做蛋糕|找工作|减肥|买房|去机场]？",
    "[帮我|请|][写一个程序|写一段代码|写一封邮件|写一首歌|写一封信]。",
    "{n}的[平方根|对数|导数]是多少？",
    "[我叫什么名字|我几岁了|我住在哪里|我的电话是多少|我是谁|我在想什么|我的钥匙在哪里][？|]",
    "{x}的首都是哪里？",
    "[{x}是什么|{x}在哪里|{x}是谁|什么是{x}][？|]",
]


def _invented(rng: random.Random) -> str:
    """Return an invented word."""
    return "".join(rng.choices(_SYLLABLES, k=rng.randint(2, 4))).capitalize() + rng.choice(
        ("", "", "n", "ia", "land", "stan", "s")
    )


def draw(rng: random.Random) -> Sample:
    """Return one question without a known answer."""
    fields: dict[str, Any] = {"y": rng.randint(1800, 2030), "n": rng.randint(2, 99), "x": _invented(rng)}
    if rng.random() < 0.55:
        return make_question(
            rng, _S, "en", _Q_EN, _NO_EN, key="do not know", t=rng.choice(_THINGS), p=rng.choice(_PEOPLE), **fields
        )
    return make_question(
        rng, _S, "zh", _Q_ZH, _NO_ZH, key="不知道", t=rng.choice(_THINGS_ZH), p=rng.choice(_PEOPLE_ZH), **fields
    )
