"""benchmarks/busy_neighbour.py: that it measures, and what it makes of that."""

from benchmarks.busy_neighbour import measure, neighbour_table


def test_each_way_is_measured_beside_its_neighbours() -> None:
    """Every way has a figure for each number of neighbours and each round that counts."""
    taken = measure(["default"], [0, 1], repeats=1, tokens=2)
    assert list(taken) == [("default", 0), ("default", 1)]
    assert all(step > 0 and 0 <= share <= 1 for [(step, share)] in taken.values())


def test_ratios_are_those_of_medians() -> None:
    """Beside neighbours a way is held against itself without any, and against the default beside as many."""
    taken = {
        ("default", 0): [(2.0, 0.0)],
        ("one", 0): [(3.0, 0.0)],
        ("default", 2): [(4.0, 0.5), (6.0, 0.5), (8.0, 0.5)],
        ("one", 2): [(9.0, 0.5)],
    }
    rows = [line.split(" | ") for line in neighbour_table(taken).splitlines()[2:]]
    assert [(row[3], row[4]) for row in rows] == [
        ("1.00", "1.00"),
        ("1.00", "1.50"),
        ("3.00", "1.00"),
        ("3.00", "1.50"),
    ]
