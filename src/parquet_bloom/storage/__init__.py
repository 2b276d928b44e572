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
    `store.Store` declares open, version, kinds, names, folders above, entries. `store.LocalStore`,
    `object_store.ObjectStore` and `arrow_store.RemoteStore` implement it, and `stores.store_on` alone chooses.
    `is_local` is tested only where the work itself differs: locks, links, requests side by side.

Files on other storages are worked on side by side, local ones one after the other.
    `remote.in_order` works on limits().concurrency (64) files ahead and gives results in order; no more wait in memory,
    however many files there are. 200 objects at 30 ms a request: `inspect` takes 1.0 s instead of 15.0. A local file is
    read from the page cache, where threads cost more than they save. pyarrow's S3 client has 25 connections unless its
    reading threads are more, so `remote` raises these while it makes one. A file system that the caller made keeps
    what it has.

    Through a file system of pyarrow that is handed over HEAD and GET a file remain: `open_input_file` takes no size in
    Python, and tells an ETag only after a HEAD. Without an ETag neither `Source` nor `FileChangedError` would notice a
    change that keeps size and time.

Objects of s3:, gs: and abfs: cost one request each, through obstore.
    The first GET is one of the last 64 KiB, whose answer has size and ETag. Later GETs name the ETag. Azure has no
    requests for last bytes, so there the listing's ETags open objects. Google's versions are generations, which its
    listings do not tell here. `object_s3`, `object_google` and `object_azure` say what a URI means in obstore's words.
    `remote.Objects` has a URI's settings by names of pyarrow's parameters. Its `arrow` is pyarrow's file system of the
    same ones: it writes, data sets of pyarrow's read by it, and so do forked children, which cannot use obstore.

    A setting that obstore does not have is refused in one line: there is no second way that nobody sees. Credentials
    that obstore cannot find itself (profiles, SSO, programs, roles) are boto3's.

    Nothing is left to obstore's own look at the environment: HTTPS_PROXY and AWS_SKIP_SIGNATURE would change requests.

The last 64 KiB of a remote file stay in memory, because the checks read them again.
    A chunk reaches pyarrow through a file object that reads ahead. With `pre_buffer` pyarrow would keep whole row
    groups.
"""
