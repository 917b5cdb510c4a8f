"""One statement after the other."""


class EngineCoreProc:
    def run_busy_loop(self):
        while 1:
            self._process_input_queue()
            self._process_engine_step()

    def _process_input_queue(self):
        while True:
            if self.has_work():
                try:
                    message = self.input_queue.get_nowait()
                except queue.Empty:
                    return
            else:
                message = self.input_queue.get()
            self._handle_client_request(message[0], message[1])

    def _process_engine_step(self):
        outputs, executed = self.step_fn()
        if outputs is not None:
            for client in outputs:
                self._queue_outputs(client, outputs[client])
        self.post_step(executed)
        return executed

    def _queue_outputs(self, client_index, outputs):
        if len(self.aborted) > 0:
            outputs.finished_requests = self.aborted
            self.aborted = []
        self.output_queue.put((client_index, outputs))

    def _handle_client_request(self, request_type, request):
        if request_type == EngineCoreRequestType.ADD:
            if type(request) is tuple:
                client, refusal = request
                self._queue_outputs(client, refusal)
            else:
                self.add_request(request)
        elif request_type == EngineCoreRequestType.ABORT:
            self.abort_requests(request)
            for name in request:
                self.aborted.append(name)
        elif request_type == EngineCoreRequestType.UTILITY:
            client, call_id, method, args = request
            answer = self._call_utility(call_id, method, args)
            self.output_queue.put((client, EngineCoreOutputs(utility_output=answer)))
        elif request_type == EngineCoreRequestType.WAKEUP:
            raise SystemExit(0)
        elif request_type == EngineCoreRequestType.EXECUTOR_FAILED:
            raise RuntimeError(request)
        else:
            raise RuntimeError("unknown message")

    def _call_utility(self, call_id, method, args):
        if method in self.UTILITY_METHODS:
            try:
                result = getattr(self, method)(*args)
            except Exception as error:
                return UtilityOutput(call_id, str(error))
            return UtilityOutput(call_id, None, UtilityResult(result))
        return UtilityOutput(call_id, "no such method: " + method)
