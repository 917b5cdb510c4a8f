"""A row is written from its request's state alone, also when it moves."""


class InputBatch:
    def add_request(self, request):
        try:
            row = self._empty_rows.pop()
        except IndexError:
            row = len(self.req_ids)
            self.req_ids += [request.req_id]
            self._requests += [request]
        _fill(self, row, request, request.num_computed_tokens)
        self.block_table.add_row(request.block_ids, row)
        return row

    def condense(self):
        gaps = set(self._empty_rows)
        self._empty_rows = []
        while gaps:
            last = len(self.req_ids) - 1
            self.req_ids.pop()
            request = self._requests.pop()
            self._changed_rows.add(last)
            if last in gaps:
                gaps.remove(last)
                continue
            row = gaps.pop()
            _fill(self, row, request, self.num_computed_tokens_cpu[last])
            self.block_table.move_row(last, row)

    def append_tokens(self, rows, token_ids):
        for row, token in zip(rows, token_ids):
            output = self._requests[row].output_token_ids
            output.append(token)
            self.num_tokens[row] = self._requests[row].num_tokens
            self.token_ids_cpu[row, self.num_tokens[row] - 1] = token


def _fill(batch, row, request, computed):
    tokens = request.prompt_token_ids + request.output_token_ids
    batch.req_ids[row], batch._requests[row] = request.req_id, request
    batch.req_id_to_index[request.req_id] = row
    batch.token_ids_cpu[row, : len(tokens)] = tokens
    batch.num_tokens[row], batch.num_computed_tokens_cpu[row] = len(tokens), computed
    batch._changed_rows.add(row)
