"""A store with S3's API on loopback, for .ci/bare: prints HOST:PORT, holds the files named in bucket `data`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from support.object_store import serving

with serving() as store:
    store.client.create_bucket(Bucket="data")
    for name in sys.argv[1:]:
        store.put(f"data/{Path(name).name}", Path(name).read_bytes())
    print(store.endpoint.removeprefix("http://"), flush=True)
    signal.pause()
