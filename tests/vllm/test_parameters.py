"""Sampling parameters of a real vLLM, as the probe of `OutputProcessor.add_request` reads them."""

import json
from pathlib import Path

from tests.real_vllm import ask_vllm

_ROOT = Path(__file__).parents[2]
_CODE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams
from tracellm.probes.catalog.sampling_options import changed_parameters

constraints = [{"choice": ["yes", "no"]}, {"regex": "a+"}, {"json": {"type": "object"}}, {"json_object": True}]
asked = [SamplingParams(), SamplingParams(temperature=0, seed=0, stop=["x"])]
asked += [SamplingParams(structured_outputs=StructuredOutputsParams(**one)) for one in constraints]
with open(sys.argv[2], "w") as file:
    json.dump([changed_parameters(params) for params in asked], file)
"""


def test_structured_outputs_are_read(tmp_path: Path) -> None:
    """Parameters with each kind of structured outputs are read, without making an instance of vLLM's classes."""
    path = tmp_path / "parameters.json"
    ask_vllm(_CODE, _ROOT, path, cwd=tmp_path)
    nothing, chosen, *constrained = json.loads(path.read_text(encoding="utf-8"))
    assert nothing == [[], []]
    assert set(chosen[0]) >= {"temperature=0", "seed=0"}
    assert chosen[1] == ["stop=['x']"]
    assert constrained == [
        [[], [f"structured_outputs={one}"]]
        for one in ("choice=['yes', 'no']", "regex=a+", "json={'type': 'object'}", "json_object=True")
    ]
