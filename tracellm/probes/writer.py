"""The thread that takes records out of the buffer, and the buffer between it and the probed calls.

Every probed call of every thread appends to one list; appending and cutting off its front are each a single operation
that no other thread can interrupt, so nothing is locked and nothing is dropped. The order in the list is the order in
which calls ended. Should the list grow too long, those who append wait (gate.py).

What becomes of the records is a desk's business (desk.py), which is best in another process (courier.py). To pack them
for that takes some microseconds each, and several times as long where it takes turns with the engine at the
interpreter's lock: one waits for the other some hundred times a step. So an engine whose step has ended waits until all
that is there is packed. This thread does it all the same: an interrupt strikes the main thread, and no half-packed
message must be left.
"""

import threading
import time
from _thread import LockType, allocate_lock
from collections.abc import Callable, Collection
from queue import Empty, SimpleQueue

from tracellm.probes.desk import AnyDesk, AnyRecord, Pause, no_pause
from tracellm.probes.gate import Gate
from tracellm.probes.listeners import Listeners
from tracellm.probes.state import Record, state

__all__ = ["Writer"]

FLUSH_SECONDS = 0.2
_CHUNK = 2048  # records that are handed over in one go
_SLICE = 128  # records done without a pause: under the interpreter's lock, a pause lets the engine go on ...
_PAUSE_SECONDS = 0.0005
_BEHIND = 4096  # ... though not at once: whoever has it keeps it for 5 ms. With so many to do, there are fewer pauses
_ENOUGH = 256  # records: with fewer, an engine whose step has ended does not wait until they are handed over
_PATIENCE_SECONDS = 0.02  # nor for longer than this
_FULL = 32_768  # records: with so many, those who make more wait until half of them are done


class Writer:
    """Owns the buffer and the thread of one process; hands the records to `desk`.

    In its thread `listeners` have their turns, and `each_round` is called, whenever it has looked whether there is
    something to write. `problems` is where it tells what went wrong. With `begin`, there is to be another desk as soon
    as there is something to write: what `begin` returns.

    Attributes:
        buffer: where records go.
        desk: where they are handed over.
        handed_over: how many records were.
    """

    def __init__(
        self,
        desk: AnyDesk,
        listeners: Listeners,
        problems: list[str],
        each_round: Callable[[], None] | None = None,
        begin: Callable[[], AnyDesk] | None = None,
    ) -> None:
        self.buffer: list[AnyRecord] = []
        self.desk = desk
        self.handed_over = 0
        self._listeners = listeners
        self._problems = problems
        self._each_round = each_round
        self._begin = begin
        self._under_way: Collection[int] = ()  # calls that had not ended when this was last looked at
        self._stopping = False
        self._asks: SimpleQueue[LockType | None] = SimpleQueue()  # to release when all is handed over; None: look up
        self._waits = False  # for an ask
        self._thread = threading.Thread(target=self._run, name="tracellm-writer", daemon=True)
        self._gate = Gate(self.buffer, self._thread)

    def start(self) -> None:
        """Begin to write in the background."""
        self._thread.start()

    def stop(self, ended: int, last: Record | None = None) -> None:
        """Write all that is left, and end the thread; the recording ended at this time, with the script's record."""
        self._stopping = True
        self._asks.put(None)
        self._gate.open()
        self._thread.join()
        with self.desk.effort.spent():
            self._listeners.look()  # others may have come and gone since the last look
            self.catch_up(self._pause)
            self._desk_for(state.open).end(ended, last, state.open)
            self._listeners.end()

    @property
    def held_up_ns(self) -> int:
        """How long calls had to wait, as they came faster than they could be written."""
        return self._gate.held_up_ns

    def wait_until_handed_over(self) -> None:
        """Called by an engine, once a step: wait until what was recorded is handed over, if that is soon done."""
        if len(self.buffer) >= _ENOUGH and self._waits and self.desk.is_quick:
            done = allocate_lock()
            done.acquire()
            self._asks.put(done)
            done.acquire(timeout=_PATIENCE_SECONDS)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopping:
            ask = self._next_ask(due)
            try:
                with self.desk.effort.spent():
                    if ask is None:
                        self._do_a_round()
                    else:
                        self.catch_up(no_pause)
            except Exception as error:  # what comes after it is still to be written
                problem = f"part of this run is not recorded: {type(error).__name__}: {error}"
                if problem not in self._problems:
                    self._problems.append(problem)
            if ask is not None:
                ask.release()
            else:
                due = time.monotonic() + (0 if len(self.buffer) > _BEHIND else FLUSH_SECONDS)

    def _next_ask(self, due: float) -> LockType | None:
        """Wait for somebody who waits; None when a round is due, or the end has come."""
        self._waits = True
        try:
            return self._asks.get(timeout=max(0.0, due - time.monotonic()))
        except Empty:
            return None
        finally:
            self._waits = False

    def _do_a_round(self) -> None:
        self._listeners.look()
        self.catch_up(self._pause)
        self._look()

    def catch_up(self, pause: Pause) -> None:
        """Write what is in the buffer now; what comes meanwhile waits."""
        left = len(self.buffer)
        desk = self._desk_for(left)
        while left > 0:
            chunk = self.buffer[: min(left, _CHUNK)]
            del self.buffer[: len(chunk)]
            left -= len(chunk)
            self.handed_over += len(chunk)
            desk.take(chunk, pause)

    def hand_over(self) -> None:
        """Write all that is there now, calls under way too; to be called in the writer's thread."""
        self.catch_up(self._pause)
        under_way = state.open.copy()
        self._desk_for(under_way).look(under_way)

    def _desk_for(self, something: object) -> AnyDesk:
        if something and self._begin is not None:
            begin, self._begin, effort = self._begin, None, self.desk.effort
            self.desk = begin()
            self.desk.effort = effort
        return self.desk

    def _pause(self) -> int:
        """Let the others run, and see whether they are not too fast for this thread."""
        waiting = len(self.buffer)
        if not self._stopping:
            if waiting > _FULL:
                self._gate.close()
            elif waiting < _FULL // 2:
                self._gate.open()
            self.desk.effort.lets_go()
            time.sleep(_PAUSE_SECONDS if waiting < _BEHIND else 0)
            self.desk.effort.goes_on()
        return _SLICE if waiting < _BEHIND else _CHUNK

    def _look(self) -> None:
        """Tell of calls that were under way already at the last look."""
        under_way = state.open.copy()  # in one piece: a dict's copy cannot be interrupted by a probed call
        lasting = {call: one for call, one in under_way.items() if call in self._under_way}
        self._under_way = under_way.keys()
        self._desk_for(lasting).look(lasting)
        if self._each_round is not None:
            self._each_round()
