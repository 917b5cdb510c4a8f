"""Looks classes and handlers up in tables."""


class EngineCoreClient:
    def make_client(multiprocess_mode, asyncio_mode, vllm_config, executor_class, log_stats):
        from tracellm.engine.ipc import mp_client

        choice = choose_client(multiprocess_mode, asyncio_mode)
        classes = {
            "InprocClient": InprocClient,
            "SyncMPClient": mp_client.SyncMPClient,
            "AsyncMPClient": mp_client.AsyncMPClient,
        }
        try:
            client = classes[choice.name]
        except KeyError:
            raise EngineError(f"no client: {choice.because}") from None
        return client(vllm_config, executor_class, log_stats)


class InprocClient:
    def get_output(self):
        core = self.engine_core
        outputs, model_executed = core.step_fn()
        core.post_step(model_executed=model_executed)
        return {0: EngineCoreOutputs(), **(outputs or {})}[0]

    def abort_requests(self, request_ids):
        return self.engine_core.abort_requests(request_ids) if request_ids else None
