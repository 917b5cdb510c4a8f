"""Reads a table as an expectation: tab-separated, a call a line, its columns named in the first line.

`from`, `to` and `call` must be there. Of several columns that begin with `call`, as in a table that compares versions,
the one named `call` counts, or else the last. `phase` and `needs` may be there; other columns are for people.
"""

from tracellm.trace.expect.arrows import Arrow, Expectation, ExpectError, call_names, plain_names

__all__ = ["is_table", "read_table"]

_IN_EVERY_RUN = {"", "text", "-"}


def is_table(lines: list[str]) -> bool:
    """Whether this is a table: its first line that is not blank has tabs."""
    return "\t" in next((line for line in lines if line.strip() and not line.startswith("#")), "")


def read_table(lines: list[str]) -> Expectation:
    """The expectation of a table's lines.

    Raises:
        ExpectError: a column is missing, or a row is too short or has no call in it.
    """
    rows = [
        (number, [cell.strip() for cell in line.rstrip("\r\n").split("\t")])
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("#")
    ]
    header = [name.lower() for name in rows[0][1]]
    calls = [i for i, name in enumerate(header) if name.startswith("call")]
    missing = [name for name in ("from", "to") if name not in header] + ["call"] * (not calls)
    if missing:
        raise ExpectError("columns", missing=", ".join(missing), found=", ".join(header))
    source, target = header.index("from"), header.index("to")
    call = header.index("call") if "call" in header else calls[-1]
    optional = {name: header.index(name) for name in ("phase", "needs") if name in header}
    lifelines: dict[str, frozenset[str]] = {}
    arrows = []
    for number, cells in rows[1:]:
        if len(cells) <= max(source, target, call):
            raise ExpectError("row", line=number, cells=len(cells), needed=max(source, target, call) + 1)
        names, owner, held = call_names(cells[call])
        if not (names and cells[source] and cells[target]):
            raise ExpectError("row_empty", line=number)
        told = {name: cells[i] if i < len(cells) else "" for name, i in optional.items()}
        for name in (cells[source], cells[target]):
            lifelines.setdefault(name, plain_names(name))
        arrows.append(
            Arrow(
                number,
                lifelines[cells[source]],
                lifelines[cells[target]],
                names,
                owner,
                held,
                f"{cells[source]} → {cells[target]}: {cells[call]}",
                told.get("phase", ""),
                "" if told.get("needs", "") in _IN_EVERY_RUN else told["needs"],
            )
        )
    return Expectation(arrows, lifelines)
