"""A process for the student's code: limits.py and worker.py run inside it, run.py starts and watches it."""
