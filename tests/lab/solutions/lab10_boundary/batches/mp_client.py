"""The receiver takes all messages that are there, then looks for the cause of death."""


def _process_utility_output(output, utility_results):
    try:
        future = utility_results.pop(output.call_id)
    except KeyError:
        return
    with contextlib.suppress(Exception):  # its caller has given up
        if output.failure_message is not None:
            future.set_exception(EngineError(output.failure_message))
        else:
            future.set_result(output.result.result)


class BackgroundResources:
    def validate_alive(self, frames):
        texts = [bytes(frame.buffer) for frame in frames]
        if texts[0] == ENGINE_CORE_DEAD:
            self.declare_dead("the engine core has failed: " + b" ".join(texts[1:]).decode(errors="replace"))
            raise EngineDeadError(self.dead_message)


class MPClient:
    def ensure_alive(self):
        if os.getpid() != self.resources.pid:
            raise EngineDeadError("forked")
        elif self.resources.engine_dead:
            raise EngineDeadError(self.resources.dead_message)

    def _without_aborted(self, outputs):
        self.resources.send_lock.acquire()
        try:
            for name in outputs.finished_requests or []:
                self._aborted[name] -= 1
            gone = {name for name, count in self._aborted.items() if count <= 0}
            for name in gone:
                self._aborted.pop(name)
            outputs.outputs = list(filter(lambda one: one.request_id not in self._aborted, outputs.outputs))
        finally:
            self.resources.send_lock.release()
        return outputs


class SyncMPClient:
    def process_outputs_socket(resources, decoder, outputs_queue, wakeup_receiver):
        source, ended = resources.output_socket, False

        def take(frames):
            resources.validate_alive(frames)
            outputs = decoder.decode(frames)
            if outputs.utility_output is not None:
                _process_utility_output(outputs.utility_output, resources.utility_results)
            else:
                outputs_queue.put(outputs)

        try:
            poller = zmq.Poller()
            poller.register(source, zmq.POLLIN)
            poller.register(wakeup_receiver, zmq.POLLIN)
            while not ended and not resources.engine_dead:
                woken = any(one is not source for one, _ in poller.poll())
                ended = woken
                while not resources.engine_dead and source.poll(100 if woken and resources.cause_of_death else 0):
                    take(source.recv_multipart(copy=False))
            if resources.cause_of_death:
                resources.declare_dead(resources.cause_of_death)
        except EngineError as error:
            resources.declare_dead(str(error))
        resources.engine_dead = True
        wakeup_receiver.close()
        outputs_queue.put(EngineDeadError(resources.dead_message))
        resources.fail_utility_calls()

    def get_output(self):
        while True:
            if self.resources.engine_dead and self.outputs_queue.qsize() == 0:
                raise EngineDeadError(self.resources.dead_message)
            item = self.outputs_queue.get()
            if not isinstance(item, EngineError):
                return self._without_aborted(item)
            self.resources.engine_dead = True
            self.outputs_queue.put(item)
            raise EngineDeadError(self.resources.dead_message)

    def call_utility(self, method, *args):
        self.ensure_alive()
        call_id, future = uuid.uuid1().int >> 65, Future()
        self.utility_results.update({call_id: future})
        self._send_input(EngineCoreRequestType.UTILITY, (0, call_id, method, args))
        if self.resources.engine_dead:
            self.resources.fail_utility_calls()
        return future.result()

    def abort_requests(self, request_ids):
        with contextlib.suppress(EngineDeadError):
            if request_ids:
                self._send_input(EngineCoreRequestType.ABORT, request_ids)
