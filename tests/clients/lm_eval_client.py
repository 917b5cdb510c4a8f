"""EleutherAI's lm-evaluation-harness: four questions, with choices that are ranked by likelihood, and without."""

import json
import os
from pathlib import Path
from typing import Any

from tests.clients.shown import FOLDER, QUESTION, TOO_LONG, error_of, report

os.environ["HF_HOME"] = FOLDER.name  # all three before the imports
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["LMEVAL_LOG_LEVEL"] = "ERROR"

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.models.api_models import JsonChatStr
from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI
from lm_eval.tasks import TaskManager

_TINY = str(Path(__file__).parents[2] / "tracellm" / "tiny")
_CAPITALS = {"France": "Paris", "Germany": "Berlin", "Spain": "Madrid", "Italy": "Rome"}


def _completions(url: str) -> LocalCompletionsAPI:
    return LocalCompletionsAPI(
        base_url=f"{url}/v1/completions", model="tiny", tokenizer=_TINY, tokenizer_backend="huggingface", max_retries=1
    )


def chat(url: str) -> str:
    """Return the answer."""
    model = LocalChatCompletion(base_url=f"{url}/v1/chat/completions", model="tiny", tokenizer_backend=None)
    messages = JsonChatStr(json.dumps([{"role": "user", "content": QUESTION}]))
    asked = Instance("generate_until", {}, (messages, {"until": ["\n"], "max_gen_toks": 16}), 0)
    return model.generate_until([asked], disable_tqdm=True)[0]


def error(url: str) -> dict[str, Any]:
    """Return the error of too long a prompt."""
    return error_of(lambda: _completions(url).model_call([TOO_LONG], gen_kwargs={}))


def scores(url: str) -> dict[str, float]:
    """Return the shares of right choices and of right texts."""
    file = Path(FOLDER.name, "rows.json")
    rows = [{"country": land, "city": city, "index": index} for index, (land, city) in enumerate(_CAPITALS.items())]
    file.write_text(json.dumps(rows))
    common: dict[str, Any] = {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(file)}},
        "test_split": "test",
        "doc_to_text": "The capital of {{country}} is",
    }
    choices = {
        "task": "choices",
        "output_type": "multiple_choice",
        "doc_to_choice": list(_CAPITALS.values()),
        "doc_to_target": "index",
        "metric_list": [{"metric": "acc"}],
    }
    texts = {
        "task": "texts",
        "output_type": "generate_until",
        "generation_kwargs": {"until": ["."], "max_gen_toks": 8},
        "doc_to_target": " {{city}}",
        "metric_list": [{"metric": "exact_match"}],
    }
    results = lm_eval.simple_evaluate(
        _completions(url),
        tasks=[common | choices, common | texts],
        bootstrap_iters=0,
        task_manager=TaskManager(include_defaults=False),  # reading its own 13,000 tasks takes seconds
    )["results"]
    return {"choices": results["choices"]["acc,none"], "texts": results["texts"]["exact_match,none"]}


report(chat=chat, error=error, scores=scores)
