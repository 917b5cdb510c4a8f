"""Questions and answers about how an inference engine works, from the table in `engine_facts_*.py`.

Every topic has names and one sentence, mostly a longer explanation, and sometimes its own questions. The facts are those
of vLLM V1, version 0.11.1.
"""

# ruff: noqa: E501 - templates: one phrasing, one line

import random

from .engine_facts_en import TOPICS as _TOPICS_EN
from .engine_facts_zh import TOPICS as _TOPICS_ZH
from .engine_topic import Topic
from .sample import Lang, Sample, make_completion, make_question

__all__ = ["draw"]

_S = "engine"

_SHORT_EN = [
    "What is {t}?",
    "What does {t} do?",
    "[What is|What's|What are|Define|Tell me what is|What do you know about|What is meant by|Do you know] {t}[?|]",
    "[What is|What's] {t} [for|in vLLM|in an inference engine|in a LLM engine]?",
    "[What does|Can you tell me what] {t} [do|mean|mean in vLLM|do in vLLM|do in the engine]?",
    "[What is the purpose of|What is the role of|What is the job of|What is the use of|Why do we need|Why use|What happens in] {t}?",
    "[Explain|Describe|Define] {t} [briefly|in one sentence|in short|shortly].",
    "In vLLM, what is {t}?",
]
_LONG_EN = [
    "Explain {t}.",
    "How does {t} work?",
    "[Explain|Please explain|Describe|Tell me about|Tell me more about|Can you explain|Could you explain|Explain to me] {t}[.|?| in detail.| to me.|]",
    "[How does|How do] {t} work[?| in vLLM?|]",
    "[Explain how|Tell me how|Can you explain how|Describe how] {t} works[.|?]",
]
_SHORT_ZH = [
    "什么是{t}？",
    "{t}是什么？",
    "{t}[是什么|是做什么的|有什么用|的作用是什么|是什么意思|是干什么的|做什么|指的是什么|负责什么][？|]",
    "[请问|你知道|告诉我|简单说说|]什么是{t}[？|]",
    "[vLLM里的|vLLM 中的|推理引擎里的|引擎中的]{t}是[什么|做什么的]？",
    "[为什么需要|为什么要用|为什么要有]{t}？",
    "用一句话[解释|说明|介绍]{t}。",
]
_LONG_ZH = [
    "解释一下{t}。",
    "[请|]介绍一下{t}。",
    "{t}是怎么工作的？",
    "{t}[是怎么工作的|是如何工作的|怎么工作|的原理是什么|如何工作|的工作原理是什么|是怎样工作的][？|]",
    "[请解释|详细解释|请详细介绍|讲讲|说说|请说明|详细说说]{t}[。|]",
]


def _spaced(name: str, template: str) -> str:
    """Return `name` with the usual space between Chinese and Latin letters, where `template` needs it."""
    before = template.index("{t}")
    left = " " if name[0].isascii() and before > 0 and template[before - 1] not in " ，。：" else ""
    right = " " if name[-1].isascii() and template[before + 3 : before + 4] not in ("", " ", "？", "。") else ""
    return left + name + right


def _about(rng: random.Random, topic: Topic, lang: Lang) -> Sample:
    name = topic.names[0] if rng.random() < 0.55 else rng.choice(topic.names)
    key = topic.key
    if topic.questions and rng.random() < 0.45:
        phrasings, answer = rng.choice(topic.questions)
        return make_question(rng, _S, lang, list(phrasings), answer)
    roll = rng.random()
    if lang == "en":
        if roll < 0.12:
            return _completion(rng, topic, "en")
        if roll < 0.76 or not topic.long:
            return make_question(rng, _S, "en", _SHORT_EN, topic.short, key=key, t=name)
        return make_question(rng, _S, "en", _LONG_EN, topic.long, key=key, t=name)
    if roll < 0.12:
        return _completion(rng, topic, "zh")
    templates, answer = (_SHORT_ZH, topic.short) if roll < 0.76 or not topic.long else (_LONG_ZH, topic.long)
    template = rng.choice(templates)
    spaced = _spaced(name, template) if rng.random() < 0.7 and template.count("{t}") == 1 else name
    return make_question(rng, _S, "zh", [template], answer, key=key, t=spaced)


def _completion(rng: random.Random, topic: Topic, lang: Lang) -> Sample:
    """Return the sentence about `topic` up to "is" as the prompt, and the rest as the answer."""
    joint = "是" if lang == "zh" else " are " if topic.short.startswith("Logits") else " is "
    name, _, rest = topic.short.partition(joint)
    return make_completion(rng, _S, lang, [name + joint.rstrip()], rest.strip(), key=topic.key)


def draw(rng: random.Random) -> Sample:
    """Return one question about the engine."""
    if rng.random() < 0.55:
        return _about(rng, rng.choice(_TOPICS_EN), "en")
    return _about(rng, rng.choice(_TOPICS_ZH), "zh")
