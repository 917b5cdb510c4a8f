"""Comprehensions over the rows; the arrays are written at the end."""

from itertools import accumulate, chain


class GPUModelRunner:
    def _prepare_inputs(self, scheduler_output):
        batch = self.input_batch
        counts = [scheduler_output.num_scheduled_tokens[name] for name in batch.req_ids]
        begins = batch.num_computed_tokens_cpu[: len(counts)].tolist()
        tokens = list(
            chain.from_iterable(
                ((row, position) for position in range(begin, begin + count))
                for row, (begin, count) in enumerate(zip(begins, counts))
            )
        )
        rows, positions = (np.array(column) for column in zip(*tokens))
        ends = list(accumulate(counts))
        num_reqs, num_tokens = len(counts), ends[-1]

        batch.block_table.compute_slot_mapping(rows, positions)
        for buffer, values in (
            (self.positions, positions),
            (self.input_ids, [batch.token_ids_cpu[one] for one in tokens]),
            (self.query_start_loc, [0, *ends]),
            (self.seq_lens, [begin + count for begin, count in zip(begins, counts)]),
            (self.logits_indices, [end - 1 for end in ends]),
        ):
            buffer.np[: len(values)] = values

        graph = self.cudagraphs.choose(num_reqs, num_tokens) if self.cudagraphs else None
        num_padded = num_tokens
        if graph is not None and graph.size is not None:
            self.pad_inputs(num_reqs, num_padded := graph.size)
        lengths = self.seq_lens.np
        return PreparedInputs(
            input_ids=self._prepare_input_ids(num_tokens, num_padded),
            positions=self.positions.copy_to_gpu(num_padded)[:num_tokens],
            num_scheduled_tokens=np.array(counts),
            sampling_rows=[row for row in range(num_reqs) if lengths[row] == batch.num_tokens[row]],
            logits_indices=self.logits_indices.copy_to_gpu(num_reqs),
            cudagraph=graph,
        )
