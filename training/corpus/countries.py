"""The table of countries: English and Chinese name, capital, continent, main language. The best known come first."""

from typing import NamedTuple

__all__ = ["CONTINENTS", "COUNTRIES", "LANGUAGES", "Country"]


class Country(NamedTuple):
    """One row of the table; `continent` and `language` are keys of the two dictionaries below."""

    en: str
    zh: str
    capital_en: str
    capital_zh: str
    continent: str
    language: str


CONTINENTS = {
    "Europe": "欧洲",
    "Asia": "亚洲",
    "Africa": "非洲",
    "North America": "北美洲",
    "South America": "南美洲",
    "Oceania": "大洋洲",
}
LANGUAGES = {
    "French": "法语", "German": "德语", "Japanese": "日语", "Chinese": "汉语", "English": "英语", "Italian": "意大利语",
    "Spanish": "西班牙语", "Russian": "俄语", "Portuguese": "葡萄牙语", "Korean": "韩语", "Arabic": "阿拉伯语",
    "Dutch": "荷兰语", "Swedish": "瑞典语", "Danish": "丹麦语", "Norwegian": "挪威语", "Finnish": "芬兰语",
    "Polish": "波兰语", "Greek": "希腊语", "Turkish": "土耳其语", "Thai": "泰语", "Vietnamese": "越南语",
    "Hungarian": "匈牙利语", "Czech": "捷克语", "Ukrainian": "乌克兰语", "Hindi": "印地语", "Persian": "波斯语",
    "Indonesian": "印度尼西亚语", "Malay": "马来语", "Hebrew": "希伯来语", "Romanian": "罗马尼亚语",
    "Bulgarian": "保加利亚语", "Mongolian": "蒙古语", "Icelandic": "冰岛语", "Urdu": "乌尔都语", "Bengali": "孟加拉语",
}  # fmt: skip

_TABLE = """
France|法国|Paris|巴黎|Europe|French
China|中国|Beijing|北京|Asia|Chinese
Japan|日本|Tokyo|东京|Asia|Japanese
Germany|德国|Berlin|柏林|Europe|German
Italy|意大利|Rome|罗马|Europe|Italian
Spain|西班牙|Madrid|马德里|Europe|Spanish
the United Kingdom|英国|London|伦敦|Europe|English
the United States|美国|Washington, D.C.|华盛顿|North America|English
Russia|俄罗斯|Moscow|莫斯科|Europe|Russian
Canada|加拿大|Ottawa|渥太华|North America|English
Australia|澳大利亚|Canberra|堪培拉|Oceania|English
India|印度|New Delhi|新德里|Asia|Hindi
Brazil|巴西|Brasilia|巴西利亚|South America|Portuguese
South Korea|韩国|Seoul|首尔|Asia|Korean
Mexico|墨西哥|Mexico City|墨西哥城|North America|Spanish
Egypt|埃及|Cairo|开罗|Africa|Arabic
Portugal|葡萄牙|Lisbon|里斯本|Europe|Portuguese
Greece|希腊|Athens|雅典|Europe|Greek
the Netherlands|荷兰|Amsterdam|阿姆斯特丹|Europe|Dutch
Sweden|瑞典|Stockholm|斯德哥尔摩|Europe|Swedish
Norway|挪威|Oslo|奥斯陆|Europe|Norwegian
Denmark|丹麦|Copenhagen|哥本哈根|Europe|Danish
Finland|芬兰|Helsinki|赫尔辛基|Europe|Finnish
Poland|波兰|Warsaw|华沙|Europe|Polish
Austria|奥地利|Vienna|维也纳|Europe|German
Switzerland|瑞士|Bern|伯尔尼|Europe|German
Belgium|比利时|Brussels|布鲁塞尔|Europe|Dutch
Ireland|爱尔兰|Dublin|都柏林|Europe|English
Turkey|土耳其|Ankara|安卡拉|Asia|Turkish
Thailand|泰国|Bangkok|曼谷|Asia|Thai
Vietnam|越南|Hanoi|河内|Asia|Vietnamese
Argentina|阿根廷|Buenos Aires|布宜诺斯艾利斯|South America|Spanish
Chile|智利|Santiago|圣地亚哥|South America|Spanish
Peru|秘鲁|Lima|利马|South America|Spanish
Colombia|哥伦比亚|Bogota|波哥大|South America|Spanish
Cuba|古巴|Havana|哈瓦那|North America|Spanish
Ukraine|乌克兰|Kyiv|基辅|Europe|Ukrainian
Hungary|匈牙利|Budapest|布达佩斯|Europe|Hungarian
the Czech Republic|捷克|Prague|布拉格|Europe|Czech
Singapore|新加坡|Singapore|新加坡|Asia|English
Indonesia|印度尼西亚|Jakarta|雅加达|Asia|Indonesian
Malaysia|马来西亚|Kuala Lumpur|吉隆坡|Asia|Malay
the Philippines|菲律宾|Manila|马尼拉|Asia|English
New Zealand|新西兰|Wellington|惠灵顿|Oceania|English
Iran|伊朗|Tehran|德黑兰|Asia|Persian
Iraq|伊拉克|Baghdad|巴格达|Asia|Arabic
Saudi Arabia|沙特阿拉伯|Riyadh|利雅得|Asia|Arabic
Pakistan|巴基斯坦|Islamabad|伊斯兰堡|Asia|Urdu
Bangladesh|孟加拉国|Dhaka|达卡|Asia|Bengali
North Korea|朝鲜|Pyongyang|平壤|Asia|Korean
Mongolia|蒙古|Ulaanbaatar|乌兰巴托|Asia|Mongolian
Kenya|肯尼亚|Nairobi|内罗毕|Africa|English
Nigeria|尼日利亚|Abuja|阿布贾|Africa|English
South Africa|南非|Pretoria|比勒陀利亚|Africa|English
Morocco|摩洛哥|Rabat|拉巴特|Africa|Arabic
Ethiopia|埃塞俄比亚|Addis Ababa|亚的斯亚贝巴|Africa|
Ghana|加纳|Accra|阿克拉|Africa|English
Romania|罗马尼亚|Bucharest|布加勒斯特|Europe|Romanian
Bulgaria|保加利亚|Sofia|索非亚|Europe|Bulgarian
Iceland|冰岛|Reykjavik|雷克雅未克|Europe|Icelandic
Venezuela|委内瑞拉|Caracas|加拉加斯|South America|Spanish
Croatia|克罗地亚|Zagreb|萨格勒布|Europe|
Serbia|塞尔维亚|Belgrade|贝尔格莱德|Europe|
Nepal|尼泊尔|Kathmandu|加德满都|Asia|
Cambodia|柬埔寨|Phnom Penh|金边|Asia|
Jamaica|牙买加|Kingston|金斯敦|North America|English
Ecuador|厄瓜多尔|Quito|基多|South America|Spanish
Qatar|卡塔尔|Doha|多哈|Asia|Arabic
Jordan|约旦|Amman|安曼|Asia|Arabic
Algeria|阿尔及利亚|Algiers|阿尔及尔|Africa|Arabic
"""

COUNTRIES = [Country(*line.split("|")) for line in _TABLE.strip().splitlines()]
