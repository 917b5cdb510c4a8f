"""Leftovers of engines in a running program: none, with any threads, child processes and forks."""

from tests.faults.processes import Program

SCRIPT = """
import gc, multiprocessing, os, sys, tempfile, threading, warnings
from pathlib import Path
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import EngineError

warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)  # Python 3.12 warns of every fork here
GREEDY = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)

def make():
    return LLM(multiprocess_mode=True, max_model_len=256, num_gpu_blocks_override=33)

def tokens(llm):
    return list(llm.generate("Hello", GREEDY, use_tqdm=False)[0].outputs[0].token_ids)

def children():
    return len(multiprocessing.active_children())

# Two at the same time, each made by a thread.
llms, answers = [], []
def in_a_thread():
    llm = make()
    answers.append(tokens(llm))
    llms.append(llm)
threads = [threading.Thread(target=in_a_thread) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
del threads, thread
print("two", children(), len(list(Path(tempfile.gettempdir()).glob("tracellm-*"))), answers[0] == answers[1])
llms.pop()
gc.collect()
print("one", children(), len(list(Path(tempfile.gettempdir()).glob("tracellm-*"))))

# A process that is forked may not use it, and does not end it: not by leaving, not by deleting it.
def use(llm):
    try: tokens(llm)
    except EngineError as error: print("forked:", "from which this one" in str(error), flush=True)
fork = multiprocessing.get_context("fork")
child = fork.Process(target=use, args=llms)
child.start()
child.join()
pid = os.fork()
if not pid:
    del llms
    gc.collect()
    os._exit(3)
print("exit codes", child.exitcode, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
child.close()
print("still right", tokens(llms[0]) == answers[0])
del llms
gc.collect()

# Nor does a process of a Pool get further than a sentence.
def make_in_a_pool(_):
    try: make()
    except EngineError as error: return "daemonic" in str(error)
with fork.Pool(1) as pool:
    print("in a pool", pool.map(make_in_a_pool, [0]))
pool.join()
print("none", children(), len(list(Path(tempfile.gettempdir()).glob("tracellm-*"))))
print("threads", [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()])
"""


def test_engines_come_and_go_in_one_program():
    """Two engines made by threads, a deleted one and forks leave no processes, directories or threads."""
    with Program.of_code(SCRIPT) as program:
        lines = program.lines_until("threads")
        assert lines == [
            "two 2 2 True",
            "one 1 1",
            "forked: True",
            "exit codes 0 3",
            "still right True",
            "in a pool [True]",
            "none 0 0",
            "threads []",
        ]
        assert program.end() == 0
        assert program.stderr() == ""
        assert program.leftovers() == []


def test_an_llm_of_a_child_process_does_not_keep_it_from_ending():
    """The engine of a child process ends before multiprocessing waits for it at the child's end."""
    code = (
        "import multiprocessing\n"
        "def make():\n"
        "    global llm\n"
        "    from tracellm import LLM\n"
        "    llm = LLM(multiprocess_mode=True, max_model_len=256)\n"
        "child = multiprocessing.get_context('fork').Process(target=make)\n"
        "child.start()\n"
        "child.join()\n"
        "print('ended', child.exitcode)\n"
    )
    with Program.of_code(code) as program:
        assert program.line() == "ended 0"
        assert program.end() == 0
        assert program.leftovers() == []
