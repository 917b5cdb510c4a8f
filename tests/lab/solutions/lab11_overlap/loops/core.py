"""The loop with one return for each case."""


class EngineCore:
    def step_with_batch_queue(self, batch_queue):
        launched = False
        if self.scheduler.has_requests():
            step = self._schedule()
            result = self._execute_model(step)
            batch_queue.appendleft((result, step))
            launched = step.total_num_scheduled_tokens > 0
            if launched:
                if len(batch_queue) < self.batch_queue_size:
                    return (None, True)
        if len(batch_queue) == 0:
            return (None, False)
        result, step = batch_queue.pop()
        output = result_of(result)
        outputs = self._process_model_outputs(step, output)
        executed = launched or step.total_num_scheduled_tokens > 0
        if outputs:
            return (outputs, executed)
        return (None, executed)
