"""Facts of a recorded run as data: start-up, requests, kernels, messages between processes, coverage."""
