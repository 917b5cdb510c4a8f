"""Uses the names in the table."""


class EngineCoreClient:
    def make_client(multiprocess_mode, asyncio_mode, vllm_config, executor_class, log_stats):
        arguments = (vllm_config, executor_class, log_stats)
        match choose_client(multiprocess_mode, asyncio_mode).name:
            case "InprocClient":
                return InprocClient(*arguments)
            case "SyncMPClient":
                import tracellm.engine.ipc.mp_client as mp_client

                return mp_client.SyncMPClient(*arguments)
            case "AsyncMPClient":
                return EngineCoreClient.make_async_mp_client(*arguments)
        raise EngineError("asyncio_mode needs multiprocess_mode")


class InprocClient:
    def get_output(self):
        outputs, executed = self.engine_core.step_fn()
        self.engine_core.post_step(model_executed=bool(executed))
        mine = [one for client, one in (outputs or {}).items() if client == 0]
        return mine[0] if mine else EngineCoreOutputs()

    def abort_requests(self, request_ids):
        if request_ids:
            self.engine_core.abort_requests(list(request_ids))
