"""Two runs of the same prompt: the engine core in this process, then in its own. A stop string aborts each request."""

from tracellm import LLM, SamplingParams

params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, stop=["e"], min_tokens=4)
for multiprocess_mode in (False, True):
    llm = LLM(max_model_len=96, num_gpu_blocks_override=12, multiprocess_mode=multiprocess_mode)
    for output in llm.generate(["Once upon a time"], params, use_tqdm=False):
        print(repr(output.outputs[0].text), output.outputs[0].stop_reason)
    print(type(llm.llm_engine.engine_core).__name__, llm.reset_prefix_cache())
