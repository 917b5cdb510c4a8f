"""Questions about a picture: from pixels to patches, placeholders, embeddings and tokens.

Run it with --explain, and open the report that the last line names:

    tracellm run --explain examples/picture.py

Pillow (`pip install 'tracellm[multimodal]'`) draws the picture. `tiny-vl`, inside the package, was trained on such
pictures only.
"""

from PIL import Image, ImageDraw

from tracellm import LLM, SamplingParams

picture = Image.new("RGB", (168, 168), "white")
canvas = ImageDraw.Draw(picture)
for x, y in (36, 40), (118, 48), (62, 120):
    canvas.ellipse((x - 20, y - 20, x + 20, y + 20), fill="red")
canvas.rectangle((108, 104, 144, 140), fill="blue")

questions = ["How many red circles are there?", "Where is the blue square?", "蓝色的东西是什么形状？"]
conversations = [
    [{"role": "user", "content": [{"type": "image_pil", "image_pil": picture}, {"type": "text", "text": question}]}]
    for question in questions
]

# One question after the other: the prefix cache holds the first one's picture for the others.
llm = LLM("tiny-vl", dtype="float32", max_num_seqs=1)
outputs = llm.chat(conversations, SamplingParams(temperature=0, max_tokens=32))
for question, output in zip(questions, outputs, strict=True):
    print(f"{question} -> {output.outputs[0].text}")
