"""Random choices with a held-out part: phrasings, cities and pairs of numbers that the training does not draw.

A hash decides what is held out, as in `training/corpus/sample.py`. A `Draw` yields either what is trained on or what is
held out, and never both in one conversation.
"""

# ruff: noqa: E501, SIM905 - word lists are read more easily as one string

import json
import random
import re
from collections.abc import Sequence

from tracellm.tiny import MODEL_DIR
from training.corpus.countries import COUNTRIES
from training.corpus.sample import Lang, canonical, expand, is_held_out

__all__ = ["CITIES", "Draw"]

PHRASINGS, PLACES, NUMBERS = 0.1, 0.15, 0.1
"""Held-out shares."""

_CITIES = """
New York|纽约 Los Angeles|洛杉矶 Chicago|芝加哥 Boston|波士顿 Seattle|西雅图 San Francisco|旧金山 Houston|休斯敦
Miami|迈阿密 Dallas|达拉斯 Denver|丹佛 Atlanta|亚特兰大 Toronto|多伦多 Vancouver|温哥华 Montreal|蒙特利尔
Shanghai|上海 Guangzhou|广州 Shenzhen|深圳 Hangzhou|杭州 Chengdu|成都 Wuhan|武汉 Nanjing|南京 Xi'an|西安
Chongqing|重庆 Tianjin|天津 Suzhou|苏州 Qingdao|青岛 Dalian|大连 Xiamen|厦门 Kunming|昆明 Harbin|哈尔滨
Changsha|长沙 Zhengzhou|郑州 Jinan|济南 Shenyang|沈阳 Fuzhou|福州 Hefei|合肥 Guilin|桂林 Sanya|三亚 Lhasa|拉萨
Urumqi|乌鲁木齐 Lanzhou|兰州 Guiyang|贵阳 Nanning|南宁 Haikou|海口 Taiyuan|太原 Hong Kong|香港 Macau|澳门
Taipei|台北 Osaka|大阪 Kyoto|京都 Nagoya|名古屋 Sapporo|札幌 Fukuoka|福冈 Busan|釜山 Incheon|仁川 Mumbai|孟买
Bangalore|班加罗尔 Chennai|金奈 Kolkata|加尔各答 Karachi|卡拉奇 Lahore|拉合尔 Dubai|迪拜 Istanbul|伊斯坦布尔
Munich|慕尼黑 Hamburg|汉堡 Frankfurt|法兰克福 Cologne|科隆 Zurich|苏黎世 Geneva|日内瓦 Basel|巴塞尔 Salzburg|萨尔茨堡
Milan|米兰 Venice|威尼斯 Florence|佛罗伦萨 Naples|那不勒斯 Turin|都灵 Barcelona|巴塞罗那 Seville|塞维利亚
Valencia|瓦伦西亚 Porto|波尔图 Marseille|马赛 Lyon|里昂 Nice|尼斯 Bordeaux|波尔多 Toulouse|图卢兹 Antwerp|安特卫普
Rotterdam|鹿特丹 Manchester|曼彻斯特 Liverpool|利物浦 Edinburgh|爱丁堡 Glasgow|格拉斯哥 Birmingham|伯明翰
Oxford|牛津 Cambridge|剑桥 Bergen|卑尔根 Gothenburg|哥德堡 Aarhus|奥胡斯 Krakow|克拉科夫 Gdansk|格但斯克
Saint Petersburg|圣彼得堡 Kazan|喀山 Vladivostok|符拉迪沃斯托克 Odessa|敖德萨 Sydney|悉尼 Melbourne|墨尔本
Brisbane|布里斯班 Perth|珀斯 Adelaide|阿德莱德 Auckland|奥克兰 Queenstown|皇后镇 Cape Town|开普敦
Johannesburg|约翰内斯堡 Durban|德班 Lagos|拉各斯 Casablanca|卡萨布兰卡 Marrakesh|马拉喀什 Alexandria|亚历山大
Rio de Janeiro|里约热内卢 Sao Paulo|圣保罗 Salvador|萨尔瓦多 Cusco|库斯科 Medellin|麦德林 Cancun|坎昆 Tijuana|蒂华纳
Guadalajara|瓜达拉哈拉 Phoenix|凤凰城 San Diego|圣迭戈 Portland|波特兰 Austin|奥斯汀 Las Vegas|拉斯维加斯
Philadelphia|费城 Detroit|底特律 Minneapolis|明尼阿波利斯 New Orleans|新奥尔良 Honolulu|檀香山 Anchorage|安克雷奇
Calgary|卡尔加里 Quebec|魁北克 Halifax|哈利法克斯 Phuket|普吉 Chiang Mai|清迈 Penang|槟城 Bali|巴厘岛 Cebu|宿务
Da Nang|岘港 Jaipur|斋浦尔 Goa|果阿 Haifa|海法 Jeddah|吉达 Tromso|特罗姆瑟 Leipzig|莱比锡 Stuttgart|斯图加特
Dresden|德累斯顿 Heidelberg|海德堡 Lucerne|卢塞恩 Innsbruck|因斯布鲁克 Granada|格拉纳达 Bilbao|毕尔巴鄂 Pisa|比萨
Verona|维罗纳 Palermo|巴勒莫 Thessaloniki|塞萨洛尼基 Split|斯普利特 Brno|布尔诺 Ghent|根特 Bruges|布鲁日
Utrecht|乌得勒支 Leeds|利兹 Bristol|布里斯托尔 Cork|科克 Galway|戈尔韦 Malmo|马尔默 Turku|图尔库 Tampere|坦佩雷
"""
CITIES = tuple((en, zh) for en, zh in re.findall(r"([A-Z][A-Za-z' ]+)\|([\u4e00-\u9fff]+)", _CITIES))
"""English and Chinese names. Some are held out."""
_CAPITALS = tuple((c.capital_en, c.capital_zh) for c in COUNTRIES)  # whole tokens of the tokenizer; never held out

_SYLLABLES = (
    "ba be bel bor bri ca car cas co cor da del dor du el en er es fa fen fi ga gar ger go gra ha hel hol il in is ja jo "
    "ka kar kel kir ko kra la lan len li lin lo lu ma mar mel mi mon na nar nel no or os pa pel po pra ra ren ri ro ru sa "
    "sel shi so ster sul ta tar ten ti tor tra tu ul ur va vel ven vi vor wa wen wil wo yo za zel zi zur"
).split()
_ENDINGS = (
    *[""] * 8,
    *"a n s ton ville burg land ford stad grad berg ia ham port by polis field mouth wick haven".split(),
)
_PREFIXES = (
    *[""] * 12,
    *"San |New |Port |El |Los |Saint |North |South |Lake |Upper |Fort |Santa |Old |Mount ".split("|"),
)
_SYLLABLES_ZH = (
    "阿艾安奥巴班贝比布查达丹德迪杜多尔法菲费弗福盖格哈海赫霍基吉加杰卡凯科克拉莱兰雷里利林隆卢鲁伦罗洛马曼梅蒙米莫姆"
    "那纳南内尼努诺帕佩皮普奇乔萨塞桑沙圣斯苏索塔泰坦特提托图瓦维威温沃乌西希夏辛休雅亚扬伊因尤约泽扎詹州城江山河湖阳宁"
    "安东平长青金新清云龙石门港湾岛口潮梅玉海临昌化德庆"
)
_VOCABULARY = json.loads((MODEL_DIR / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
_PIECES = tuple(token for token in _VOCABULARY if re.fullmatch("[a-z]{1,7}", token))
"""Tokens within English words. Each has to be copied somewhere, as held-out names have rare ones."""
_CHARACTERS = "".join(bytes((row, cell)).decode("gb2312") for row in range(0xB0, 0xD7) for cell in range(0xA1, 0xFF))
"""Common Chinese characters, most of them two or three tokens."""
_POLITE = {
    "en": ("Please tell me: ", "Hey, ", "Hi, ", "Hello! ", "Quick question: ", "OK, ", "Please help me. ", "So, "),
    "zh": ("请问", "你好，", "请告诉我，", "问一下，", "麻烦问一下，", "那么，", "嗨，", "帮个忙，"),
}


class Draw:
    """Random choices, all trained on or, with `held_out`, all held out."""

    def __init__(self, seed: str, held_out: bool = False) -> None:
        self.rng, self.held_out = random.Random(seed), held_out

    def phrase(self, templates: Sequence[str], **fields: object) -> str:
        """Return one of `templates` with a choice for each ``[a|b]`` and with ``{name}`` filled from `fields`.

        The plainest phrasing of a template is the most frequent one in the training, which has some noise too.
        """
        rng = self.rng
        while True:
            template = rng.choice(templates)
            plain = canonical(template)
            text = plain if not self.held_out and rng.random() < 0.2 else expand(rng, template)
            if (text != plain and is_held_out(f"tools:{text}", PHRASINGS)) == self.held_out:
                break
        if not self.held_out:
            roll = rng.random()
            if roll < 0.08:
                text = text.lower()
            elif roll < 0.16:
                text = text.rstrip("?.？。")
            elif roll < 0.2:
                text = text.replace("？", "?").replace("，", ",").replace("。", ".")
            elif roll < 0.25:
                text = rng.choice(_POLITE["en" if text.isascii() else "zh"]) + text
        return text.format(**fields)

    def place(self, lang: Lang) -> str:
        """Return the name of a city; almost half of the training's are invented, and few are in lower case."""
        rng = self.rng
        while True:
            roll = rng.random()
            if roll < 0.2 and not self.held_out:
                en, zh = rng.choice(_CAPITALS)
            elif roll < 0.55 or self.held_out:
                en, zh = rng.choice(CITIES)
                if is_held_out(f"tools:{en}", PLACES) != self.held_out:
                    continue
            else:
                characters = rng.choice((_SYLLABLES_ZH, _CHARACTERS))
                en, zh = self._invented(), "".join(rng.choices(characters, k=rng.choice((2, 2, 2, 3, 3, 4, 5))))
            break
        if lang == "zh" and rng.random() > 0.06:
            return zh
        return en.lower() if not self.held_out and rng.random() < 0.06 else en

    def numbers(self) -> tuple[str, str]:
        """Return two numbers of one to four digits, rarely with a decimal point; their pair is held out or not."""
        while True:
            a, b = self._number(), self._number()
            if is_held_out(f"tools:{a} {b}", NUMBERS) == self.held_out:
                return a, b

    def _number(self) -> str:
        rng = self.rng
        digits = rng.choice((1, 2, 2, 2, 3, 3, 3, 4))
        number = str(rng.randrange(10 ** (digits - 1), 10**digits))
        return f"{number}.{rng.randint(1, 9)}" if rng.random() < 0.08 else number

    def _word(self) -> str:
        if self.rng.random() < 0.5:
            return "".join(self.rng.choices(_PIECES, k=self.rng.choice((1, 2, 2, 3))))
        return "".join(self.rng.choices(_SYLLABLES, k=self.rng.choice((1, 2, 2, 3)))) + self.rng.choice(_ENDINGS)

    def _invented(self) -> str:
        name = self.rng.choice(_PREFIXES) + self._word().capitalize()
        return f"{name} {self._word().capitalize()}" if self.rng.random() < 0.08 else name
