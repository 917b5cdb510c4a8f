"""Two nested loops, over rows and tokens."""


class GPUModelRunner:
    def _prepare_inputs(self, scheduler_output):
        batch = self.input_batch
        rows, positions, counts, sampling = [], [], [], []
        for row, req_id in enumerate(batch.req_ids):
            count = scheduler_output.num_scheduled_tokens[req_id]
            computed = int(batch.num_computed_tokens_cpu[row])
            for position in range(computed, computed + count):
                self.positions.np[len(rows)] = position
                self.input_ids.np[len(rows)] = batch.token_ids_cpu[row, position]
                rows.append(row)
                positions.append(position)
            counts.append(count)
            self.query_start_loc.np[row + 1] = len(rows)
            self.seq_lens.np[row] = computed + count
            self.logits_indices.np[row] = len(rows) - 1
            if computed + count == batch.num_tokens[row]:
                sampling.append(row)
        batch.block_table.compute_slot_mapping(np.array(rows), np.array(positions))

        graph, padded = None, len(rows)
        if self.cudagraphs is not None:
            graph = self.cudagraphs.choose(len(counts), len(rows))
            if graph.size is not None:
                padded = graph.size
                self.pad_inputs(len(counts), padded)
        return PreparedInputs(
            self._prepare_input_ids(len(rows), padded),
            self.positions.copy_to_gpu(padded)[: len(rows)],
            np.array(counts, dtype=np.int32),
            sampling,
            self.logits_indices.copy_to_gpu(len(counts)),
            graph,
        )
