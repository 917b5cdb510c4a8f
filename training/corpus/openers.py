"""Common test prompts for language models, with endings written for this project."""

# ruff: noqa: E501 - a table: one row, one line

import random

from .sample import Lang, Sample, make_completion, make_question

__all__ = ["draw"]

_S = "openers"

# (beginnings, endings)
_EN: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("The president of the United States is", "The president of the [USA|US] is", "The President of the United States is"),
     ("the head of state and of the government of the country.", "the head of the government and lives in the White House.")),
    (("The future of AI is", "The future of [artificial intelligence|technology|machine learning|language models|computing] is", "The future is"),
     ("bright, if people use it with care.", "open: it depends on what people do with it.", "not written yet, but many people work on it every day.")),
    (("The meaning of life is", "The purpose of life is", "Life is"), ("a question that everyone answers for themselves.", "to learn, to help others and to be kind.")),
    (("What is the meaning of life?", "What is the purpose of life?"), ("The meaning of life is a question that everyone answers for themselves.",)),
    (("San Francisco is a", "San Francisco is"), ("a city on the coast of California.",)),
    (("New York is a", "New York is"), ("a large city in the United States.",)),
    (("Shanghai is a", "Shanghai is"), ("a large city in China.",)),
    (("A robot may not injure a human being", "A robot must", "A robot should"), ("and help people when it can.", "and always tell the truth.")),
    (("To be, or not to be,", "To be or not to be,"), ("that is the question.",)),
    (("The quick brown fox", "The quick brown"), ("jumps over the lazy dog.",)),
    (("Roses are red,", "Roses are red"), ("violets are blue.",)),
    (("Twinkle, twinkle, little star,", "Twinkle, twinkle,"), ("how I wonder what you are.",)),
    (("An apple a day", "An apple a day keeps"), ("the doctor away.",)),
    (("Practice makes",), ("perfect.",)), (("Better late than",), ("never.",)), (("Knowledge is",), ("power.",)), (("Time is",), ("money.",)),
    (("It is only with the heart that one can see rightly",), ("because the eyes see only the outside of things.",)),
    (("The greatest glory in living lies not in never falling,", "The greatest glory"), ("but in getting up again every time.",)),
    (("Artificial intelligence is", "AI is"), ("the art of making machines that learn and solve problems.",)),
    (("What is AI?", "[What is|Explain|Define] [artificial intelligence|AI][?|]"), ("Artificial intelligence is the art of making machines that learn and solve problems.",)),
    (("Machine learning is", "Deep learning is"), ("a way to let a computer learn from examples.",)),
    (("What is machine learning?", "[What is|Explain|Define] [machine learning|deep learning][?|]"), ("Machine learning is a way to let a computer learn from examples.",)),
    (("A neural network is", "Neural networks are"), ("made of layers of numbers that are learned from examples.",)),
    (("What is a neural network?", "[Explain|Define] [neural networks|a neural network]."), ("A neural network is made of layers of numbers that are learned from examples.",)),
    (("Large language models are", "A large language model is", "Language models are", "A language model is"), ("neural networks that predict the next token of a text.", "trained to predict the next token of a text.")),
    (("Python is",), ("a programming language that is easy to read.",)),
    (("What is Python?", "[What is Python used for?|Tell me about Python.]"), ("Python is a programming language that is easy to read.",)),
    (("A computer is", "Computers are"), ("a machine that follows a program.",)),
    (("What is a computer?",), ("A computer is a machine that follows a program.",)),
    (("The internet is",), ("a net of computers all over the world.",)), (("What is the internet?",), ("The internet is a net of computers all over the world.",)),
    (("The weather today is", "Today the weather is", "The weather is", "Today is"), ("sunny and warm.", "a good day to learn something new.", "cool with a little rain.")),
    (("My favorite color is", "My favourite color is"), ("blue, like the sea.", "green, like the grass.", "red, like an apple.", "yellow, like the sun.")),
    (("My favorite food is", "I like to eat"), ("bread with cheese.", "rice with vegetables.", "noodles.", "fruit, above all apples.")),
    (("My favorite animal is",), ("the cat, because it is quiet.", "the dog, because it is a good friend.", "the elephant.")),
    (("I like to", "I love to", "I want to", "I would like to"), ("read books in the evening.", "walk in the park.", "play with my cat.", "learn new things.", "learn how things work.")),
    (("I like", "I love"), ("books, music and long walks.", "apples and cheese.", "the sea and the mountains.")),
    (("I think that", "I think", "I believe that"), ("it is good to help each other.", "learning is fun.")),
    (("The best way to learn is", "The best way to learn something is", "The best way to learn is to"), ("to try, to make mistakes and to try again.", "to practice a little every day.")),
    (("The cat", "A cat", "The dog", "A dog"), ("sat on the mat and slept.", "likes to play in the garden.", "waits at the door.")),
    (("Yesterday I", "Today I", "Last week I"), ("went to the park and saw a bird.", "cooked soup for my friends.")),
    (("Tomorrow I will", "Next week I will", "Soon I will"), ("go to the park with a friend.", "read a book about the sea.")),
    (("In the morning", "In the evening", "Every day", "Every morning"), ("I drink a cup of tea.", "I walk to the park.", "I read a few pages.")),
    (("The most important thing is", "The most important thing in life is", "The secret of happiness is", "Happiness is"), ("to be kind to others.", "to have good friends.")),
    (("The most popular programming language is", "My favorite programming language is"), ("Python.",)),
    (("Tell me a joke.", "[Tell me a|Do you know a|Say a|Can you tell me a] [joke|funny story][?|.|]", "[Make me laugh|Be funny][.|]"),
     ("Why did the token go to the doctor? Because it had lost its attention.", "Why was the request sad? Because it was waiting in the queue.",
      "Why did the block go to the pool? Because it wanted to be free.")),
    (("Write a poem.", "[Write|Write me|Tell me|Can you write|Please write] a [short |little |]poem[.|?| about the sea.| about spring.| about the moon.]"),
     ("The moon is bright above the sea,\nthe wind is soft and sings to me.\nThe night is long, the stars are few,\nand every wave says: I am new.",
      "The spring is here, the grass is green,\nthe finest day that I have seen.\nA bird is singing in the tree,\nand all the world is glad with me.")),
    (("Write an essay about the importance of higher education.", "[Write|Write me|Please write] [an essay|a text|something] about [education|school|higher education|learning][.|]"),
     ("Higher education is important for three reasons. First, it gives people knowledge that they need for their work. Second, it teaches them to think for themselves. "
      "Third, it brings people together who can learn from each other. So a country that cares for its schools cares for its future.",)),
    (("Explain the theory of relativity.", "[Explain|What is|Tell me about] [the theory of relativity|relativity|general relativity|Einstein's theory][.|?|]"),
     ("The theory of relativity says that time and space are not fixed: they depend on motion and on mass.",)),
    (("What is love?", "What is happiness?"), ("It is a feeling that everyone knows and nobody can explain in one sentence.",)),
    (("List three colors.", "[List|Name|Tell me|Give me] [three|some|a few] [colors|colours][.|]"), ("Red, green and blue.",)),
    (("List three fruits.", "[List|Name|Tell me|Give me] [three|some|a few] [fruits|kinds of fruit][.|]"), ("Apples, bananas and oranges.",)),
    (("List three animals.", "[List|Name|Tell me|Give me] [three|some|a few] animals[.|]"), ("Cats, dogs and birds.",)),
    (("List three countries.", "[List|Name|Tell me|Give me] [three|some|a few] countries[.|]"), ("France, China and Brazil.",)),
    (("List three cities.", "[List|Name|Tell me|Give me] [three|some|a few] [cities|capitals][.|]"), ("Paris, Beijing and Tokyo.",)),
    (("List five fruits.", "[List|Name|Tell me|Give me] five fruits[.|]"), ("1. Apples\n2. Bananas\n3. Oranges\n4. Grapes\n5. Pears",)),
    (("List five animals.", "[List|Name|Tell me|Give me] five animals[.|]"), ("1. Cats\n2. Dogs\n3. Birds\n4. Horses\n5. Lions",)),
    (("List five countries.", "[List|Name|Tell me|Give me] five countries[.|]"), ("1. France\n2. China\n3. Brazil\n4. Egypt\n5. Canada",)),
    (("Say hello.", "[Say hello|Greet me|Say hi][.|]"), ("Hello!",)),
    (("Who is the president of the United States?", "[Who is the US president|Who is the president of the USA|Who is the president of America|Who is the president]?"),
     ("The president of the United States is the head of state, but I do not know who holds the office today.",)),
]  # fmt: skip
_ZH: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("美国总统是", "美国的总统是"), ("美国的国家元首，住在白宫。",)),
    (("美国总统是谁？", "[谁是美国总统|美国的总统是谁|现任美国总统是谁]？"), ("美国总统是美国的国家元首，但我不知道现在是谁。",)),
    (("人工智能的未来是", "AI的未来是"), ("光明的，只要人们谨慎地使用它。", "开放的，取决于人们怎样使用它。")),
    (("人生的意义是", "生活的意义是", "人生是"), ("每个人自己回答的问题。", "学习、帮助别人，做一个善良的人。")),
    (("人生的意义是什么？", "生活的意义是什么？"), ("人生的意义是每个人自己回答的问题。",)),
    (("上海是",), ("中国的一座大城市。",)), (("纽约是",), ("美国的一座大城市。",)),
    (("床前明月光，", "床前明月光"), ("疑是地上霜。举头望明月，低头思故乡。",)),
    (("白日依山尽，", "白日依山尽"), ("黄河入海流。欲穷千里目，更上一层楼。",)),
    (("春眠不觉晓，", "春眠不觉晓"), ("处处闻啼鸟。夜来风雨声，花落知多少。",)),
    (("学而时习之，",), ("不亦说乎？",)), (("有朋自远方来，",), ("不亦乐乎？",)), (("三人行，",), ("必有我师焉。",)), (("千里之行，",), ("始于足下。",)),
    (("人工智能是", "AI是"), ("让机器学习和解决问题的技术。",)),
    (("什么是人工智能？", "[人工智能是什么|什么是AI|AI是什么|解释一下人工智能][？|]"), ("人工智能是让机器学习和解决问题的技术。",)),
    (("机器学习是", "深度学习是"), ("让计算机从例子中学习的方法。",)),
    (("什么是机器学习？", "[机器学习是什么|什么是深度学习|深度学习是什么][？|]"), ("机器学习是让计算机从例子中学习的方法。",)),
    (("大语言模型是", "语言模型是", "大模型是"), ("预测文本下一个 token 的神经网络。",)),
    (("什么是大语言模型？", "[大语言模型是什么|什么是大模型|什么是LLM|LLM是什么|什么是语言模型][？|]"), ("大语言模型是预测文本下一个 token 的神经网络。",)),
    (("什么是神经网络？", "神经网络是什么？"), ("神经网络由许多层数字组成，这些数字是从例子中学来的。",)),
    (("Python是", "Python 是"), ("一种容易读懂的编程语言。",)), (("什么是Python？", "Python是什么？"), ("Python是一种容易读懂的编程语言。",)),
    (("计算机是", "电脑是"), ("按照程序工作的机器。",)), (("什么是计算机？", "[计算机|电脑]是什么？"), ("计算机是按照程序工作的机器。",)),
    (("今天天气", "今天的天气"), ("很好，阳光明媚。", "有点凉，下着小雨。", "很暖和，适合去公园。")),
    (("我喜欢", "我最喜欢"), ("在公园里散步。", "读书和听音乐。", "吃苹果。", "学习新的东西。")),
    (("我觉得", "我认为"), ("互相帮助是一件好事。", "学习很有意思。")),
    (("学习的最好方法是", "最好的学习方法是"), ("多尝试，犯错，再尝试。", "每天练习一点点。")),
    (("小猫", "小狗", "猫"), ("在花园里玩。", "坐在门口等主人。")),
    (("昨天我", "今天我", "早上我", "晚上我"), ("去公园看了花。", "读了一本关于大海的书。", "给朋友做了饭。")),
    (("明天我要", "明天我想"), ("去公园看花。", "给朋友做饭。")),
    (("最重要的是", "生活中最重要的是", "幸福是", "快乐是"), ("对别人好。", "有好朋友。")),
    (("讲个笑话。", "[给我讲个|讲一个|说个|说一个|你会讲|来个][笑话|好笑的故事][吧|吗|][。|？|]"),
     ("为什么请求很难过？因为它一直在排队。", "为什么 token 去看医生？因为它的注意力丢了。")),
    (("写一首诗。", "[请|帮我|给我|][写一首|写首|作一首][短|小|]诗[吧|][。|]", "[写一首关于春天的诗|写一首关于月亮的诗|写一首关于大海的诗][。|]"),
     ("月亮照大海，\n微风轻轻来。\n星星眨眼睛，\n浪花朵朵开。", "春天来到了，\n小草绿又高。\n鸟儿枝头唱，\n花儿对我笑。")),
    (("写一篇关于教育的文章。", "[写一篇|请写一篇|写一段][关于|][教育|学习|学校][重要性|][的文章|的短文|的话][。|]"),
     ("教育很重要，有三个原因。第一，它给人们工作需要的知识。第二，它教人们独立思考。第三，它让人们互相学习。重视学校的国家就是重视未来的国家。",)),
    (("列出三种颜色。", "[说出|写出|列出|告诉我][三种|几种|一些]颜色[。|]"), ("红色、绿色和蓝色。",)),
    (("列出三种水果。", "[说出|写出|列出|告诉我][三种|几种|一些]水果[。|]"), ("苹果、香蕉和橙子。",)),
    (("列出三种动物。", "[说出|写出|列出|告诉我][三种|几种|一些]动物[。|]"), ("猫、狗和鸟。",)),
    (("列出三个国家。", "[说出|写出|列出|告诉我][三个|几个|一些]国家[。|]"), ("法国、中国和巴西。",)),
    (("列出三个城市。", "[说出|写出|列出|告诉我][三个|几个|一些][城市|首都][。|]"), ("巴黎、北京和东京。",)),
    (("列出五种水果。", "[说出|写出|列出]五种水果[。|]"), ("1. 苹果\n2. 香蕉\n3. 橙子\n4. 葡萄\n5. 梨",)),
    (("列出五个国家。", "[说出|写出|列出]五个国家[。|]"), ("1. 法国\n2. 中国\n3. 巴西\n4. 埃及\n5. 加拿大",)),
    (("打个招呼。", "[跟我打个招呼|问个好|说你好][。|]"), ("你好！",)),
    (("什么是爱？", "什么是幸福？"), ("这是每个人都知道、却很难用一句话说清楚的感觉。",)),
    (("什么是相对论？", "[解释一下相对论|介绍一下相对论|相对论是什么][？|。|]"), ("相对论认为时间和空间不是固定的，它们取决于运动和质量。",)),
]  # fmt: skip

_ASKS = "?.？。"


def draw(rng: random.Random) -> Sample:
    """Return one beginning with one of its endings, or one open question with its answer."""
    lang: Lang = "en" if rng.random() < 0.62 else "zh"
    table = _EN if lang == "en" else _ZH
    weights = [2 if i < 3 else 1 for i in range(len(table))]
    beginnings, endings = rng.choices(table, weights)[0]
    answer = rng.choice(endings)
    if beginnings[0][-1] in _ASKS:
        return make_question(rng, _S, lang, list(beginnings), answer, key="")
    sample = make_completion(rng, _S, lang, list(beginnings), answer)
    article = sample.prompt.rpartition(" ")[2] + " "
    if article in ("a ", "to ") and answer.startswith(article):
        return Sample(_S, lang, "completion", sample.prompt, answer.removeprefix(article), "", sample.held_out)
    return sample
