"""The loop, with the launch in a helper."""


def launch(core, queue):
    step = core._schedule()
    queue.appendleft((core._execute_model(step), step))
    return step.total_num_scheduled_tokens > 0


class EngineCore:
    def step_with_batch_queue(self, batch_queue):
        launched = self.scheduler.has_requests() and launch(self, batch_queue)
        if launched and len(batch_queue) < self.batch_queue_size:
            return None, True
        if not batch_queue:
            return None, False
        result, step = batch_queue.pop()
        outputs = self._process_model_outputs(step, result_of(result))
        return outputs or None, launched or bool(step.num_scheduled_tokens)
