"""A zone index of ours as an index of the Lance data set itself, through pylance's public API.

    <data set>/_indices/<uuid>/bloomfilter.lance  +  one commit that names it

A wrong filter would make Lance lose rows, so every row is asked for first.
"""

from __future__ import annotations

import os
import shutil
import uuid
from typing import Any

from parquet_bloom.errors import DamagedFileError, RequestError, parameter
from parquet_bloom.formats import lance as form
from parquet_bloom.formats.metadata.schema import join_path
from parquet_bloom.storage.source import PathLike, Source
from parquet_bloom.storage.writing.litter import clear_below
from parquet_bloom.storage.writing.new_file import new_file
from parquet_bloom.zones.match import cover_of
from parquet_bloom.zones.reader import lance_errors, pylance
from parquet_bloom.zones.verify import VerifiedIndex, lance_fragments, verify_cover

_DETAILS = "/lance.index.pb.BloomFilterIndexDetails"


def register_index(
    index: PathLike, dataset: PathLike, *, name: str | None = None, replace: bool = False
) -> VerifiedIndex:
    """Add an index that `build_index` made to the manifest of its data set, after verifying it.

    index    the file; it is copied into the data set
    dataset  a Lance data set on a local disk
    name     of the index in Lance; default `<column>_idx`, as pylance has it
    replace  take the place of an index of that name

    Fragments that came after the build stay uncovered: Lance reads these as before. Raises
    StaleIndexError, DamagedFileError for an index that is wrong; RequestError for a name that is taken.
    """
    uri = os.fspath(dataset)
    if not os.path.isdir(os.path.join(uri, "_versions")):
        raise RequestError(f"{uri} is no Lance data set on a local disk")
    cover = cover_of(os.fspath(index))
    with lance_errors(uri):
        opened = pylance().dataset(uri)
        taken = {str(one.name): one for one in opened.describe_indices()}
    name = name or f"{'_'.join(cover.path)}_idx"
    if name in taken and not replace:
        ways = "another " + parameter("name") + ", or " + parameter("replace", True)
        raise RequestError(f"{uri} has an index {name}; give " + ways)
    if cover.file.column is None:
        raise RequestError(f"{cover.file.path} was not made by parquet-bloom index build")
    fragments = lance_fragments(cover, opened)
    if fragments and fragments[0][1].kind != cover.kind:
        raise RequestError(f"column {join_path(cover.path)} is {fragments[0][1].kind}, the index of {cover.kind}")
    verdict = verify_cover(cover, fragments)
    if verdict.status != "right":
        raise DamagedFileError(cover.file.path, f"is wrong and was not registered: {verdict.reason}")
    _commit(opened, cover.file.path, name, cover.path, [f.number for f, _ in fragments], taken.get(name))
    return verdict


def _commit(opened: Any, path: str, name: str, column: tuple[str, ...], numbers: list[int], old: Any) -> None:
    own = str(uuid.uuid4())
    folder = os.path.join(opened.uri, "_indices", own)
    clear_below(os.path.dirname(folder))
    with Source(path) as source, new_file(os.path.join(folder, form.FILE_NAME), overwrite=False) as new:
        new.copy_from(0, source, 0, source.size)
        new.commit(source.check_unchanged)
    try:
        with lance_errors(opened.uri):
            from lance import Index, LanceDataset, LanceOperation

            fields = opened.lance_schema.fields()
            for part in column:
                field = next(one for one in fields if one.name() == part)
                fields = field.children()
            new = Index(
                uuid=own, name=name, fields=[field.id()], dataset_version=opened.version, fragment_ids=set(numbers),
                index_version=0, index_details=(_DETAILS, b""),
            )  # fmt: skip
            gone = [
                Index(
                    uuid=str(segment.uuid), name=name, fields=list(old.fields), dataset_version=opened.version,
                    fragment_ids=segment.fragment_ids, index_version=segment.index_version,
                )
                for segment in (old.segments if old is not None else ())
            ]  # fmt: skip
            LanceDataset.commit(opened.uri, LanceOperation.CreateIndex([new], gone), read_version=opened.version)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
