"""Texts of the course: verdicts of a check, and `tracellm lab`."""

EN = {
    "lab.other_shape": "the output has another shape than the reference's ({error})",
    "lab.not_run": "not run, because earlier cases took too long or ended the process",
    "lab.ended_timeout": "no result after {detail} s: an endless loop?",
    "lab.ended_exit": "the process ended in this case with exit status {detail} (os._exit?)",
    "lab.ended_signal": "the process was ended by {detail} in this case",
    "lab.ended_output": "more than {detail} bytes were printed",
    "lab.ended_processes": "more than {detail} processes were started",
    "lab.ended_results": "the results were too large or damaged",
    "lab.not_written": "{function} is not written yet ({place})",
    "lab.not_loaded": "your file cannot be imported: {error}",
    "lab.not_loaded_at": "your file cannot be imported: {error} ({place})",
    "lab.raised": "{error}",
    "lab.raised_at": "{error} ({place})",
}

ZH = {
    "lab.other_shape": "输出的形状与参考实现不同（{error}）",
    "lab.not_run": "没有运行：前面的用例耗时过长，或结束了进程",
    "lab.ended_timeout": "{detail} 秒后仍没有结果：是否有死循环？",
    "lab.ended_exit": "进程在此用例中结束，退出状态为 {detail}（是否调用了 os._exit？）",
    "lab.ended_signal": "进程在此用例中被 {detail} 结束",
    "lab.ended_output": "打印超过了 {detail} 字节",
    "lab.ended_processes": "启动了超过 {detail} 个进程",
    "lab.ended_results": "结果过大或已损坏",
    "lab.not_written": "{function} 还没有实现（{place}）",
    "lab.not_loaded": "无法导入你的文件：{error}",
    "lab.not_loaded_at": "无法导入你的文件：{error}（{place}）",
    "lab.raised": "{error}",
    "lab.raised_at": "{error}（{place}）",
}
