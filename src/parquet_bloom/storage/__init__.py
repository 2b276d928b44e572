"""Names become files, files become bytes.

Decisions

Table folders are read through their log, or refused.
    A table's folder keeps files that were replaced and rows that were deleted. A file that is live today may be dead
    tomorrow, and only the log knows. So every function that returns rows, or verdicts about rows, takes a table by its
    name (`source.names`), or by its folder if that has a Delta log. It refuses every other folder of a table and each
    file in one. `raw_files` is the one exception, for callers that have the names of live files from the log; it
    disables the search. `add -o` and `remove -o` are refused too, because their copies lie where no log marks them as
    dead; `--force` also allows these. `inspect` and `verify` describe filters, not rows: in a folder that is not named
    as a table they continue with a note. Changes of files in place need `--force`, which warns.

    `table_folders` decides what a table's folder is. A name is not enough; it must find a log. `table_folders.Tables`
    searches for one call and remembers the results. The number of requests depends on folders, never on files:

    folders                 local                                   other storages
    above, to the root      three names each                        three LISTs each, side by side, in one round
    of a pattern            those of all files that fit, once each  its fixed part; the listing has the others
    below                   names of `os.walk`; a log's folder is   names of the listing
                            opened where one is met
    beside                  100 folders on each of four levels,     none: a listing of all neighbours has no bound
                            metadata of eight tables, 16 names
    on Spark                the driver searches above (with Spark Connect a task); executors return the tables that they
                            meet as rows of the listing

    When reading, a folder without permission to list is passed over, because rights to an object do not include its
    neighbours. Writing in place is then refused. A footer that names a table (`iceberg.schema`, deltalake's
    `created_by`, Hudi's keys or its column `_hoodie_commit_time`) causes a note and never a refusal, because exported
    files are legitimate. Not noticed:

    * data of an Iceberg table outside of its folder, on another storage or further away than beside it, that pyiceberg
      wrote (Iceberg's Java library leaves a sign in footers)
    * files of Delta on Spark outside of the table
    * footers on Spark
    * symbolic links in a named folder that lead into a table
    * folders of other kinds of tables, such as DuckLake and Paimon

One function turns names into files.
    `paths.locate` returns a `FileSet` of `DataFile`s, each with its file system, its shown name and its Hive
    partitions. A single name is opened to find out whether it is a file, and `open_file.OpenFile` keeps that handle:
    HEAD and GET, not two HEADs. pyarrow's own local file systems become local paths.

One set of methods for all storages.
    `store.Store` declares open, version, kinds, names, folders above, entries. `store.LocalStore` and
    `stores.RemoteStore` implement it, and `stores.store_of` alone chooses. `is_local` is tested only where the work
    itself differs: locks, links, requests side by side.

Files on other storages are worked on side by side, local ones one after the other.
    `remote.in_order` works on limits().concurrency (64) files ahead and gives results in order; no more wait in memory,
    however many files there are. 200 objects at 30 ms a request: `inspect` takes 1.0 s instead of 15.0. A local file is
    read from the page cache, where threads cost more than they save. pyarrow's S3 client has 25 connections unless its
    reading threads are more, so `stores` raises these while it makes one. A file system that the caller made keeps
    what it has.

    Through pyarrow HEAD and GET a file remain. pyarrow's `open_input_file` takes no size in Python, and tells an ETag
    only after a HEAD; the listing's FileInfo has none. Without an ETag neither `Source` nor `FileChangedError` would
    notice a change that keeps size and time, so the HEAD is not saved.

Objects cost one request each through obstore, a choice of the user's (the extra `stores`).
    The first GET is one of the last 64 KiB, whose answer has size and ETag; a listing is not needed for them, so names
    come from pyarrow as before. Later GETs name the ETag. Azure has no requests for last bytes, so there obstore lists.
    Google's versions are generations, whose numbers pyarrow tells too; ETags differ between its two APIs, and obstore
    has no generations of listings. `object_s3`, `object_google` and `object_azure` tell obstore what pyarrow's file
    system was told, or that they cannot; a first request that fails is asked again of pyarrow, whose error is the one
    to tell. So obstore can make a configuration that works neither fail nor mean something else.

    Nothing is left to obstore's own look at the environment: HTTPS_PROXY and AWS_SKIP_SIGNATURE change its requests,
    and not pyarrow's.

The last 64 KiB of a remote file stay in memory, because the checks read them again.
    A chunk reaches pyarrow through a file object that reads ahead. With `pre_buffer` pyarrow would keep whole row
    groups.
"""
