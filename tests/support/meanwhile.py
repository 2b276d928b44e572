"""Another program in the middle of a run: what it does stands in the run's own callback."""

from __future__ import annotations

from collections.abc import Callable

import parquet_bloom as pb


def one_file_done(progress: pb.Progress) -> bool:
    """The first file is done."""
    return progress.files_done == 1


def a_filter_built(progress: pb.Progress) -> bool:
    """The first filters of a file are built."""
    return progress.parts_done > 0


def meanwhile(
    action: Callable[[], object], moment: Callable[[pb.Progress], bool] = one_file_done
) -> Callable[[pb.Progress], None]:
    """A value for `progress=` that calls `action` once, at the first progress of which `moment` is true."""
    done: list[int] = []

    def progress(now: pb.Progress) -> None:
        if not done and moment(now):
            done.append(1)
            action()

    return progress
