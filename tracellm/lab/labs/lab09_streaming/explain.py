"""A run that streams a text of characters with many bytes up to a stop string; a grammar makes the model write it."""

import json
import sys
from pathlib import Path
from typing import Any

from tracellm import LLM, SamplingParams, StructuredOutputsParams

text = "你好 👍🏽 the sun is up. STOP and more"
settings: dict[str, Any] = {"stop": ["STOP", "。。"]}
llm = LLM(max_model_len=256, num_gpu_blocks_override=40)
if len(sys.argv) > 1:
    case = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if case.get("tokenizer") == "bytes":
        written = llm.get_tokenizer().decode(case["tokens"], skip_special_tokens=True).replace("\ufffd", "")
        text, settings = written or text, case["params"]
written_text = StructuredOutputsParams(choice=[text])
params = SamplingParams(temperature=0, max_tokens=120, structured_outputs=written_text, **settings)
for output in llm.generate(["Once upon a time"], params, use_tqdm=False):
    print(repr(output.outputs[0].text), output.outputs[0].stop_reason)
