"""Texts of the HTML page about Triton kernels."""

__all__ = ["EN", "ZH"]

EN = {
    "html.kernels": "Triton kernels",
    "html.kernels.short": "Kernels",
    "html.kernels.lead": "A launch asks the GPU to run a kernel and returns at once; the GPU works it off later. So "
    "the two times are not parts of each other. Bytes and operations are what the launches have to do, from the "
    "shapes and lengths of their tensors; on the CPU, in Triton's interpreter, the first time is that of the kernels "
    "themselves.",
    "html.kernels.column.name": "Kernel",
    "html.kernels.column.launches": "Launches",
    "html.kernels.column.cpu": "To launch (CPU)",
    "html.kernels.column.gpu": "To run (GPU)",
    "html.kernels.column.bytes": "Read and written",
    "html.kernels.column.flops": "Operations",
    "html.kernels.column.intensity": "Operations per byte",
    "html.kernels.no_gpu": "no GPU",
    "html.kernels.timed": "{n:,} of them known",
    "html.kernels.rate": "{rate} GB/s",
}

ZH = {
    "html.kernels": "Triton 内核",
    "html.kernels.short": "内核",
    "html.kernels.lead": "启动只是请 GPU 运行一个内核，随即返回；GPU 稍后才执行。所以两个时间互不包含。字节数和运算次数"
    "是这次启动要做的工作，由张量的形状和长度算出；在 CPU 上用 Triton 的解释器运行时，第一个时间就是内核本身的时间。",
    "html.kernels.column.name": "内核",
    "html.kernels.column.launches": "启动次数",
    "html.kernels.column.cpu": "启动用时（CPU）",
    "html.kernels.column.gpu": "运行用时（GPU）",
    "html.kernels.column.bytes": "读写量",
    "html.kernels.column.flops": "运算次数",
    "html.kernels.column.intensity": "每字节运算次数",
    "html.kernels.no_gpu": "没有 GPU",
    "html.kernels.timed": "其中 {n:,} 次已知",
    "html.kernels.rate": "{rate} GB/s",
}
