"""Looks handlers up in a table."""


def _add(core, request):
    core.add_request(request) if isinstance(request, Request) else core._queue_outputs(*request)


def _abort(core, request_ids):
    core.abort_requests(request_ids)
    core.aborted.extend(request_ids)


def _utility(core, request):
    client_index, *call = request
    core.output_queue.put_nowait((client_index, EngineCoreOutputs(utility_output=core._call_utility(*call))))


def _failed(core, message):
    raise RuntimeError(message)


def _wakeup(core, nothing):
    raise SystemExit


_HANDLERS = {
    EngineCoreRequestType.ADD: _add,
    EngineCoreRequestType.ABORT: _abort,
    EngineCoreRequestType.UTILITY: _utility,
    EngineCoreRequestType.EXECUTOR_FAILED: _failed,
    EngineCoreRequestType.WAKEUP: _wakeup,
    EngineCoreRequestType.START_DP_WAVE: _failed,
}


class EngineCoreProc:
    def run_busy_loop(self):
        while self._process_input_queue() is None:
            self._process_engine_step()

    def _process_input_queue(self):
        while self.input_queue.qsize() or not self.has_work():
            self._handle_client_request(*self.input_queue.get())

    def _process_engine_step(self):
        by_client, executed = self.step_fn()
        for item in (by_client or {}).items():
            self._queue_outputs(*item)
        self.post_step(executed)
        return executed

    def _queue_outputs(self, client_index, outputs):
        confirmed, self.aborted = self.aborted, []
        outputs.finished_requests = confirmed or None
        self.output_queue.put_nowait((client_index, outputs))

    def _handle_client_request(self, request_type, request):
        _HANDLERS[request_type](self, request)

    def _call_utility(self, call_id, method, args):
        try:
            if method not in self.UTILITY_METHODS:
                raise LookupError(method)
            return UtilityOutput(call_id, result=UtilityResult(getattr(self, method)(*args)))
        except Exception as error:
            return UtilityOutput(call_id, failure_message=repr(error))
