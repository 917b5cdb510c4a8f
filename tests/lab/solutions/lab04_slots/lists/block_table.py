"""Python lists, converted when they are complete."""


class BlockTable:
    def append_row(self, block_ids, row):
        write(self, row, read(self, row) + list(block_ids))

    def add_row(self, block_ids, row):
        write(self, row, list(block_ids))

    def move_row(self, source, target):
        write(self, target, read(self, source))
        write(self, source, [])

    def compute_slot_mapping(self, rows, positions):
        size = self.block_size
        slots = [
            read(self, row)[index] * size + offset
            for row, (index, offset) in zip(rows, (divmod(int(position), size) for position in positions))
        ]
        self.slot_mapping.np[: len(slots)] = slots


def read(table, row):
    return table.block_table.np[row, : table.num_blocks_per_row[row]].tolist()


def write(table, row, blocks):
    table.block_table.np[row, : len(blocks)] = blocks
    table.num_blocks_per_row[row] = len(blocks)
