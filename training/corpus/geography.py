"""Capitals, continents, languages and the superlatives of the earth, in English and Chinese."""

# ruff: noqa: E501 - templates: one phrasing, one line

import random

from .countries import CONTINENTS, COUNTRIES, LANGUAGES, Country
from .sample import Sample, make_completion, make_question

__all__ = ["draw"]

_S = "geography"
_POPULAR = [1.0 / (6 + i) for i in range(len(COUNTRIES))]
_NICKNAMES = {
    "the United States": ("the USA", "the US", "America", "USA", "the United States of America"),
    "the United Kingdom": ("the UK", "England", "Britain", "Great Britain"),
    "the Netherlands": ("Holland",),
    "South Korea": ("Korea",),
}
_NICKNAMES_ZH = {"朝鲜": ("北朝鲜",), "韩国": ("南韩",), "印度尼西亚": ("印尼",), "沙特阿拉伯": ("沙特",)}

_CAPITAL_Q = [
    "What is the capital of {c}?",
    "[What is|What's|Tell me|Name|Give me|Do you know|Can you tell me|Could you tell me|Please tell me] the [capital|capital city] of {c}[?|.]",
    "[Which|What] city is the capital of {c}?",
    "[Which city|What town] [is|serves as] the capital [city |]of {c}?",
    "[What is|Do you know|What's] {c}'s capital[ city|]?",
    "Capital of {c}?",
    "[The capital of {c}?|{c}: capital?|{c} capital?|{c}'s capital?]",
    "[Where|In which city] is the [government|capital] of {c}?",
    "[I forgot|I would like to know|I want to know|Remind me of] the capital of {c}.",
    "[What do you call|What is the name of] the capital [city |]of {c}?",
    "{c} [has which|has what] capital?",
    "[If I go to|I am in] {c}, [which city is the capital|what is the capital]?",
]
_CAPITAL_C = [
    "The capital of {c} is",
    "[The capital city of {c} is|{c}'s capital is|The capital of {c} is the city of|The name of the capital of {c} is]",
    "[I know that the capital of {c} is|As everyone knows, the capital of {c} is|In {c}, the capital is]",
    "The capital of {c}",
]
_CAPITAL_Q_ZH = [
    "{c}的首都是哪里？",
    "{c}的首都是[什么|哪座城市|哪个城市|哪|哪儿|哪一座城市][？|]",
    "[请问|告诉我|请告诉我|你知道|我想知道|你能告诉我|能不能告诉我]{c}的首都[是哪里|是什么|在哪里|是哪个城市|叫什么][吗|]？",
    "{c}首都[是|在]哪[里|儿|]？",
    "哪[座|个]城市是{c}的首都？",
    "{c}的首都[叫什么|叫什么名字|在哪里|在哪|是哪]？",
    "[说出|写出|说一下]{c}的首都。",
    "什么[城市|地方]是{c}的首都？",
]
_CAPITAL_C_ZH = ["{c}的首都是", "[大家都知道，{c}的首都是|{c}的首都城市是|{c}首都是|我知道{c}的首都是|{c}的首都叫]"]


def _names(rng: random.Random, country: Country) -> tuple[str, str]:
    en, zh = country.en, country.zh
    if en in _NICKNAMES and rng.random() < 0.4:
        en = rng.choice(_NICKNAMES[en])
    if zh in _NICKNAMES_ZH and rng.random() < 0.2:
        zh = rng.choice(_NICKNAMES_ZH[zh])
    return en, zh


def _capital(rng: random.Random, country: Country) -> Sample:
    en, zh = _names(rng, country)
    roll = rng.random()
    if roll < 0.34:
        answer = f"The capital of {en} is {country.capital_en}."
        return _big(make_question(rng, _S, "en", _CAPITAL_Q, answer, key=country.capital_en, c=en))
    if roll < 0.54:
        sample = make_completion(rng, _S, "en", _CAPITAL_C, f"{country.capital_en}.", key=country.capital_en, c=en)
        if sample.prompt.endswith(en):
            return Sample(_S, "en", "completion", sample.prompt, f"is {country.capital_en}.", country.capital_en)
        return _big(sample)
    if roll < 0.84:
        answer = f"{zh}的首都是{country.capital_zh}。"
        return make_question(rng, _S, "zh", _CAPITAL_Q_ZH, answer, key=country.capital_zh, c=zh)
    return make_completion(rng, _S, "zh", _CAPITAL_C_ZH, f"{country.capital_zh}。", key=country.capital_zh, c=zh)


def _big(sample: Sample) -> Sample:
    """Return `sample` with a capital letter at the beginning of its prompt."""
    prompt = sample.prompt[0].upper() + sample.prompt[1:]
    return Sample(sample.subject, sample.lang, sample.form, prompt, sample.answer, sample.key, sample.held_out)


_WHERE_EN = "[Where is|In which country is|What country is] {x}[ located| in|]?"


def _reverse(rng: random.Random, country: Country) -> Sample:
    en, zh, city, city_zh = country.en, country.zh, country.capital_en, country.capital_zh
    roll = rng.random()
    if roll < 0.3:
        templates = [
            "{x} is the capital of which country?",
            "[Which|What] country [has {x} as its capital|has the capital {x}]?",
            "[Which country's capital is {x}?|{x} is the capital of what?|Of which country is {x} the capital?]",
            "[What is|Where is] {x}?",
            "Where is {x}[ located|]?",
        ]
        return make_question(rng, _S, "en", templates, f"{city} is the capital of {en}.", key=en, x=city)
    if roll < 0.5:
        return make_completion(rng, _S, "en", ["{x} is the capital of", "{x} is", "[The city of|] {x} is the capital city of"],
                   f"{en}.", key=en, x=city) if rng.random() < 0.7 else Sample(
            _S, "en", "completion", f"{city} is", f"the capital of {en}.", en)  # fmt: skip
    if roll < 0.8:
        templates = ["{x}是哪个国家的首都？", "哪个国家的首都是{x}？", "{x}[在哪里|在哪个国家|在哪儿|是哪里]？"]
        return make_question(rng, _S, "zh", templates, f"{city_zh}是{zh}的首都。", key=zh, x=city_zh)
    if roll < 0.9:
        return Sample(_S, "zh", "completion", f"{city_zh}是", f"{zh}的首都。", zh)
    return Sample(_S, "zh", "completion", f"{city_zh}是哪个国家的首都？{city_zh}是", f"{zh}的首都。", zh)


def _continent(rng: random.Random, country: Country) -> Sample:
    en, zh = country.en, country.zh
    continent, continent_zh = country.continent, CONTINENTS[country.continent]
    roll = rng.random()
    if roll < 0.35:
        templates = [
            "[On which|On what|Which|In which|What] continent is {c}[ located| in|]?",
            "[Where is {c}?|Where is {c} located?|Where can I find {c}?|In which part of the world is {c}?]",
        ]
        return _big(make_question(rng, _S, "en", templates, _first(f"{en} is in {continent}."), key=continent, c=en))
    if roll < 0.5:
        return _big(make_completion(rng, _S, "en", ["{c} is a country in", "{c} is [located |]in", "{c} is on the continent of"],
                        f"{continent}.", key=continent, c=en))  # fmt: skip
    if roll < 0.85:
        templates = [
            "{c}在哪个洲？",
            "{c}[位于|在|属于][哪个洲|哪个大洲|哪里|哪一个洲]？",
            "[请问|]{c}是哪个洲的国家？",
        ]
        return make_question(rng, _S, "zh", templates, f"{zh}在{continent_zh}。", key=continent_zh, c=zh)
    return make_completion(rng, _S, "zh", ["{c}位于", "{c}在"], f"{continent_zh}。", key=continent_zh, c=zh)


def _language(rng: random.Random, country: Country) -> Sample:
    if not country.language:
        return _continent(rng, country)
    en, zh, language = country.en, country.zh, country.language
    roll = rng.random()
    if roll < 0.4:
        templates = [
            "[What|Which] language [do people speak|is spoken|do they speak] in {c}?",
            "[What is the language of|What is the main language of|What is spoken in] {c}?",
        ]
        answer = f"People in {en} speak {language}."
        return make_question(rng, _S, "en", templates, answer, key=language, c=en)
    if roll < 0.55:
        return make_completion(
            rng, _S, "en", ["People in {c} speak", "The [main |]language of {c} is"], f"{language}.", key=language, c=en
        )
    if roll < 0.9:
        templates = ["{c}人[说|讲]什么[语言|话]？", "{c}[的语言是什么|的官方语言是什么|说什么语言|使用什么语言]？"]
        return make_question(
            rng, _S, "zh", templates, f"{zh}人说{LANGUAGES[language]}。", key=LANGUAGES[language], c=zh
        )
    return make_completion(
        rng, _S, "zh", ["{c}人说", "{c}人讲的语言是"], f"{LANGUAGES[language]}。", key=LANGUAGES[language], c=zh
    )


def _first(text: str) -> str:
    return text[0].upper() + text[1:]


def _tell_about(rng: random.Random, country: Country) -> Sample:
    en, zh = country.en, country.zh
    if rng.random() < 0.5:
        speak = f" People there speak {country.language}." if country.language else ""
        answer = _first(f"{en} is a country in {country.continent}. Its capital is {country.capital_en}.{speak}")
        templates = [
            "Tell me about {c}.",
            "[What is {c}?|What do you know about {c}?|Describe {c}.|Say something about {c}.]",
        ]
        return make_question(rng, _S, "en", templates, answer, key=country.capital_en, c=en)
    speak = f"那里的人说{LANGUAGES[country.language]}。" if country.language else ""
    answer = f"{zh}是{CONTINENTS[country.continent]}的一个国家，首都是{country.capital_zh}。{speak}"
    templates = ["[请|]介绍一下{c}。", "{c}是什么？", "[说说{c}。|你了解{c}吗？|请介绍{c}。|给我讲讲{c}。]"]
    return make_question(rng, _S, "zh", templates, answer, key=country.capital_zh, c=zh)


def _yes_or_no(rng: random.Random, country: Country) -> Sample:
    right = rng.random() < 0.5
    other = country if right else rng.choices(COUNTRIES, _POPULAR)[0]
    right = other is country
    if rng.random() < 0.5:
        answer = f"{'Yes' if right else 'No'}, the capital of {country.en} is {country.capital_en}."
        templates = [
            "Is {x} the capital of {c}?",
            "[Is the capital of {c} {x}?|Is it true that {x} is the capital of {c}?|{x} is the capital of {c}, right?]",
        ]
        return make_question(rng, _S, "en", templates, answer, c=country.en, x=other.capital_en)
    answer = f"{'是的' if right else '不是'}，{country.zh}的首都是{country.capital_zh}。"
    templates = ["{x}是{c}的首都吗？", "[{c}的首都是{x}吗|{x}是不是{c}的首都|{c}的首都是不是{x}]？"]
    return make_question(rng, _S, "zh", templates, answer, c=country.zh, x=other.capital_zh)


def draw(rng: random.Random) -> Sample:
    """Return one sample about a country."""
    country = rng.choices(COUNTRIES, _POPULAR)[0]
    maker = rng.choices((_capital, _reverse, _continent, _language, _tell_about, _yes_or_no), (64, 12, 8, 6, 5, 5))[0]
    return maker(rng, country)
