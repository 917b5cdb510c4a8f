"""The weather in a city."""

# ruff: noqa: E501 - templates: one phrasing, one line

from typing import Any

from training.corpus.sample import Lang

from .draw import Draw
from .exchange import Call, Exchange, as_json
from .schemas import Tool

__all__ = ["ask", "ask_again", "offer"]

_NAMES = (
    "get_weather", "get_weather", "get_current_weather", "weather", "current_weather", "getWeather", "get_weather_info", "check_weather",
    "weather_forecast", "fetch_weather", "Weather", "GetWeather", "lookup_weather", "query_weather", "weather_tool", "get_forecast",
)  # fmt: skip
_PLACES = ("city", "city", "location", "location", "place", "city_name", "town", "where", "loc", "name")
_DESCRIPTIONS = (
    "Get the current weather in a city.", "Get the weather in a city.", "Get the weather in a location", "Get weather for a given city.",
    "Return the weather of a city.", "Get current weather for a location.", "The weather in a city.", "Get the weather for a city",
    "Look up the current weather.", "Returns the temperature and the sky.", "Weather of a place", "Use this to get weather information.",
    "获取城市的天气", "查询天气", "查询指定城市的当前天气。", "返回某个地方的天气", "", "",
)  # fmt: skip
_UNITS = (("celsius", "fahrenheit"), ("C", "F"), ("metric", "imperial"))

_EN = (
    "What is the weather in {c}?",
    "[What is|What's] the [current |]weather [like |][in|at|for] {c}[ today| now| right now| at the moment| this morning| this evening|]?",
    "[How is|How's] the weather [in|over in|at] {c}[ today| now| right now| at the moment| these days|]?",
    "[Tell me|Give me|Check|Show me|Get|Look up|Find|I need|I want to know|I'd like to know] the [current |]weather [in|for|of] {c}[ please|, please| now| today|][.|!|]",
    "[Is it|Is it really|Will it be|Is it going to be] [sunny|rainy|raining|cold|warm|hot|windy|snowing|cloudy|foggy|nice] in {c}[ today| now| right now| tonight|]?",
    "[Do I need|Should I take|Should I bring|Do I have to take|Is it a good idea to bring] [an umbrella|a coat|a jacket|sunglasses|a hat|boots|a raincoat] in {c}[ today| now|]?",
    "[What is|What's|Tell me|Give me|Check] the temperature in {c}[ today| now| right now|][?|.]",
    "How [warm|cold|hot|windy|nice|wet] is it in {c}[ today| now| right now|]?",
    "{c} weather[ today| now| please|][?|.|]",
    "[Weather|Current weather|The weather|Temperature] [in|for] {c}[ today| now| please|][?|.|]",
    "I am [in|going to|flying to|travelling to|visiting|on my way to] {c}[ today| this week|]. [How is the weather|What is the weather like|What should I wear|Is it cold]?",
    "[Can you|Could you|Would you|Can you please] [tell me|check|find out|look up] [the weather|how the weather is|what the weather is like|how warm it is] in {c}?",
    "[Use|Call] [the tool|a tool|your tools] to [get|find|check] the weather in {c}.",
    "[We want to go|We are going] [for a walk|swimming|hiking|to the park] in {c}. [How is the weather|Will it rain|Is it warm enough]?",
)
_ZH = (
    "{c}的天气怎么样？",
    "{c}[今天|现在|目前|此刻|]天气[怎么样|如何|好吗|好不好][？|]",
    "[今天|现在|目前|]{c}[的|]天气[怎么样|如何|好吗|是什么样的|情况如何][？|]",
    "[查一下|查询|帮我查|看看|告诉我|我想知道|帮我看一下|请查询]{c}[今天|现在|]的天气[。|，谢谢|]",
    "{c}[今天|现在|今晚|明天|][冷不冷|热不热|下雨吗|会下雨吗|有雨吗|下雪吗|晴天吗|风大吗|冷吗|热吗]？",
    "{c}[今天|现在|目前|]的[气温|温度][是多少|是几度|多少度|怎么样]？",
    "{c}[今天|现在|]多少度[？|]",
    "去{c}[要|需要|用][带伞|带雨伞|穿外套|穿大衣|带帽子]吗？",
    "我[在|要去|正要去|打算去|今天去]{c}[，|。][天气怎么样|那里天气如何|那边冷吗|该穿什么]？",
    "[{c}天气|天气 {c}|{c}的天气|{c}气温][？|。|]",
    "[能|可以|能不能]告诉我{c}的天气[吗|][？|]",
    "[用|请用|调用]工具[查|查询|看]一下{c}的天气。",
)
_AGAIN_EN = (
    "And in {c}?",
    "[And|What about|How about|And what about|And how about|And now] [in |]{c}?",
    "[Now|Also|Then] [check |]{c}[, please|].",
)
_AGAIN_ZH = ("那{c}呢？", "[那|那么|还有|][在|]{c}[呢|怎么样]？", "[再|也]查一下{c}。")

_CONDITIONS = {
    "sunny": "晴", "cloudy": "多云", "rainy": "有雨", "clear": "晴朗", "overcast": "阴", "snowy": "有雪", "windy": "大风", "foggy": "有雾",
    "partly cloudy": "局部多云", "light rain": "小雨", "heavy rain": "大雨", "stormy": "暴风雨", "mild": "温和", "hot": "炎热", "cold": "寒冷",
    "thunderstorm": "雷雨", "humid": "潮湿", "drizzle": "毛毛雨", "snow": "雪", "rain": "雨",
}  # fmt: skip


def offer(draw: Draw) -> Tool:
    """Return a tool for the weather."""
    rng = draw.rng
    place = rng.choice(_PLACES)
    arguments: dict[str, Any] = {place: {"type": "string"}}
    optional: tuple[str, ...] = ()
    roll = rng.random()
    if roll < 0.35:
        unit: dict[str, Any] = {"type": "string", "enum": list(rng.choice(_UNITS))}
        if roll < 0.2:
            optional = ("unit",)
        elif roll < 0.26:
            unit = {"anyOf": [unit, {"type": "null"}]}
        arguments["unit"] = unit
    return Tool(rng.choice(_NAMES), arguments, rng.choice(_DESCRIPTIONS), optional, {"place": place})


def _arguments(tool: Tool, place: str, *, second_unit: bool) -> dict[str, Any]:
    arguments: dict[str, Any] = {tool.roles["place"]: place}
    if "unit" in tool.arguments and "unit" not in tool.optional:
        enum = tool.arguments["unit"].get("enum")
        arguments["unit"] = enum[second_unit] if enum else None
    return arguments


def _result(draw: Draw, lang: Lang, place: str) -> tuple[str, str]:
    """Return what a tool returns for `place`, and the answer."""
    rng = draw.rng
    en, zh = rng.choice(list(_CONDITIONS.items()))
    chinese = lang == "zh" and rng.random() < 0.7
    condition = zh if chinese else en.capitalize() if rng.random() < 0.2 else en
    degrees = str(rng.randint(-20, 42)) + (f".{rng.randint(1, 9)}" if rng.random() < 0.15 else "")
    before, after = (f"The weather in {place} is ", ".") if lang == "en" else (f"{place}的天气：", "。")
    roll = rng.random()
    if roll < 0.22:  # a sentence
        if chinese:
            text = rng.choice(
                (
                    f"{place}今天{zh}，{degrees}度。",
                    f"{place}：{zh}。",
                    f"{place}总是{zh}！",
                    f"现在{place}{zh}，气温{degrees}°C。",
                )
            )
        else:
            there = place[0].upper() + place[1:]
            text = rng.choice((
                f"It's always {en} in {place}!", f"It is {en} in {place}.", f"The weather in {place} is {en}.", f"The weather in {place} is {en} and {degrees} degrees.",
                f"It's {degrees} degrees and {en} in {place}.", f"{there}: {en}, {degrees}°C.", f"It's {en}.", f"It's {degrees}°C and {en}.",
            ))  # fmt: skip
        return text, text
    if roll < 0.46:  # a few words
        unit = rng.choice(("°C", " °C", "C", " degrees", "°")) if not chinese else rng.choice(("°C", "度", "℃"))
        comma = "，" if chinese else ", "
        text = rng.choice(
            (
                f"{degrees}{unit}{comma}{condition}",
                f"{condition}{comma}{degrees}{unit}",
                condition,
                f"{degrees}{unit}",
                f"{condition} {degrees}{unit}",
            )
        )
        return text, f"{before}{text}{after}"
    value: dict[str, Any] = {}
    has_degrees, has_condition = rng.choice(((True, True), (True, True), (True, False), (False, True)))
    number = float(degrees) if "." in degrees else int(degrees)
    if has_degrees:
        value[rng.choice(("temperature", "temperature", "temp", "temperature_c", "temp_c", "degrees"))] = number
    if has_condition:
        value[rng.choice(("condition", "conditions", "weather", "description", "sky", "forecast", "summary"))] = (
            condition
        )
    if rng.random() < 0.25:
        value[rng.choice(("humidity", "wind", "wind_kph"))] = rng.randint(1, 99)
    if rng.random() < 0.25:
        value["unit"] = rng.choice(("celsius", "C", "°C"))
    items = list(value.items())
    rng.shuffle(items)
    if rng.random() < 0.45:
        items.insert(0, (rng.choice(("city", "location", "place", "name")), place))
    shown = zh if lang == "zh" else condition
    parts = ([shown] if has_condition else []) + ([f"{degrees} °C"] if has_degrees else [])
    return as_json(rng, dict(items)), before + (", " if lang == "en" else "，").join(parts) + after


def ask(draw: Draw, tool: Tool, lang: Lang) -> Exchange:
    """Return a request for the weather in a city."""
    place = draw.place(lang)
    phrase = draw.phrase(_EN if lang == "en" else _ZH, c=place)
    second_unit = False
    unit = tool.arguments.get("unit", {})
    if "unit" not in tool.optional and "enum" in unit and draw.rng.random() < 0.35:
        second_unit = draw.rng.random() < 0.6
        metric, imperial = (("in Celsius", "in Fahrenheit"), ("用摄氏度", "用华氏度"))[lang == "zh"]
        wish = imperial if second_unit else metric
        phrase = f"{phrase} {wish[0].upper()}{wish[1:]}, please." if lang == "en" else f"{phrase}{wish}。"
    return _exchange(draw, tool, lang, phrase, place, second_unit=second_unit)


def ask_again(draw: Draw, tool: Tool, lang: Lang) -> Exchange:
    """Return a request that makes sense after another one for the weather only."""
    place = draw.place(lang)
    return _exchange(draw, tool, lang, draw.phrase(_AGAIN_EN if lang == "en" else _AGAIN_ZH, c=place), place)


def _exchange(draw: Draw, tool: Tool, lang: Lang, phrase: str, place: str, *, second_unit: bool = False) -> Exchange:
    result, answer = _result(draw, lang, place)
    call = Call(tool.name, _arguments(tool, place, second_unit=second_unit), result)
    return Exchange("weather", lang, phrase, call, answer)
