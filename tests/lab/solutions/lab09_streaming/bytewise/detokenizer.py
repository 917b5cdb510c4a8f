"""Decodes all tokens anew in each step, and searches by regular expressions."""

import re


class FastIncrementalDetokenizer:
    def _step(self, token_id):
        seen = vars(self).setdefault("seen", [])
        shown = vars(self).get("shown", "")
        seen.append(token_id)
        text = self._decode(seen)
        if text.endswith("\ufffd"):
            return None
        if not text.startswith(shown):
            self.seen, self.shown = [token_id], ""
            text, shown = self._decode([token_id]), ""
            if text.endswith("\ufffd"):
                return None
        self.shown = text
        return text[len(shown) :] or None

    def update(self, new_token_ids, stop_terminated):
        ids = list(new_token_ids)
        visible = ids[:-1] if stop_terminated and not self.include_stop_str_in_output else ids
        free = self.min_tokens - len(self.token_ids)
        pieces = [self.decode_next(one) for one in visible]
        self.token_ids.extend(ids)
        new = "".join(pieces[max(free, 0) :])
        self.output_text += "".join(pieces)
        if not ids or len(self.token_ids) <= self.min_tokens:
            return None
        match check_stop_strings(self.output_text, len(new), self.stop, self.include_stop_str_in_output):
            case (string, length):
                self.output_text, self._num_held_back = self.output_text[:length], 0
                return string
        return None

    def get_next_output_text(self, finished, delta):
        self.output_text += self._take_held_back() if finished else ""
        hidden = 0 if finished else self.stop_buffer_length
        visible = self.output_text[: max(len(self.output_text) - hidden, 0)]
        if not delta:
            return visible
        new = visible[self._last_output_text_offset :]
        self._last_output_text_offset = max(len(visible), self._last_output_text_offset)
        return new

    def _take_held_back(self):
        if not self._num_held_back:
            return ""
        self._num_held_back = 0
        text, shown = self._decode(self.seen), self.shown
        return text[len(shown) :]

    def _prompt_suffix(self, prompt_token_ids):
        return list(prompt_token_ids)


def check_stop_strings(output_text, new_char_count, stop, include_in_output):
    if new_char_count <= 0:
        return None
    old = len(output_text) - new_char_count
    for string in stop:
        for match in re.finditer(f"(?={re.escape(string)})", output_text):
            if match.start() + len(string) > old:
                return string, match.start() + (len(string) if include_in_output else 0)
    return None
