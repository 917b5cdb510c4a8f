"""One if after the other."""


class EngineCoreClient:
    def make_client(multiprocess_mode, asyncio_mode, vllm_config, executor_class, log_stats):
        if not multiprocess_mode and not asyncio_mode:
            return InprocClient(vllm_config, executor_class, log_stats)
        if not multiprocess_mode:
            raise EngineError("an asyncio caller needs multiprocess_mode=True")
        if asyncio_mode:
            return EngineCoreClient.make_async_mp_client(vllm_config, executor_class, log_stats)
        from tracellm.engine.ipc.mp_client import SyncMPClient

        return SyncMPClient(vllm_config, executor_class, log_stats)


class InprocClient:
    def get_output(self):
        result = self.engine_core.step_fn()
        outputs = result[0]
        self.engine_core.post_step(result[1])
        if outputs is None or 0 not in outputs:
            return EngineCoreOutputs()
        return outputs[0]

    def abort_requests(self, request_ids):
        self.engine_core.abort_requests(request_ids)
