"""Takes all waiting messages into a list, then handles them."""

import sys


def _take_all(core):
    messages = []
    while True:
        try:
            messages.append(core.input_queue.get_nowait())
        except queue.Empty:
            return messages


class EngineCoreProc:
    def run_busy_loop(self):
        try:
            while True:
                self._process_input_queue()
                self._process_engine_step()
        finally:
            logger.debug("The busy loop has ended.")

    def _process_input_queue(self):
        messages = _take_all(self)
        for message in messages:
            self._handle_client_request(*message)
        while not self.has_work():
            for message in [self.input_queue.get(), *_take_all(self)]:
                self._handle_client_request(*message)

    def _process_engine_step(self):
        outputs, executed = self.step_fn()
        for client_index in sorted(outputs or ()):
            self._queue_outputs(client_index, outputs[client_index])
        self.post_step(model_executed=executed)
        return executed

    def _queue_outputs(self, client_index, outputs):
        if self.aborted:
            outputs.finished_requests = list(self.aborted)
            self.aborted.clear()
        self.output_queue.put((client_index, outputs))

    def _handle_client_request(self, request_type, request):
        match request_type:
            case EngineCoreRequestType.ADD if isinstance(request, Request):
                self.add_request(request)
            case EngineCoreRequestType.ADD:
                self._queue_outputs(request[0], request[1])
            case EngineCoreRequestType.ABORT:
                self.aborted += request
                self.abort_requests(request)
            case EngineCoreRequestType.UTILITY:
                outputs = EngineCoreOutputs()
                outputs.utility_output = self._call_utility(*request[1:])
                self.output_queue.put((request[0], outputs))
            case EngineCoreRequestType.WAKEUP:
                sys.exit(0)
            case _:
                raise RuntimeError(str(request))

    def _call_utility(self, call_id, method, args):
        output = UtilityOutput(call_id)
        if method not in self.UTILITY_METHODS:
            output.failure_message = f"unknown method {method}"
            return output
        try:
            output.result = UtilityResult(getattr(self, method)(*args))
        except Exception as error:
            output.failure_message = f"{method}: {error}"
        return output
