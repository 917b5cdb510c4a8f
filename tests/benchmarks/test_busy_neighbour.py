"""benchmarks/busy_neighbour.py: its measurements and ratios."""

from benchmarks.busy_neighbour import measure, neighbour_table


def test_each_way_is_measured_beside_its_neighbours() -> None:
    """Every variant has a figure for each number of neighbours and each counted round."""
    times = measure(["default"], [0, 1], repeats=1, tokens=2)
    assert list(times) == [("default", 0), ("default", 1)]
    assert all(step > 0 and 0 <= share <= 1 for [(step, share)] in times.values())


def test_ratios_are_those_of_medians() -> None:
    """Ratios are to the variant without neighbours, and to the default with as many."""
    times = {
        ("default", 0): [(2.0, 0.0)],
        ("one", 0): [(3.0, 0.0)],
        ("default", 2): [(4.0, 0.5), (6.0, 0.5), (8.0, 0.5)],
        ("one", 2): [(9.0, 0.5)],
    }
    rows = [line.split(" | ") for line in neighbour_table(times).splitlines()[2:]]
    assert [(row[3], row[4]) for row in rows] == [
        ("1.00", "1.00"),
        ("1.00", "1.50"),
        ("3.00", "1.00"),
        ("3.00", "1.50"),
    ]
