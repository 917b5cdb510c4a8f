"""Whole rows at once, and slots by a table of all slots of a row."""


class BlockTable:
    def append_row(self, block_ids, row):
        old = int(self.num_blocks_per_row[row])
        new = old + len(block_ids)
        np.put(self.block_table.np[row], np.arange(old, new), block_ids)
        self.num_blocks_per_row[row] = new

    def add_row(self, block_ids, row):
        self.block_table.np[row] = np.pad(
            np.asarray(block_ids, dtype=np.int32), (0, self.block_table.np.shape[1] - len(block_ids))
        )
        self.num_blocks_per_row[row] = len(block_ids)

    def move_row(self, source, target):
        self.block_table.np[target] = self.block_table.np[source]
        self.num_blocks_per_row[target] = self.num_blocks_per_row[source]

    def compute_slot_mapping(self, rows, positions):
        table = self.block_table.np[rows].astype(np.int64)
        slots = (table[:, :, None] * self.block_size + np.arange(self.block_size)).reshape(len(rows), -1)
        self.slot_mapping.np[: len(rows)] = np.take_along_axis(slots, np.asarray(positions)[:, None], axis=1)[:, 0]
