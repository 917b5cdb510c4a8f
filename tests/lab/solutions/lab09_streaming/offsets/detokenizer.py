"""Decodes a window of tokens twice, without and with the new ones, and shows the difference."""


class FastIncrementalDetokenizer:
    def _step(self, token_id):
        window = self.__dict__.setdefault("_window", [])
        shown = self.__dict__.get("_num_shown", 0)
        window.append(token_id)
        old, new = self._decode(window[:shown]), self._decode(window)
        if not new.startswith(old):  # invalid bytes
            self._window, self._num_shown = [], 0
            return self._step(token_id)
        if new.endswith("\ufffd") or new == old:
            return None
        self._num_shown = len(window)
        return new[len(old) :]

    def update(self, new_token_ids, stop_terminated):
        count = len(new_token_ids)
        if stop_terminated and not self.include_stop_str_in_output:
            count -= 1
        old = len(self.output_text)
        for index in range(len(new_token_ids)):
            self.token_ids.append(new_token_ids[index])
            if index < count:
                self.output_text = self.output_text + self.decode_next(new_token_ids[index])
            if len(self.token_ids) == self.min_tokens:
                old = len(self.output_text)
        if not new_token_ids or not self.stop:
            return None
        if len(self.token_ids) <= self.min_tokens:
            return None
        result = check_stop_strings(
            self.output_text, len(self.output_text) - old, self.stop, self.include_stop_str_in_output
        )
        if result is not None:
            string, length = result
            self.output_text = self.output_text[0:length]
            self._num_held_back = 0
            return string
        return None

    def get_next_output_text(self, finished, delta):
        if finished:
            self.output_text += self._take_held_back()
            ready = self.output_text
        elif self.stop_buffer_length:
            ready = self.output_text[: -self.stop_buffer_length]
        else:
            ready = self.output_text
        if delta:
            piece = ready[self._last_output_text_offset :]
            self._last_output_text_offset += len(piece)
            return piece
        return ready

    def _take_held_back(self):
        if self._num_held_back == 0:
            return ""
        whole = self._decode(self._context + self._decoded)
        shown = self._decode(self._context + self._decoded[: len(self._decoded) - self._num_held_back])
        rest = self._decoded[len(self._decoded) - self._num_held_back :]
        self._num_held_back = 0
        if whole[: len(shown)] == shown:
            return whole[len(shown) :]
        return self._decode(rest)

    def _prompt_suffix(self, prompt_token_ids):
        length = 6
        while length < len(prompt_token_ids):
            end = prompt_token_ids[len(prompt_token_ids) - length :]
            if "\ufffd" not in self._decode(end):
                return end
            length += 1
        return prompt_token_ids


def check_stop_strings(output_text, new_char_count, stop, include_in_output):
    for string in stop:
        for begin in range(len(output_text) - len(string) + 1):
            end = begin + len(string)
            if end > len(output_text) - new_char_count and output_text[begin:end] == string:
                return string, (end if include_in_output else begin)
    return None
