"""All gaps are closed at once: a list of sources and one of targets."""


class InputBatch:
    def add_request(self, request):
        row = self._empty_rows.pop() if self._empty_rows else len(self.req_ids)
        self.req_ids[row : row + 1] = [request.req_id]
        self._requests[row : row + 1] = [request]
        self.req_id_to_index[request.req_id] = row
        self._changed_rows |= {row}

        tokens = np.array([*request.prompt_token_ids, *request.output_token_ids], dtype=np.int32)
        self.token_ids_cpu[row, : tokens.size] = tokens
        self.num_tokens[row] = tokens.size
        self.num_computed_tokens_cpu[row] = request.num_computed_tokens
        self.block_table.add_row(request.block_ids, row)
        return row

    def condense(self):
        size, total = self.num_reqs, len(self.req_ids)
        targets = sorted(row for row in self._empty_rows if row < size)
        sources = [row for row in range(size, total) if row not in self._empty_rows]
        for array in (self.token_ids_cpu, self.num_tokens, self.num_computed_tokens_cpu):
            array[targets] = array[sources]
        for source, target in zip(sources, targets, strict=True):
            self.block_table.move_row(source, target)
            self.req_ids[target] = self.req_ids[source]
            self._requests[target] = self._requests[source]
            self.req_id_to_index[self.req_ids[target]] = target
        self._changed_rows.update(targets, range(size, total))
        del self.req_ids[size:], self._requests[size:]
        self._empty_rows.clear()

    def append_tokens(self, rows, token_ids):
        rows = np.asarray(rows, dtype=np.int64)
        self.token_ids_cpu[rows, self.num_tokens[rows]] = np.asarray(token_ids, dtype=np.int32)
        np.add.at(self.num_tokens, rows, 1)
        for request, token in zip([self._requests[row] for row in rows], token_ids):
            request.output_token_ids += [token]
