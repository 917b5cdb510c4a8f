"""Texts of `tracellm doctor`."""

__all__ = ["EN", "ZH"]

EN = {
    "cli.help.doctor.short": "Look whether all that is needed is here, and a real vLLM can be explained.",
    "cli.help.doctor": "Look at Python, torch, the GPU and a real vLLM: which probes find their target in it, "
    "and what to do where something is wrong. Exit status 1 if something is.",
    "cli.help.doctor.json": "As JSON: a list of objects with name, status (good, note or bad), found, advice, details.",
    "doctor.python_old": "tracellm needs Python 3.11 or later",
    "doctor.torch_none": "cannot be imported ({error})",
    "doctor.torch_none_advice": "the engine here needs it: pip install torch. Reports of earlier runs do not",
    "doctor.gpu_none": "none; models run on the CPU",
    "doctor.vllm_none": "not installed",
    "doctor.vllm_none_advice": "only needed to explain a real vLLM: install tracellm where that is. "
    "Scripts for vLLM run without it: tracellm run --explain --engine tracellm SCRIPT",
    "doctor.plugin": "plugin of vLLM",
    "doctor.plugin_none": "no entry point in {group}",
    "doctor.plugin_none_advice": "processes that vLLM starts may miss the recording: install tracellm anew with pip, "
    "so that its entry points are known",
    "doctor.plugin_barred": "{variable} is {value!r}, so vLLM does not load tracellm's",
    "doctor.plugin_barred_advice": "add tracellm to it, or unset it",
    "doctor.probes": "probes for vLLM",
    "doctor.probes_looking": "looking for what they watch, by importing vLLM's modules: some 20 seconds ...",
    "doctor.probes_found": "{n:,} of {probes:probe|probes} found their target in vLLM {version}",
    "doctor.probes_missing_advice": "these functions are not in this version under any name that is known: "
    "reports lack what they would tell, and are right otherwise. A newer tracellm may know them",
    "doctor.probes_unread": "these modules cannot be imported here: whether their probes find a target is not known",
    "doctor.probes_unknown": "vLLM could not be looked at ({error})",
    "doctor.probes_unknown_advice": "see whether it can be used at all: python -c 'import vllm'",
}

ZH = {
    "cli.help.doctor.short": "检查所需的一切是否就绪，以及能否解释真实的 vLLM。",
    "cli.help.doctor": "检查 Python、torch、GPU 和真实的 vLLM：哪些探针能在其中找到对象，以及有问题时该怎么做。"
    "有问题时退出状态为 1。",
    "cli.help.doctor.json": "以 JSON 输出：一个对象列表，"
    "含 name、status（good、note 或 bad）、found、advice、details。",
    "doctor.python_old": "tracellm 需要 Python 3.11 或更高版本",
    "doctor.torch_none": "无法导入（{error}）",
    "doctor.torch_none_advice": "这里的引擎需要它：pip install torch。查看以前的运行则不需要",
    "doctor.gpu_none": "没有；模型在 CPU 上运行",
    "doctor.vllm_none": "未安装",
    "doctor.vllm_none_advice": "只有解释真实的 vLLM 才需要：请把 tracellm 安装到 vLLM 所在的环境。"
    "为 vLLM 写的脚本没有它也能运行：tracellm run --explain --engine tracellm SCRIPT",
    "doctor.plugin": "vLLM 插件",
    "doctor.plugin_none": "{group} 中没有入口点",
    "doctor.plugin_none_advice": "vLLM 启动的进程可能不会加入记录：请用 pip 重新安装 tracellm，使其入口点可见",
    "doctor.plugin_barred": "{variable} 为 {value!r}，因此 vLLM 不加载 tracellm 的插件",
    "doctor.plugin_barred_advice": "请把 tracellm 加进去，或取消这个变量",
    "doctor.probes": "vLLM 的探针",
    "doctor.probes_looking": "正在导入 vLLM 的模块，查找它们要观察的函数：大约 20 秒……",
    "doctor.probes_found": "{probes:,} 个探针中有 {n:,} 个在 vLLM {version} 里找到了对象",
    "doctor.probes_missing_advice": "这个版本里没有这些函数（已知的其他名字也没有）："
    "报告缺少它们本应说明的内容，其余不受影响。更新的 tracellm 也许认识它们",
    "doctor.probes_unread": "这些模块在这里无法导入：不知道它们的探针能否找到对象",
    "doctor.probes_unknown": "无法检查 vLLM（{error}）",
    "doctor.probes_unknown_advice": "先看看它本身能否使用：python -c 'import vllm'",
}
