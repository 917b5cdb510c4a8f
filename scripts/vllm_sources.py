"""Table of counterparts in vLLM: tracellm/report/facts/counterparts.json, made from the sources of two versions.

For each function that the probes record, the table has its file, name, line and parameters in vLLM 0.11.1 and 0.32.0,
and the names that only one of the two calls; or the reason why vLLM has none. Helpers that such a function calls in
its own file are marked `helper`, and are listed if vLLM has them. Neither package is imported. `VERSION=DIR` names the
folder that holds `vllm/`, such as an environment's site-packages:

    python -m scripts.vllm_sources 0.11.1=DIR 0.32.0=DIR
"""

import ast
import builtins
import json
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache, cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from tracellm.probes.catalog.engine import CATALOG as ENGINE
from tracellm.probes.catalog.entries import VLLM_MODULES
from tracellm.probes.catalog.vllm import CATALOG as VLLM
from tracellm.report.facts.counterparts import VLLM_VERSIONS as VERSIONS
from tracellm.report.facts.counterparts import module_of, parameters
from tracellm.report.html.source_data import helpers

__all__ = [
    "NAMED",
    "TABLE",
    "Package",
    "called_names",
    "column",
    "named",
    "our_functions",
    "our_helpers",
    "references",
    "rows",
    "text_of",
]

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tracellm" / "report" / "facts" / "counterparts.json"
NAMED = ROOT / "tests" / "fixtures" / "vllm" / "named.json"
"""Files and names of vLLM in tracellm's docstrings, each with the versions that have it; for tests."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Found(NamedTuple):
    """A function, where it is defined."""

    module: str
    file: str
    name: str
    node: _Function

    @property
    def row(self) -> dict[str, Any]:
        """The function in the table, with `calls`, the names of what it calls."""
        row: dict[str, Any] = {
            "file": self.file,
            "name": self.name,
            "line": self.node.lineno,
            "lines": (self.node.end_lineno or self.node.lineno) - self.node.lineno + 1,
            "parameters": parameters(self.node.args),
            "calls": called_names(self.node),
        }
        return {**row, "async": True} if isinstance(self.node, ast.AsyncFunctionDef) else row


_COMMON = frozenset(dir(builtins)).union(*map(dir, (list, dict, set, str, bytes, deque)))
_LOGGERS = frozenset({"logger", "warnings"})


def called_names(node: ast.AST) -> list[str]:
    """Return the names that a piece of code calls, without `self.`: no builtins, methods of containers, or logging."""
    names = {_dotted(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}
    return sorted(
        name.removeprefix("self.")
        for name in names
        if name and name.rpartition(".")[2] not in _COMMON and name.partition(".")[0] not in _LOGGERS
    )


def _dotted(node: ast.expr) -> str:
    """Return `a.b.c` of such an expression, and only its end if it begins with something else."""
    if isinstance(node, ast.Name):
        return node.id
    if not isinstance(node, ast.Attribute):
        return ""
    before = _dotted(node.value)
    return f"{before}.{node.attr}" if before else node.attr


class Class(NamedTuple):
    """A class, and the module that defines it."""

    module: str
    node: ast.ClassDef


class Package:
    """The source of a package, below the folder that holds it."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name = name
        self._trees: dict[str, tuple[str, ast.Module] | None] = {}

    def modules(self, pattern: str = "*") -> Iterator[str]:
        """Yield the names of the modules that match."""
        top = self.root.joinpath(*pattern.partition("*")[0].split(".")[:-1])
        for file in sorted(top.rglob("*.py")):
            parts = file.relative_to(self.root).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if fnmatchcase(module, pattern):
                yield module

    def tree(self, module: str) -> tuple[str, ast.Module] | None:
        """Return a module's file and its tree; None if there is no such module."""
        if module not in self._trees:
            file = self._file(module)
            self._trees[module] = None
            if file is not None:
                tree = ast.parse(file.read_text(encoding="utf-8"))
                self._trees[module] = file.relative_to(self.root).as_posix(), tree
        return self._trees[module]

    def _file(self, module: str) -> Path | None:
        """Return a module's file; None if there is no such module."""
        base = self.root.joinpath(*module.split("."))
        return next((file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file()), None)

    def find(self, target: str) -> Found | None:
        """Return the function `module:Class.method` or `module:function`, also one that is imported or inherited."""
        module, _, path = target.partition(":")
        class_name, _, name = path.partition(".")
        if not name:
            found = self._definition(module, class_name)
            return found if isinstance(found, Found) else None
        owner = self._definition(module, class_name)
        return self._method(*owner, name) if isinstance(owner, Class) else None

    def _definition(self, module: str, name: str, hops: int = 4) -> "Found | Class | None":
        """Return the function or class of this name, also one that is imported; None if there is none."""
        opened = self.tree(module)
        if opened is None:
            return None
        file, tree = opened
        for node in _definitions(tree):
            if isinstance(node, ast.ClassDef) and node.name == name:
                return Class(module, node)
            if isinstance(node, _Function) and node.name == name and not _is_overload(node):
                return Found(module, file, name, node)
            if isinstance(node, ast.ImportFrom) and hops:
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return self._definition(_imported(module, file, node), alias.name, hops - 1)
        return None

    def _method(self, module: str, owner: ast.ClassDef, name: str) -> Found | None:
        """Return a method of a class or of its bases; `name.inner` is a function within it."""
        opened = self.tree(module)
        assert opened is not None
        if (node := _nested(owner, name)) is not None:
            return Found(module, opened[0], f"{owner.name}.{name}", node)
        for base in owner.bases:
            base = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(base, ast.Name):
                found = self._definition(module, base.id)
                if isinstance(found, Class) and (method := self._method(*found, name)):
                    return method
        return None

    def has(self, file: str, path: str) -> bool:
        """Return whether a file exists and has a class, function, method or variable of this path, if one is given."""
        opened = self.tree(module_of(file))
        if opened is None or not path:
            return opened is not None
        node: ast.AST | None = opened[1]
        for name in path.split("."):
            node = next((one for one in _definitions(node) if name in _names(one)), None) if node else None
        return node is not None

    def homes(self, name: str) -> list[str]:
        """Return the modules that define the class or function `name` at their top."""
        return self._homes.get(name, [])

    @cached_property
    def _homes(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for module in self.modules(f"{self.name}.*"):
            file = self._file(module)
            source = file.read_text(encoding="utf-8") if file is not None else ""
            for defined in re.findall(r"^(?:class|def|async def) (\w+)", source, re.MULTILINE):
                found.setdefault(defined, []).append(module)
        return found


def _nested(owner: ast.AST, path: str) -> _Function | None:
    """Return the function `name` of a class, or `name.inner`; not one that only declares types (`@overload`)."""
    name, _, inner = path.partition(".")
    for node in ast.walk(owner) if isinstance(owner, _Function) else ast.iter_child_nodes(owner):
        if isinstance(node, _Function) and node.name == name and node is not owner and not _is_overload(node):
            return _nested(node, inner) if inner else node
    return None


def _is_overload(node: _Function) -> bool:
    return any(isinstance(decorator, ast.Name) and decorator.id == "overload" for decorator in node.decorator_list)


def _definitions(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what a module defines and imports, also under `if` and `try`."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from _definitions(node)


def _names(node: ast.AST) -> list[str]:
    """Return the names that a statement defines."""
    if isinstance(node, ast.ClassDef | _Function):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _imported(module: str, file: str, node: ast.ImportFrom) -> str:
    """Return the module that an import names."""
    if not node.level:
        return node.module or ""
    parts = module.split(".") if file.endswith("__init__.py") else module.split(".")[:-1]
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, node.module] if node.module else parts)


# -- functions of tracellm's engine ------------------------------------------------------------------------------------


@cache
def our_functions() -> dict[str, Found]:
    """Return the functions of tracellm's engine that the probes record, by `module.Class.method`."""
    package = Package(ROOT, "tracellm")
    found: dict[str, Found] = {}
    for entry in ENGINE:
        for function in _matching(package, entry.target):
            found.setdefault(f"{function.module}.{function.name}", function)
    return found


@cache
def our_helpers() -> dict[str, Found]:
    """Return the functions that those of `our_functions` call in their own files and that no probe records."""
    package = Package(ROOT, "tracellm")
    found: dict[str, Found] = {}
    waiting = [*our_functions().items()]
    for name, caller in waiting:
        for helper in helpers(name):
            if helper in found or helper in our_functions():
                continue
            function = package.find(f"{caller.module}:{helper.removeprefix(f'{caller.module}.')}")
            assert function is not None
            found[helper] = function
            waiting.append((helper, function))
    return found


def _matching(package: Package, target: str) -> Iterator[Found]:
    pattern, _, path = target.partition(":")
    class_pattern, _, name = path.rpartition(".")
    for module in package.modules(pattern) if "*" in pattern else [pattern]:
        names = [path]
        if "*" in class_pattern:
            opened = package.tree(module)
            names = [
                f"{node.name}.{name}"
                for node in (opened[1].body if opened else ())
                if isinstance(node, ast.ClassDef) and fnmatchcase(node.name, class_pattern)
                and any(isinstance(own, _Function) and own.name == name for own in node.body)
            ]  # fmt: skip
        for one in names:
            if (function := package.find(f"{module}:{one}")) is not None:
                yield function


# -- counterparts in vLLM ----------------------------------------------------------------------------------------------

_ENGINE = "tracellm.engine."
_CLIENT = "v1.engine.core_client"
_CORE = "v1.engine.core"
_LAYERS = "model_executor.layers"
_MODEL_RUNNER = "v1.worker.gpu_model_runner:GPUModelRunner"
_OUTPUT_HANDLER = "v1.engine.async_llm:AsyncLLM._run_output_handler.output_handler"
_TOP_K_TOP_P = "v1.sample.ops.topk_topp_sampler:apply_top_k_top_p"
_STEP = f"in {_CORE}:EngineCore.step"
_SCHEDULE = "in v1.core.sched.scheduler:Scheduler.schedule"
_NONE = ""

_NAMED: dict[str, str | tuple[str, str]] = {
    "config.tokenizer.get_tokenizer": (
        "transformers_utils.tokenizer:get_tokenizer",
        "tokenizers.registry:get_tokenizer",
    ),
    "model_executor.model_loader.default_loader.DefaultModelLoader.place_on_device": (
        "model_executor.model_loader.utils:process_weights_after_loading"
    ),
    "ipc.mp_client.MPClient.launch_core_engines": "v1.engine.utils:launch_core_engines",
    "ipc.mp_client.MPClient._send_input_message": f"{_CLIENT}:AsyncMPClient._send_input_message",
    "ipc.mp_client.SyncMPClient.process_outputs_socket": f"{_CLIENT}:SyncMPClient.__init__.process_outputs_socket",
    "ipc.mp_client.AsyncMPClient.process_outputs_socket": (
        f"{_CLIENT}:AsyncMPClient._ensure_output_queue_task.process_outputs_socket"
    ),
    "frontend.async_llm.output_handler": _OUTPUT_HANDLER,
    "core.core.EngineCore.step_fn": f"{_CORE}:EngineCore.step",
    "core.core.EngineCore._schedule": _STEP,
    "core.core.EngineCore._execute_model": _STEP,
    "core.core.EngineCore._process_model_outputs": _STEP,
    "core.sched.scheduler.Scheduler._schedule_running": f"{_SCHEDULE} at while req_index < len(self.running)",
    "core.sched.scheduler.Scheduler._schedule_waiting": (
        f"{_SCHEDULE} at while self.waiting and token_budget > 0",
        f"{_SCHEDULE} at while token_budget > 0",
    ),
    "core.sched.scheduler.Scheduler._preempt": (
        f"{_SCHEDULE} at if self.policy == SchedulingPolicy.PRIORITY",
        "v1.core.sched.scheduler:Scheduler._preempt_request",
    ),
    "core.sched.scheduler.Scheduler._get_num_wanted_tokens": f"{_SCHEDULE} at num_new_tokens = ",
    "core.sched.scheduler.Scheduler._chunk": f"{_SCHEDULE} at long_prefill_token_threshold < num_new_tokens",
    "core.sched.scheduler.Scheduler._get_num_common_prefix_blocks": (
        f"{_SCHEDULE} at num_common_prefix_blocks = ",
        _NONE,
    ),
    **{
        f"entrypoints.pooling.methods.PoolingMethods.{name}": (
            f"entrypoints.llm:LLM.{name}",
            f"entrypoints.pooling.offline:PoolingOfflineMixin.{name}",
        )
        for name in ("embed", "encode", "score")
    },
    "sample.sampler.Sampler._reported_logprobs": "in v1.sample.sampler:Sampler.forward at raw_logprobs",
    "core.core_proc.EngineCoreProc._call_utility": (
        f"in {_CORE}:EngineCoreProc._handle_client_request",
        f"{_CORE}:EngineCoreProc._invoke_utility_method",
    ),
    "core.structured_output.manager.StructuredOutputManager.accept_tokens": (
        "in v1.core.sched.scheduler:Scheduler.update_from_output",
        "v1.structured_output:StructuredOutputManager.accept_tokens",
    ),
    "ipc.core_client.choose_client": f"in {_CLIENT}:EngineCoreClient.make_client",
    "ipc.launch.CoreEngineProcManager.start": "in v1.engine.utils:CoreEngineProcManager.__init__",
    "ipc.mp_client.BackgroundResources.died_by_itself": f"in {_CLIENT}:MPClient.start_engine_core_monitor",
    "frontend.llm_engine.LLMEngine._add_request": "in v1.engine.llm_engine:LLMEngine.add_request",
    "core.kv_cache.kv_cache_utils.get_kv_cache_configs": "v1.core.kv_cache_utils:get_kv_cache_configs",
    "core.structured_output.manager.StructuredOutputManager._create_grammar": (
        "v1.structured_output:StructuredOutputManager._async_create_grammar",
        "v1.structured_output:StructuredOutputManager._create_grammar",
    ),
    "entrypoints.chat_utils.apply_hf_chat_template": (
        "entrypoints.chat_utils:apply_hf_chat_template",
        "renderers.hf:safe_apply_chat_template",
    ),
    "entrypoints.llm.LLM._validate_and_add_requests": (
        "entrypoints.llm:LLM._validate_and_add_requests",
        "entrypoints.common.offline:OfflineInferenceMixin._render_and_add_requests",
    ),
    "entrypoints.openai.async_utils.AsyncTokenizer.tokenize": (
        "utils.async_utils:AsyncMicrobatchTokenizer.__call__",
        "renderers.base:BaseRenderer.tokenize_prompt_async",
    ),
    "entrypoints.openai.serving_engine.OpenAIServing._preprocess_chat": (
        "entrypoints.openai.serving_engine:OpenAIServing._preprocess_chat",
        "renderers.online_renderer:OnlineRenderer.preprocess_chat",
    ),
    "frontend.preprocess.InputPreprocessor.tokenize_prompt": (
        "inputs.preprocess:InputPreprocessor._tokenize_prompt",
        "renderers.base:BaseRenderer.tokenize_prompt",
    ),
    "sample.ops.apply_bad_words": "v1.sample.ops.bad_words:apply_bad_words",
    "sample.ops.random_sample": "v1.sample.ops.topk_topp_sampler:random_sample",
    "sample.ops.compute_logprobs": "v1.sample.sampler:Sampler.compute_logprobs",
    "sample.ops.gather_logprobs": "v1.sample.sampler:Sampler.gather_logprobs",
    "worker.prompt_logprobs.InProgressPromptLogprobs.add_chunk": f"{_MODEL_RUNNER}._get_prompt_logprobs_dict",
    "model_executor.layers.attention.Attention.forward": (
        "attention.layer:Attention.forward",
        f"{_LAYERS}.attention.attention:Attention.forward",
    ),
    "model_executor.layers.vocab_embedding.VocabParallelEmbedding.forward": (
        f"{_LAYERS}.vocab_parallel_embedding:VocabParallelEmbedding.forward_native",
        f"{_LAYERS}.vocab_parallel_embedding:VocabParallelEmbedding.forward",
    ),
    "*.ParallelLMHead.forward": f"{_LAYERS}.logits_processor:LogitsProcessor.forward",
    "model_executor.layers.activation.SiluAndMul.forward": f"{_LAYERS}.activation:SiluAndMul.forward_native",
    "model_executor.layers.activation.GeluAndMul.forward": f"{_LAYERS}.activation:GeluAndMul.forward_native",
    "model_executor.layers.activation.QuickGELU.forward": f"{_LAYERS}.activation:QuickGELU.forward_native",
    "model_executor.layers.rotary_embedding.MRotaryEmbedding.forward": (
        f"{_LAYERS}.rotary_embedding.mrope:MRotaryEmbedding.forward_native"
    ),
    "model_executor.layers.layernorm.RMSNorm.forward": f"{_LAYERS}.layernorm:RMSNorm.forward_native",
    "model_executor.layers.layernorm.GemmaRMSNorm.forward": f"{_LAYERS}.layernorm:GemmaRMSNorm.forward_native",
    "model_executor.layers.rotary_embedding.RotaryEmbedding.forward": (
        f"{_LAYERS}.rotary_embedding.base:RotaryEmbedding.forward_native"
    ),
    "*.TorchOps.rms_norm": f"{_LAYERS}.layernorm:RMSNorm.forward_native",
    "*.TorchOps.fused_add_rms_norm": f"{_LAYERS}.layernorm:RMSNorm.forward_native",
    "*.TorchOps.rotary_embedding": f"{_LAYERS}.rotary_embedding.base:RotaryEmbedding.forward_native",
    "*.TorchOps.silu_and_mul": f"{_LAYERS}.activation:SiluAndMul.forward_native",
    "*.TorchOps.gelu_tanh_and_mul": f"{_LAYERS}.activation:GeluAndMul.forward_native",
    "*.TorchOps.gemma_rms_norm": f"{_LAYERS}.layernorm:GemmaRMSNorm.forward_native",
    "*.TorchOps.apply_top_k_top_p": (_TOP_K_TOP_P, f"{_TOP_K_TOP_P}_pytorch"),
    "*.TritonOps.apply_top_k_top_p": (_NONE, "v1.sample.ops.topk_topp_triton:apply_top_k_top_p_triton"),
    "*Ops.apply_top_k_top_p": _TOP_K_TOP_P,
    "*Ops.rms_norm": "_custom_ops:rms_norm",
    "*Ops.fused_add_rms_norm": "_custom_ops:fused_add_rms_norm",
    "*Ops.rotary_embedding": "_custom_ops:rotary_embedding",
    "*Ops.silu_and_mul": f"{_LAYERS}.activation:SiluAndMul.forward_cuda",
    "*Ops.gelu_tanh_and_mul": f"{_LAYERS}.activation:GeluAndMul.forward_cuda",
    "*Ops.gemma_rms_norm": f"{_LAYERS}.layernorm:GemmaRMSNorm.forward_cuda",
    "*.CPUAttentionBackendImpl.reshape_and_cache": "_custom_ops:cpu_attn_reshape_and_cache",
    "*.CPUAttentionBackendImpl.paged_attention": "_custom_ops:cpu_attention_with_kv_cache",
    "*.TritonAttentionImpl.reshape_and_cache": (
        "attention.ops.triton_reshape_and_cache_flash:triton_reshape_and_cache_flash",
        "v1.attention.ops.triton_reshape_and_cache_flash:triton_reshape_and_cache_flash",
    ),
    "*.TritonAttentionImpl.paged_attention": (
        "attention.ops.triton_unified_attention:unified_attention",
        "v1.attention.ops.triton_unified_attention:unified_attention",
    ),
}
"""Functions of vLLM with another name or file, in both versions or in each of them; `in` stands before one that has
ours as a part, and `at` before a text of the first statement of that part. `*` stands for any text, and the first
pattern that matches counts. Names of ours are without `tracellm.engine.`, those of vLLM without `vllm.`."""

_OWN: dict[str, str] = {
    "config.libraries.import_libraries": "imports",
    "core.structured_output.manager.StructuredOutputManager.wait_for_a_grammar": "own",
    "sample.ops.argmax": "own",
    "*.TorchAttentionImpl.*": "reference",
    "model_executor.ops.triton.launch.launch": "launch",
}
"""Functions without a counterpart: the reason, a text of tracellm/report/texts/page/source.py."""


def _given(table: Mapping[str, Any], name: str) -> Any:
    short = name.removeprefix(_ENGINE)
    return next((value for pattern, value in table.items() if fnmatchcase(short, pattern)), None)


def _counterpart(name: str, ours: Found, version: str, package: Package) -> dict[str, Any] | None:
    """Return the row of our function's counterpart: the one named here, that of the same module, or a moved class's."""
    given = _given(_NAMED, name)
    if given is not None:
        target = given if isinstance(given, str) else given[VERSIONS.index(version)]
        if not target:
            return None
        place, _, text = target.partition(" at ")
        found = package.find(f"vllm.{place.removeprefix('in ')}")
        part = found and (_first_statement(found.node, text) if text else found.node)
        if found is None or part is None:
            raise LookupError(f"vLLM {version} has no {target}, the counterpart of {name}")
        if not target.startswith("in "):
            return found.row
        return {**found.row, "line": part.lineno, "calls": called_names(part), "part": True}
    targets = [*_candidates(ours)]
    homes = package.homes(ours.name.partition(".")[0]) if not ours.name.startswith("_") else []
    if len(homes) == 1:
        targets.append(f"{homes[0]}:{ours.name}")
    return next((found.row for target in targets if (found := package.find(target)) is not None), None)


def _first_statement(function: _Function, text: str) -> ast.stmt | None:
    """Return the first statement in a function with a text, which a compound one has before its colon."""
    statements = (node for node in ast.walk(function) if isinstance(node, ast.stmt) and node is not function)
    found = (node for node in statements if text in ast.unparse(node).partition("\n")[0])
    return min(found, key=attrgetter("lineno"), default=None)


def _candidates(ours: Found) -> Iterator[str]:
    """Yield the targets in vLLM with the name of our function: that of 0.11.1 first, then later ones."""
    for pattern, theirs in VLLM_MODULES.items():
        if fnmatchcase(ours.module, pattern):
            home = theirs.replace("*", ours.module.removeprefix(pattern.partition("*")[0]))
            target = f"{home}:{ours.name}"
            yield target
            yield from (other for entry in VLLM if entry.target == target for other in entry.other_targets)


def column(version: str, root: Path) -> dict[str, dict[str, Any]]:
    """Return one version's part of the table: counterparts by our names, and functions of vLLM alone by their names.

    Args:
        version: one of VERSIONS.
        root: folder that holds `vllm/`.
    """
    package = Package(root, "vllm")
    found: dict[str, dict[str, Any]] = {}
    for name, ours in (our_functions() | our_helpers()).items():
        if _given(_OWN, name) is None and (counterpart := _counterpart(name, ours, version, package)) is not None:
            found[name] = counterpart
    known = {(row["file"], row["name"]) for row in found.values() if "part" not in row}
    for entry in VLLM:
        if "*" in entry.target or not entry.target.startswith("vllm."):
            continue
        for target in entry.targets:
            if (function := package.find(target)) is not None:
                if (function.file, function.name) not in known:
                    found.setdefault(entry.target.replace(":", "."), function.row)
                break
    return found


def rows(columns: Mapping[str, Mapping[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the table: by our name, or by that of a function of vLLM alone, its counterpart in each version.

    `part` marks a function of vLLM that has ours as a part; `reason` is a code of the reason for none; `helper` marks a
    function of ours that no probe records. `calls` has what the last version calls and the first one does not, and the
    reverse.
    """
    table: dict[str, dict[str, Any]] = {}
    helpers_of_vllm = [name for name in our_helpers() if any(name in column for column in columns.values())]
    for name in [*our_functions(), *helpers_of_vllm, *(name for column in columns.values() for name in column)]:
        found = {version: column[name] for version, column in columns.items() if name in column}
        row: dict[str, Any] = {
            version: {key: value for key, value in own.items() if key != "calls"} for version, own in found.items()
        }
        row |= _changed_calls(found)
        reason: dict[str, Any] = {"reason": _given(_OWN, name) or "own"}
        table[name] = {**(row or reason), **({"helper": True} if name in our_helpers() else {})}
    return table


def _changed_calls(found: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, list[str]]]:
    if len(found) < len(VERSIONS):
        return {}
    before, after = (found[version]["calls"] for version in VERSIONS)
    changes = {"added": sorted({*after} - {*before}), "removed": sorted({*before} - {*after})}
    return {"calls": changes} if any(changes.values()) else {}


# -- files and names in docstrings -------------------------------------------------------------------------------------

_REFERENCE = re.compile(r"(?<![\w/])(vllm/[\w/]+\.py)((?:::[\w.]*\w(?:(?:,| and) (?=::))?)*)")


def references() -> dict[str, list[str]]:
    """Return what docstrings of tracellm name of vLLM, `path.py` or `path.py::name`, with the files that name it."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tracellm").rglob("*.py")):
        strings = [node.value for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if _is_text(node)]
        for path, listed in _REFERENCE.findall(" ".join(" ".join(map(str, strings)).split())):
            for name in re.findall(r"::([\w.]+)", listed) or [""]:
                found.setdefault(f"{path}::{name}" if name else path, []).append(file.relative_to(ROOT).as_posix())
    return found


def _is_text(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def named(version_root: Path, wanted: Iterable[str]) -> list[str]:
    """Return the references that exist in the vLLM below a folder."""
    package = Package(version_root, "vllm")
    return [reference for reference in wanted if package.has(*reference.partition("::")[::2])]


def text_of(table: Mapping[str, Any]) -> str:
    """Return the table as JSON, with a line for each function."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in table.items())
    return f"{{\n{lines}\n}}\n"


def main() -> None:
    """Write the table."""
    roots = dict(argument.split("=", 1) for argument in sys.argv[1:])
    if set(roots) != set(VERSIONS):
        sys.exit(__doc__)
    table = rows({version: column(version, Path(roots[version])) for version in VERSIONS})
    TABLE.write_text(text_of(table), encoding="utf-8")
    present = {version: set(named(Path(roots[version]), references())) for version in VERSIONS}
    found = {name: [version for version in VERSIONS if name in present[version]] for name in references()}
    NAMED.write_text(text_of(dict(sorted(found.items()))), encoding="utf-8")
    print(f"made {TABLE.relative_to(ROOT)}: {len(table)} functions; {NAMED.relative_to(ROOT)}: {len(found)} names")
    for name, versions in found.items():
        if not versions:
            print(f"no version has {name}, which is in {', '.join(references()[name])}")


if __name__ == "__main__":
    main()
