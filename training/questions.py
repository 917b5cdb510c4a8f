"""Questions written by hand for the evaluation, independent of the corpus templates.

The generator can also produce the plainest, about a quarter; no template was changed because of their results. Each row
is a language, a prompt and the keys of a right answer, separated by ``|``.
"""

from .corpus.sample import Lang

__all__ = ["QUESTIONS"]

_EN = """
What is the capital city of Japan? => Tokyo
Could you please name the capital of Italy? => Rome
france's capital => Paris
I'd love to know what the capital of Canada is. => Ottawa
Which city is Egypt's capital? => Cairo
capital of south korea => Seoul
Name the capital of Brazil please => Brasilia
WHAT IS THE CAPITAL OF GERMANY? => Berlin
Do you happen to know the capital of Spain? => Madrid
The capital of Australia is called what? => Canberra
Paris is the capital of which nation? => France
On what continent would I find Kenya? => Africa
Which continent does Brazil belong to? => South America
In what language do the people of Mexico talk? => Spanish
Which is the biggest ocean of our planet? => Pacific
what's the largest ocean => Pacific
Tell me the name of the largest ocean. => Pacific
Which ocean is the smallest one? => Arctic
How many oceans do we have? => five
What's the tallest mountain on Earth? => Everest
Which planet is the biggest one? => Jupiter
how many days are there in one week => seven|7
What colour is the sky during the day? => blue
What is 2 + 2? => 4.
what is 3+4 => 7
5 + 6 = ? => 11
How much is 9 plus 8? => 17
Please compute 12 - 5 => 7
What do you get when you add 4 and 9? => 13
7 times 6 is what? => 42
What is ten minus three? => 7
What is 15 + 4? => 19
Add 2 and 6. => 8
Subtract 4 from 9. => 5
If I have 5 apples and buy 3 more, how many apples do I have? => 8
Which is greater, 4 or 11? => 11
Count from one to five. => 1, 2, 3, 4, 5|one, two, three, four, five
please count to 10 => 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
Can you count up to 7 for me? => 1, 2, 3, 4, 5, 6, 7
Count from 4 to 8 => 4, 5, 6, 7, 8
What number follows 12? => 13
Which day comes after Friday? => Saturday
Hi! How are you doing today? => fine
hey there => Hello
Good morning, tiny! => Good morning
Thanks for your help! => welcome
Who are you? => tiny
What's your name, please? => tiny
Hello, I'm Sarah. => Sarah
Goodbye for now! => Goodbye
What is the job of the scheduler? => scheduler
What does the scheduler actually do? => scheduler decides|decides
In vLLM, what is the scheduler responsible for? => scheduler
What exactly is a KV cache? => KV cache
Why do engines use a KV cache? => keys and values
What's paged attention? => blocks
Could you describe continuous batching to me? => batch
What does prefix caching mean? => prefix
What is chunked prefill good for? => prompt
How are prefill and decode different? => one new token
What happens during the decode phase? => token
What is the InprocClient for? => same process
When would I get a SyncMPClient? => VLLM_ENABLE_V1_MULTIPROCESSING|another process
What is an EngineCore? => scheduler
What does the model runner do? => model
What is a block table used for? => blocks
What is preemption? => blocks
What does temperature control? => random
What is a token? => text
What does the tokenizer do? => token
How does vLLM choose a client? => make_client
What is vLLM? => inference engine
Explain tensor parallelism. => devices
What is TTFT? => first token
Who will win the next election? => do not know
What is the capital of Atlantis? => do not know
What's the weather going to be like tomorrow? => do not know
"""

_ZH = """
请问日本的首都是哪座城市？ => 东京
意大利首都在哪 => 罗马
法国的首都是哪里? => 巴黎
德国首都叫什么名字？ => 柏林
我想知道俄罗斯的首都是哪里 => 莫斯科
加拿大的首都是哪一个城市？ => 渥太华
埃及首都 => 开罗
韩国的首都是？ => 首尔
你知道西班牙的首都是哪里吗？ => 马德里
巴黎是哪国的首都？ => 法国
肯尼亚在哪个大洲？ => 非洲
巴西人讲什么语言？ => 葡萄牙语
世界上最大的海洋叫什么？ => 太平洋
哪一个海洋是最大的？ => 太平洋
最小的大洋是哪一个？ => 北冰洋
地球上有几个大洋？ => 五
世界最高峰是哪座山？ => 珠穆朗玛
最大的行星是哪一颗？ => 木星
一个星期有几天？ => 七
天空是什么颜色？ => 蓝
2 加 3 等于几？ => 5
二加三是多少？ => 5
3+4等于多少 => 7
请计算 8 + 7 => 15
9减4等于几？ => 5
十减三得多少？ => 7
6乘7等于几 => 42
12 + 5 = ? => 17
5加6的和是多少？ => 11
我有5个苹果，又买了3个，一共有几个苹果？ => 8
4和11哪个大？ => 11
从一数到五 => 1、2、3、4、5|一、二、三、四、五
请从1数到10 => 1、2、3、4、5、6、7、8、9、10
从3数到7 => 3、4、5、6、7
12后面的数字是几？ => 13
星期五的后一天是星期几？ => 星期六
你好呀！ => 你好
你最近好吗？ => 很好
请问你叫什么？ => tiny
谢谢你的帮助 => 不客气
再见啦 => 再见
我叫小明，你好 => 小明
什么是 KV cache? => 键和值
KV cache 有什么作用？ => 键和值
请解释什么是调度器 => 请求
调度器负责什么工作？ => 请求
分页注意力是什么意思？ => 块
什么叫连续批处理？ => 批
前缀缓存有什么用？ => 前缀
预填充和解码的区别 => 一个新 token
解码阶段做什么？ => token
InprocClient 是什么？ => 同一个进程
什么情况下会用 SyncMPClient？ => VLLM_ENABLE_V1_MULTIPROCESSING|另一个进程
EngineCore 是干什么的？ => 调度器
模型运行器的作用 => 模型
什么是块表？ => 块
什么是抢占？ => 块
温度参数是什么意思？ => 随机
什么是 token？ => 文本
vLLM 是什么？ => 推理引擎
什么是张量并行？ => 设备
为什么我的请求一直在等待？ => 预算
明天会下雨吗？ => 不知道
谁会赢得下一次选举？ => 不知道
"""


def _rows(lang: Lang, text: str) -> list[tuple[Lang, str, tuple[str, ...]]]:
    rows = (line.split(" => ") for line in text.strip().splitlines())
    return [(lang, prompt, tuple(key.split("|"))) for prompt, key in rows]


QUESTIONS = _rows("en", _EN) + _rows("zh", _ZH)
