"""New files replace old ones: written beside them and swapped, appended with a journal, or sent to a store.

Decisions

`target` alone chooses how a new version is written.
    `add` and `remove` make one `Target`, and it begins one of four versions. All implement `draft.NewVersion`, so
    `add` and `remove` have one code path.

    AtomicFile     a file beside its target, then a swap; a `Draft`: its bytes are in a local file
    AppendedFile   new bytes behind the file itself
    StoredFile     an object that S3 assembles; it only notes which bytes are old
    UploadedFile   a local file (a `Draft`), then the storage's put

    The object of a `StoredFile` does not exist yet. Checks read it as an `OpenFile` like any remote file, so they are
    those of a local one.

One file beside its target, then a swap.
    `atomic_file` has the life of such a file: the real target, its attributes, the moment of the swap. `folder` has
    the names: a folder kept open, temporary names and their locks, litter of killed runs, Hadoop's checksum files.

The swap is atomic (renameat2 with RENAME_EXCHANGE), because no rename compares.
    After the swap the old file has the temporary name. If it is not the file that was read, another program wrote it
    at the last moment, and it goes back. Signals wait until this is done. A new name needs RENAME_NOREPLACE. Systems
    without these calls use link and unlink, and a check right before the rename. Our own writers wait for each other
    (`recovery`). The lock is on the inode, so after the wait the path is checked again.

A folder stays open while a new file is made in it (`folder`).
    All names are relative to its descriptor. So a folder that moves, or another working folder, leaves no litter.
    A library with file names of its own (pylance makes `.tmpXXXXXX` and renames it) gets a locked folder, and
    `AtomicFile.adopt` takes the file from there.

A tail is one more layout of a new version in `edit.writer`.
    The new version decides where its old bytes come from (`NewVersion.clone`). AtomicFile shares them (ioctl FICLONE)
    or copies them; StoredFile copies them inside the store; AppendedFile has them already. AppendedFile (`append`)
    collects the new bytes in a file beside the target, and a rename then makes this file the journal. So bytes are
    written twice, but a torn end can be compared with all of them, byte for byte; no checksum allows that. `recovery`
    removes a torn end once it has the lock; all our writers use it. Readers must not write: for a file without a
    footer `OpenFile` queries the store for a journal (`Store.size_before_append`), and reads up to the old size.
    `filters.tails` decides what a tail of ours is, for `remove` and `inspect`; `OpenFile.until` is a file as if it
    ended earlier. `edit.remove` adds and removes tails for tables, whose logs have the sizes of files.

Write-back begins early.
    Every 32 MiB of the copy `posix_fadvise` starts writing to the disk, so the fsync at the end waits less: 0.39 s
    against 0.83 s for a whole `add` of 380 MB, medians of eight runs in turn. On Spark the same call, every 8 MiB,
    also drops pages that the disk has: a data set that passes through must not push everything else out of memory.
    Pages that are used again need not come from a virtual machine's host: 1.9 times as fast here after a pause
    (`benchmarks/spark.py --only limit`).

An output has its source's permissions, and its owner may write. In place the permissions are exactly the old ones.

Streams cannot be aborted.
    A stream publishes when it is closed. pyarrow's streams also publish when they are collected, after errors, and at
    the end of the process. So a stream to S3 or GCS that must not be published stays alive for ever (one reference too
    many). The upload runs in a thread, where no signal ends it in the middle; Control-C reaches it between two steps.

An object up to 64 MiB of which S3 can copy nothing is put with one request, if the old one is still there.
    20 objects of 48 KB at 30 ms a request: 130 requests and 1.5 s instead of 170 and 19.0 s, 16 objects at a time. A
    multipart upload takes three requests one after the other. boto3's client is made once a call (0.18 s of processor
    time, 0.01 s in later calls: descriptions of services are decoded once in a process). Tags are asked for beside the
    HEAD, not after it: HEAD has their number only for who may read them, and tags must not get lost. Where the answer
    of a PUT gets lost, the object's ETag, or else its bytes, tell what is there.

boto3 works beside pyarrow, because pyarrow cannot copy ranges inside S3.
    The client takes pyarrow's options from the file system's `__reduce__`. With a role that pyarrow assumes itself the
    bytes travel instead. Checksum headers of newer SDKs are omitted, because some stores do not know them; each part
    that is sent has its MD5.
"""
