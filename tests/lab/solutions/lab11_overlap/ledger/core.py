"""The loop as: launch until the queue is full or nothing can be launched, then process one step."""


class EngineCore:
    def step_with_batch_queue(self, batch_queue):
        steps = []
        if self.scheduler.has_requests():
            step = self.scheduler.schedule()
            steps.append(step)
            batch_queue.insert(0, (self._execute_model(step), step))
            if step.num_scheduled_tokens and len(batch_queue) != self.batch_queue_size:
                return None, True
        outputs = None
        if batch_queue:
            future, step = batch_queue[-1]
            model_output = future.result() if hasattr(future, "result") else future
            batch_queue.pop()
            steps.append(step)
            outputs = self._process_model_outputs(step, model_output)
        return outputs or None, any(step.num_scheduled_tokens for step in steps)
