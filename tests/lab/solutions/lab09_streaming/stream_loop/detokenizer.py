"""Uses the library's stream, and searches for stop strings after each token."""

from tokenizers.decoders import DecodeStream


class FastIncrementalDetokenizer:
    def _step(self, token_id):
        try:
            text = self.stream.step(self.tokenizer, token_id)
        except Exception:
            self.stream = DecodeStream(skip_special_tokens=self.skip_special_tokens)
            text = self.stream.step(self.tokenizer, token_id)
        return text

    def update(self, new_token_ids, stop_terminated):
        texts = []
        for token in new_token_ids:
            self.token_ids += [token]
            left_out = stop_terminated and not self.include_stop_str_in_output and len(texts) == len(new_token_ids) - 1
            texts.append("" if left_out else self.decode_next(token))
        allowed = min(len(new_token_ids), max(0, len(self.token_ids) - self.min_tokens))
        for text in texts:
            self.output_text += text
        counted = sum(len(text) for text in texts[len(texts) - allowed :]) if allowed else 0
        found = check_stop_strings(self.output_text, counted, self.stop, self.include_stop_str_in_output)
        if found:
            self.output_text = self.output_text[: found[1]]
            self._num_held_back = 0
        return found[0] if found else None

    def get_next_output_text(self, finished, delta):
        if finished:
            self.output_text = "".join((self.output_text, self._take_held_back()))
        start = self._last_output_text_offset if delta else 0
        end = len(self.output_text)
        if not finished:
            end -= _longest_beginning(self)
        end = max(end, self._last_output_text_offset)
        self._last_output_text_offset = end
        return self.output_text[start:end]

    def _take_held_back(self):
        n, self._num_held_back = self._num_held_back, 0
        if not n:
            return ""
        before = self._decode(self._context + self._decoded[:-n])
        after = self._decode(self._context + self._decoded)
        return after.removeprefix(before) if after.startswith(before) else self._decode(self._decoded[-n:])

    def _prompt_suffix(self, prompt_token_ids):
        for start in range(max(0, len(prompt_token_ids) - 4), -1, -1):
            if "\ufffd" not in self._decode(prompt_token_ids[start:]):
                return prompt_token_ids[start:]
        return prompt_token_ids


def _longest_beginning(of):
    if of.include_stop_str_in_output:
        return 0
    longest = 0
    for stop in of.stop:
        for length in range(1, len(stop)):
            if of.output_text.endswith(stop[:length]):
                longest = max(longest, length)
    return longest


def check_stop_strings(output_text, new_char_count, stop, include_in_output):
    old = len(output_text) - new_char_count
    for string in stop:
        window = output_text[max(0, old - len(string) + 1) :]
        before, found, _ = window.partition(string)
        if found:
            length = len(output_text) - len(window) + len(before)
            return string, length + len(string) * bool(include_in_output)
    return None
