"""Finds the row groups that can match a predicate.

Decisions

A column that a later file lacks is NULL there, as in pyarrow.

A filter is queried only where its "no" decides (`evidence`).
    Every open filter is assumed to deny. If the row group would then be skipped, its filters are queried, term by
    term, until it is skipped or cannot be.

Local files are decided together, up to 256 at a time (`search`, `together`).
    A pass of numpy over ten elements takes as long as one over a thousand, and a file of ten row groups took some 150
    of them: 467 us of processor time a file, now 70 (DuckDB: 215). There is no compiled loop of its own for verdicts:
    bounds, trees and filters go through the code that one file goes through, over longer arrays, so there is nothing
    that could decide otherwise. Such a loop could still save half: look again where DuckDB is quicker by the clock.

Files of other storages are decided together as their tails arrive, up to 64 at a time (`search`).
    64 threads that each decided about a file took turns with the interpreter: 1.7 ms of processor time a file. Now
    threads only fetch, and the caller's thread decides about all tails that are there: 0.5 ms, requests included.
    A run waits 50 ms at most for more tails, so that results, progress and errors of a slow store come as they come.
    What a tail does not hold is left to a search of that file alone, in a thread, with the requests of before.
"""
