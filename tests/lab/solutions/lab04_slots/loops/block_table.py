"""A loop for everything."""


class BlockTable:
    def append_row(self, block_ids, row):
        for block_id in block_ids:
            self.block_table.np[row][self.num_blocks_per_row[row]] = block_id
            self.num_blocks_per_row[row] += 1

    def add_row(self, block_ids, row):
        for column in range(self.num_blocks_per_row[row]):
            self.block_table.np[row][column] = 0
        self.num_blocks_per_row[row] = len(block_ids)
        for column, block_id in enumerate(block_ids):
            self.block_table.np[row][column] = block_id

    def move_row(self, source, target):
        blocks = [int(one) for one in self.block_table.np[source]][: self.num_blocks_per_row[source]]
        self.add_row(blocks, target)

    def compute_slot_mapping(self, rows, positions):
        for token in range(len(rows)):
            row = int(rows[token])
            position = int(positions[token])
            block = int(self.block_table.np[row][position // self.block_size])
            self.slot_mapping.np[token] = block * self.block_size + position % self.block_size
