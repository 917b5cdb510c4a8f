"""Tests of the import of tracellm, and of the cleanup after an LLM."""

import gc
import subprocess
import sys
import weakref

from tracellm import LLM, SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a new process."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_importing_llm_imports_no_torch():
    """`from tracellm import LLM, SamplingParams` does not import torch or transformers."""
    result = run(
        "import sys; from tracellm import LLM, SamplingParams; SamplingParams(temperature=0)\n"
        "print([name for name in ('torch', 'transformers', 'numpy', 'tokenizers', 'tqdm') if name in sys.modules])"
    )
    assert (result.stdout, result.stderr) == ("[]\n", "")


def test_a_refused_argument_is_refused_before_torch_is_imported():
    """A bad argument is refused before torch is imported."""
    result = run(
        "import sys\nfrom tracellm import LLM\ntry: LLM(mdoel='x')\nexcept ValueError: print('torch' in sys.modules)"
    )
    assert (result.stdout, result.stderr) == ("False\n", "")


def test_a_deleted_llm_is_gone(qwen2_checkpoint):
    """`del llm` frees the model and the KV cache at once, without the garbage collector."""
    llm = LLM(str(qwen2_checkpoint))
    llm.generate("a", GREEDY)
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner  # type: ignore[attr-defined]
    gone = [weakref.ref(one) for one in (runner, *runner.model.parameters(), *runner.kv_caches)]
    gc.disable()
    try:
        del runner, llm
        assert all(ref() is None for ref in gone)
    finally:
        gc.enable()


def test_the_end_is_silent(qwen2_checkpoint):
    """A script that generates prints only its own output, and nothing to stderr."""
    result = run(
        f"from tracellm import LLM, SamplingParams\nllm = LLM({str(qwen2_checkpoint)!r})\n"
        "print(len(llm.generate(['a', 'b'], SamplingParams(max_tokens=3, ignore_eos=True))))"
    )
    assert (result.stdout, result.stderr, result.returncode) == ("2\n", "", 0)


def test_several_llms_do_not_disturb_each_other(qwen2_checkpoint, opt_checkpoint):
    """Two models used in turn generate the tokens that each generates alone."""
    folders = [str(qwen2_checkpoint), str(opt_checkpoint)]
    alone = [LLM(folder, dtype="float32").generate("Hello", GREEDY)[0].outputs[0].token_ids for folder in folders]
    llms = [LLM(folder, dtype="float32") for folder in folders]
    for _ in range(2):
        assert [llm.generate("Hello", GREEDY)[0].outputs[0].token_ids for llm in llms] == alone
