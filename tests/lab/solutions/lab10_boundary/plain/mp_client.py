"""One statement after the other."""


def _process_utility_output(output, utility_results):
    if output.call_id not in utility_results:
        return
    future = utility_results[output.call_id]
    del utility_results[output.call_id]
    if future.done():
        return
    if output.failure_message is None:
        future.set_result(output.result.result)
    else:
        future.set_exception(EngineError(output.failure_message))


class BackgroundResources:
    def validate_alive(self, frames):
        first = bytes(frames[0].buffer)
        if first != ENGINE_CORE_DEAD:
            return
        message = "the engine core has failed"
        if len(frames) > 1:
            message = message + ": " + bytes(frames[1].buffer).decode("utf-8", "replace")
        self.declare_dead(message)
        raise self.dead_error()


class MPClient:
    def ensure_alive(self):
        if self.resources.pid != os.getpid():
            raise EngineDeadError("the engine belongs to another process")
        if self.resources.engine_dead:
            raise self.resources.dead_error()

    def _without_aborted(self, outputs):
        with self.resources.send_lock:
            if outputs.finished_requests:
                for name in outputs.finished_requests:
                    if self._aborted[name] > 1:
                        self._aborted[name] = self._aborted[name] - 1
                    else:
                        del self._aborted[name]
            kept = []
            for output in outputs.outputs:
                if self._aborted[output.request_id] == 0:
                    kept.append(output)
            outputs.outputs = kept
        return outputs


class SyncMPClient:
    def process_outputs_socket(resources, decoder, outputs_queue, wakeup_receiver):
        output_socket = resources.output_socket
        poller = zmq.Poller()
        poller.register(output_socket, zmq.POLLIN)
        poller.register(wakeup_receiver.fileno(), zmq.POLLIN)
        while not resources.engine_dead:
            events = dict(poller.poll())
            if output_socket not in events:
                if resources.cause_of_death is None:
                    break
                if output_socket.poll(100) == 0:
                    resources.declare_dead(resources.cause_of_death)
                    break
            frames = output_socket.recv_multipart(copy=False)
            try:
                resources.validate_alive(frames)
                outputs = decoder.decode(frames)
            except EngineError as error:
                resources.declare_dead(str(error))
                break
            if outputs.utility_output is None:
                outputs_queue.put(outputs)
            else:
                _process_utility_output(outputs.utility_output, resources.utility_results)
        resources.engine_dead = True
        wakeup_receiver.close()
        outputs_queue.put(resources.dead_error())
        resources.fail_utility_calls()

    def get_output(self):
        if self.resources.engine_dead:
            try:
                item = self.outputs_queue.get_nowait()
            except queue.Empty:
                raise self.resources.dead_error() from None
        else:
            item = self.outputs_queue.get()
        if isinstance(item, Exception):
            self.outputs_queue.put(item)
            raise self.resources.dead_error()
        return self._without_aborted(item)

    def call_utility(self, method, *args):
        call_id = uuid.uuid4().int % 2**62
        future = Future()
        self.utility_results[call_id] = future
        self._send_input(EngineCoreRequestType.UTILITY, (0, call_id, method, args))
        if self.resources.engine_dead:
            self.resources.fail_utility_calls()
        return future.result()

    def abort_requests(self, request_ids):
        if len(request_ids) == 0:
            return
        if self.resources.engine_dead:
            return
        self._send_input(EngineCoreRequestType.ABORT, request_ids)
