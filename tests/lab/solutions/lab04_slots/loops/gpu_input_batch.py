"""Fields one by one; gaps are closed with the last request that is not a gap."""


class InputBatch:
    def add_request(self, request):
        if len(self._empty_rows) > 0:
            row = min(self._empty_rows)
            self._empty_rows.remove(row)
        else:
            row = len(self.req_ids)
            self.req_ids.append(None)
            self._requests.append(None)
        put(self, row, request)
        tokens = list(request.prompt_token_ids) + list(request.output_token_ids)
        for position in range(len(tokens)):
            self.token_ids_cpu[row, position] = tokens[position]
        self.num_tokens[row] = len(tokens)
        self.num_computed_tokens_cpu[row] = request.num_computed_tokens
        self.block_table.add_row(request.block_ids, row)
        return row

    def condense(self):
        while self._empty_rows:
            last = len(self.req_ids) - 1
            if last in self._empty_rows:
                self._empty_rows.remove(last)
            else:
                gap = min(self._empty_rows)
                self._empty_rows.remove(gap)
                put(self, gap, self._requests[last])
                for position in range(self.num_tokens[last]):
                    self.token_ids_cpu[gap, position] = self.token_ids_cpu[last, position]
                self.num_tokens[gap] = self.num_tokens[last]
                self.num_computed_tokens_cpu[gap] = self.num_computed_tokens_cpu[last]
                self.block_table.move_row(last, gap)
            self._changed_rows.add(last)
            del self.req_ids[last]
            del self._requests[last]

    def append_tokens(self, rows, token_ids):
        for i in range(len(rows)):
            row = rows[i]
            self.token_ids_cpu[row, self.num_tokens[row]] = token_ids[i]
            self.num_tokens[row] += 1
            self._requests[row].output_token_ids.append(token_ids[i])


def put(batch, row, request):
    batch.req_ids[row] = request.req_id
    batch._requests[row] = request
    batch.req_id_to_index[request.req_id] = row
    batch._changed_rows.add(row)
