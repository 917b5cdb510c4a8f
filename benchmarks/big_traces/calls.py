"""The calls of an engine as an outline, from which big traces are played; taken from a recording of the real engine.

One line is one call: its name, its level (r, s, l, k for request, step, layer, kernel), then its arguments and result,
if any. In them `{n}` is the number of tokens of the step or request, `{r}` the request's id and `{c}` its tokens so
far. A mark before the name repeats the call: `*requests` for each request in the batch, `*prefills` and `*finished` for
those that begin or end. `*block` makes the call if the request gets a KV block, `*layers` repeats it for each layer.
Its callees are below it, indented by two spaces.
"""

from dataclasses import dataclass, field
from typing import Any

from tracellm.trace import names
from tracellm.trace.names import LEVELS, Level

__all__ = ["ADD_INPROC", "ADD_MP", "ENGINE", "OUTPUTS", "RECEIVED", "STARTUP", "STEP", "Call"]


@dataclass(eq=False, slots=True)
class Call:
    """A call of the outline with its callees; `text` has its arguments, and its result after `->`."""

    name: str
    level: Level
    text: str = ""
    mark: str = ""
    children: list["Call"] = field(default_factory=list)

    @property
    def of_request(self) -> bool:
        """True if its text has the request's id, and so differs for each call."""
        return "{r}" in self.text

    def attributes(self, tokens: int, thread: str, request: str = "", computed: int = 0) -> dict[str, Any]:
        """The attributes of the call's span."""
        owner, _, method = self.name.rpartition(".")
        module = (owner or method).lower()
        attributes: dict[str, Any] = {
            names.CODE_FUNCTION: f"tracellm.engine.{module}.{self.name}",
            names.CODE_FILE: f"tracellm/engine/{module}.py",
            names.CODE_LINE: 20 + len(self.name) * 7,
            names.LIFELINE: owner or f"{method}.py",
            names.LEVEL: self.level,
        }
        if thread:
            attributes[names.THREAD_NAME] = thread
        text = self.text.replace("{n}", str(tokens)).replace("{r}", request).replace("{c}", str(computed))
        arguments, _, result = text.partition("->")
        if arguments.strip():
            attributes[names.ARGUMENTS] = arguments.strip().split("; ")
        if result:
            attributes[names.RESULT] = result.strip()
        return attributes


def _outline(text: str) -> list[Call]:
    """Return the calls of an outline, each with those below it."""
    top: list[Call] = []
    levels = {level[0]: level for level in LEVELS}
    path: list[Call] = []
    for line in text.strip("\n").splitlines():
        words = line.split(maxsplit=3) if line.lstrip().startswith("*") else ["", *line.split(maxsplit=2)]
        mark, name, level, text = (*words, "")[:4]
        depth = (len(line) - len(line.lstrip())) // 2
        call = Call(name, levels[level], text, mark[1:])
        (path[depth - 1].children if depth else top).append(call)
        path[depth:] = [call]
    return top


STARTUP = _outline("""
EngineArgs.create_engine_config r
  EngineArgs.create_model_config r
    import_libraries r
Executor.get_class r vllm_config=VllmConfig -> UniProcExecutor
get_tokenizer r tokenizer_name=tiny -> Tokenizer
Processor.__init__ s
OutputProcessor.__init__ s
""")
"""`LLM.__init__` until the client is made."""

ENGINE = _outline("""
UniProcExecutor.__init__ r
  WorkerWrapperBase.init_worker r
    Worker.__init__ r
  Worker.init_device r
    GPUModelRunner.__init__ r
  Worker.load_model r
    GPUModelRunner.load_model r
      DefaultModelLoader.load_model r model_config=ModelConfig -> Qwen2ForCausalLM
        Qwen2ForCausalLM.__init__ r
          Qwen2Model.__init__ s
        DefaultModelLoader.load_weights r
EngineCore._initialize_kv_caches r
  UniProcExecutor.get_kv_cache_specs r
  UniProcExecutor.determine_available_memory r -> [1073741824]
  UniProcExecutor.initialize_from_config r
    Worker.initialize_from_config s
      GPUModelRunner.initialize_kv_cache s
Scheduler.__init__ r
  KVCacheManager.__init__ s
    BlockPool.__init__ s
""")
"""`EngineCore.__init__`."""

_PROCESS_INPUTS = """
LLM._process_inputs r prompt=str of {n}; params=SamplingParams -> EngineCoreRequest
  Processor.process_inputs r prompt=str of {n}; params=SamplingParams -> EngineCoreRequest
    Processor._validate_params r params=SamplingParams
    InputPreprocessor.preprocess r prompt=str of {n} -> dict
      InputPreprocessor._process_text r -> dict
        InputPreprocessor.tokenize_prompt r prompt=str of {n} -> list of {n}
    Processor._validate_model_input r
LLMEngine.add_request r request=EngineCoreRequest
  OutputProcessor.add_request r request=EngineCoreRequest
    RequestState.from_new_request r -> RequestState
      IncrementalDetokenizer.from_new_request r -> FastIncrementalDetokenizer
"""

ADD_INPROC = _outline(
    _PROCESS_INPUTS
    + """
  InprocClient.add_request r request=EngineCoreRequest
    EngineCore.preprocess_add_request r request=EngineCoreRequest -> Request
      Request.from_engine_core_request r -> Request
    EngineCore.add_request r request=Request
      Scheduler.add_request r request=Request
        FCFSRequestQueue.add_request r request=Request
""".lstrip("\n")
)
"""`LLM._add_request` with the engine core in this process."""

ADD_MP = _outline(
    _PROCESS_INPUTS
    + """
  SyncMPClient.add_request r request=EngineCoreRequest
    SyncMPClient._send_input r
""".lstrip("\n")
)
"""`LLM._add_request` with the engine core in another process; `_send_input`, its last call, encodes the message."""

RECEIVED = _outline("""
EngineCore.preprocess_add_request r request=EngineCoreRequest -> Request
  Request.from_engine_core_request r -> Request
EngineCore.add_request r request=Request
  Scheduler.add_request r request=Request
    FCFSRequestQueue.add_request r request=Request
""")
"""The engine core's process receives a request."""

STEP = _outline("""
EngineCore._schedule s
  Scheduler.schedule s -> {n} tokens
    *prefills KVCacheManager.get_computed_blocks s request=Request -> 0 tokens
      UnitaryKVCacheCoordinator.find_longest_cache_hit l max_cache_hit_length={n} -> ()
        FullAttentionManager.find_longest_cache_hit l max_length={n} -> ()
    *requests KVCacheManager.allocate_slots s request=Request; num_new_tokens={n} -> KVCacheBlocks
      UnitaryKVCacheCoordinator.remove_skipped_blocks l request_id={r}; num_computed_tokens={c}
      BlockPool.touch l
      UnitaryKVCacheCoordinator.allocate_new_blocks l request_id={r}; num_tokens={c} -> list
        *block BlockPool.get_new_blocks l num_blocks=1 -> list of 1
      UnitaryKVCacheCoordinator.cache_blocks l
    Scheduler._make_cached_request_data l -> CachedRequestData
    Scheduler._update_after_schedule l
EngineCore._execute_model s scheduler_output=SchedulerOutput -> ModelRunnerOutput
  UniProcExecutor.execute_model s
    UniProcExecutor.collective_rpc s
      Worker.execute_model s
        GPUModelRunner.execute_model s
          GPUModelRunner._update_states s
          GPUModelRunner._prepare_inputs s
          GPUModelRunner._build_attention_metadata s
          GPUModelRunner._model_forward s input_ids=int64[{n}]; positions=int64[{n}] -> bfloat16[{n}, 256]
            Qwen2ForCausalLM.forward s input_ids=int64[{n}] -> bfloat16[{n}, 256]
              Qwen2Model.forward s input_ids=int64[{n}] -> bfloat16[{n}, 256]
                VocabParallelEmbedding.forward l input_ids=int64[{n}] -> bfloat16[{n}, 256]
                *layers Qwen2DecoderLayer.forward l hidden_states=bfloat16[{n}, 256] -> tuple of 2
                  RMSNorm.forward l x=bfloat16[{n}, 256]; residual=bfloat16[{n}, 256] -> tuple of 2
                    TorchOps.fused_add_rms_norm k x=bfloat16[{n}, 256]; residual=bfloat16[{n}, 256] -> tuple of 2
                      TorchOps.rms_norm k x=bfloat16[{n}, 256]; weight=bfloat16[256] -> bfloat16[{n}, 256]
                  Qwen2Attention.forward l hidden_states=bfloat16[{n}, 256] -> bfloat16[{n}, 256]
                    QKVParallelLinear.forward k x=bfloat16[{n}, 256] -> bfloat16[{n}, 512]
                    RotaryEmbedding.forward l positions=int64[{n}] -> tuple of 2
                      TorchOps.rotary_embedding k positions=int64[{n}] -> tuple of 2
                    Attention.forward l query=bfloat16[{n}, 256]; key=bfloat16[{n}, 128] -> bfloat16[{n}, 256]
                      TorchOps.reshape_and_cache k key=bfloat16[{n}, 2, 64]
                      TorchOps.paged_attention k query=bfloat16[{n}, 4, 64] -> bfloat16[{n}, 256]
                    ReplicatedLinear.forward k x=bfloat16[{n}, 256] -> bfloat16[{n}, 256]
                  RMSNorm.forward l x=bfloat16[{n}, 256]; residual=bfloat16[{n}, 256] -> tuple of 2
                    TorchOps.fused_add_rms_norm k x=bfloat16[{n}, 256]; residual=bfloat16[{n}, 256] -> tuple of 2
                      TorchOps.rms_norm k x=bfloat16[{n}, 256]; weight=bfloat16[256] -> bfloat16[{n}, 256]
                  Qwen2MLP.forward l x=bfloat16[{n}, 256] -> bfloat16[{n}, 256]
                    MergedColumnParallelLinear.forward k x=bfloat16[{n}, 256] -> bfloat16[{n}, 1376]
                    SiluAndMul.forward l x=bfloat16[{n}, 1376] -> bfloat16[{n}, 688]
                      TorchOps.silu_and_mul k x=bfloat16[{n}, 1376] -> bfloat16[{n}, 688]
                    ReplicatedLinear.forward k x=bfloat16[{n}, 688] -> bfloat16[{n}, 256]
                RMSNorm.forward l x=bfloat16[{n}, 256]; residual=bfloat16[{n}, 256] -> tuple of 2
          Qwen2ForCausalLM.compute_logits s hidden_states=bfloat16[8, 256] -> float32[8, 4096]
            ParallelLMHead.forward l
  UniProcExecutor.sample_tokens s
    Worker.sample_tokens s
      GPUModelRunner.sample_tokens s -> ModelRunnerOutput
        GPUModelRunner._sample s logits=float32[8, 4096] -> SamplerOutput
          Sampler.forward s logits=float32[8, 4096] -> SamplerOutput
            Sampler.apply_logits_processors l
            Sampler.sample l -> int64[8]
        GPUModelRunner._bookkeeping_sync s
EngineCore._process_model_outputs s
  Scheduler.update_from_output s
    *requests Scheduler._update_request_with_output l request=Request; new_token_ids=list of 1 -> tuple of 2
      check_stop l request=Request; max_model_len=512 -> False
    *finished KVCacheManager.free s request=Request
      BlockPool.free_blocks l
""")
"""`EngineCore.step_fn`."""

OUTPUTS = _outline("""
OutputProcessor.process_outputs s engine_core_outputs=list of 8 -> OutputProcessorOutput
  *requests FastIncrementalDetokenizer.update l
  *requests LogprobsProcessor.update_from_output l
  *requests RequestState.make_request_output l
""")
"""`LLMEngine.step` handles the outputs of a step."""
