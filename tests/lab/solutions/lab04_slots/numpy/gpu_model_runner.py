"""A mask over the whole token array: true where a row computes a token in this step."""


class GPUModelRunner:
    def _prepare_inputs(self, scheduler_output):
        batch, n = self.input_batch, self.input_batch.num_reqs
        counts = np.fromiter((scheduler_output.num_scheduled_tokens[one] for one in batch.req_ids), np.int32, n)
        first = batch.num_computed_tokens_cpu[:n, None]
        column = np.arange(batch.token_ids_cpu.shape[1])[None, :]
        rows, positions = np.nonzero((column >= first) & (column < first + counts[:, None]))
        total = len(rows)

        batch.block_table.compute_slot_mapping(rows, positions)
        np.copyto(self.positions.np[:total], positions)
        self.input_ids.np[:total] = batch.token_ids_cpu[:n][rows, positions]
        starts = np.searchsorted(rows, np.arange(n + 1))
        self.query_start_loc.np[: n + 1] = starts
        self.logits_indices.np[:n] = starts[1:] - 1
        self.seq_lens.np[:n] = first[:, 0] + counts
        choice = self.cudagraphs and self.cudagraphs.choose(n, total)
        padded = (choice and choice.size) or total
        if choice and choice.size:
            self.pad_inputs(n, padded)
        return PreparedInputs(
            input_ids=self._prepare_input_ids(total, padded),
            positions=self.positions.copy_to_gpu(padded)[:total],
            num_scheduled_tokens=counts,
            sampling_rows=np.where(batch.num_tokens[:n] == self.seq_lens.np[:n])[0].tolist(),
            logits_indices=self.logits_indices.copy_to_gpu(n),
            cudagraph=choice,
        )
