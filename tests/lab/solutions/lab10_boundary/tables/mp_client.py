"""Short functions; the receiver is a loop over a generator of messages."""


def _process_utility_output(output, utility_results):
    match utility_results.pop(output.call_id, None):
        case None:
            pass
        case future if not future.done():
            if output.failure_message:
                future.set_exception(EngineError(output.failure_message))
            else:
                future.set_result(output.result.result)


class BackgroundResources:
    def validate_alive(self, frames):
        kind, *rest = (bytes(frame.buffer) for frame in frames)
        if kind == ENGINE_CORE_DEAD:
            self.declare_dead(" ".join(["failed:", *(frame.decode(errors="replace") for frame in rest)]))
            raise self.dead_error()


class MPClient:
    def ensure_alive(self):
        resources = self.resources
        if os.getpid() != resources.pid or resources.engine_dead:
            raise resources.dead_error()

    def _without_aborted(self, outputs):
        with self.resources.send_lock:
            self._aborted.subtract(outputs.finished_requests or ())
            self._aborted = +self._aborted
            outputs.outputs = [one for one in outputs.outputs if one.request_id not in self._aborted]
            return outputs


def _messages(resources, wakeup):
    poller = zmq.Poller()
    for source in (resources.output_socket, wakeup):
        poller.register(source, zmq.POLLIN)
    while not resources.engine_dead:
        ready = [source for source, _ in poller.poll()]
        if resources.output_socket in ready or (
            resources.cause_of_death is not None and resources.output_socket.poll(150)
        ):
            yield resources.output_socket.recv_multipart(copy=False)
        else:
            if resources.cause_of_death is not None:
                resources.declare_dead(resources.cause_of_death)
            return


class SyncMPClient:
    def process_outputs_socket(resources, decoder, outputs_queue, wakeup_receiver):
        with contextlib.closing(wakeup_receiver):
            try:
                for frames in _messages(resources, wakeup_receiver):
                    resources.validate_alive(frames)
                    outputs = decoder.decode(frames)
                    if answer := outputs.utility_output:
                        _process_utility_output(answer, resources.utility_results)
                        continue
                    outputs_queue.put_nowait(outputs)
            except EngineError as error:
                resources.declare_dead(str(error))
            finally:
                resources.declare_dead(resources.dead_message)
                outputs_queue.put_nowait(resources.dead_error())
                resources.fail_utility_calls()

    def get_output(self):
        if self.outputs_queue.empty():
            self.ensure_alive()
        match self.outputs_queue.get():
            case EngineError() as error:
                self.outputs_queue.put(error)
                raise self.resources.dead_error()
            case outputs:
                return self._without_aborted(outputs)

    def call_utility(self, method, *args):
        future = Future()
        call_id = next(call_id for call_id in range(2, 10**9) if call_id not in self.utility_results)
        self.utility_results[call_id] = future
        try:
            self._send_input(EngineCoreRequestType.UTILITY, [0, call_id, method, list(args)])
            while not future.done():
                if self.resources.engine_dead:
                    self.resources.fail_utility_calls()
                with contextlib.suppress(TimeoutError):
                    return future.result(0.05)
            return future.result()
        finally:
            self.utility_results.pop(call_id, None)

    def abort_requests(self, request_ids):
        if not self.resources.engine_dead and request_ids:
            self._send_input(EngineCoreRequestType.ABORT, list(request_ids))
