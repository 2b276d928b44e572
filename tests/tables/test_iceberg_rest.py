"""Iceberg tables of a REST catalog: a small server, with the catalog of the other tests behind it."""

from __future__ import annotations

import gc
import http.server
import json
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from pyiceberg.table import CommitTableRequest
from support.iceberg_tables import SCHEMA, Warehouse, append, rows_of

import parquet_bloom as pb
from parquet_bloom.errors import ParquetBloomError, RequestError, StorageError, UnknownCommitError
from parquet_bloom.tables.iceberg.catalogs import find_catalog


class Server(http.server.ThreadingHTTPServer):
    """A catalog's server.

    answers  codes to answer the next commits with, before or after they are made
    config   what is answered beside a table's metadata
    lies     properties that its metadata have, beside its own
    """

    def __init__(self, warehouse: Warehouse) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.warehouse = warehouse
        self.answers: list[tuple[int, bool]] = []
        self.config: dict[str, str] = {}
        self.lies: dict[str, str] = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body follows its headers at once
    server: Server

    def log_message(self, *arguments: Any) -> None:
        pass

    def answer(self, code: int, body: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def fault(self, code: int) -> None:
        self.answer(code, json.dumps({"error": {"message": f"fault {code}", "type": "Fault", "code": code}}))

    def table(self, table: Any) -> None:
        metadata = json.loads(table.metadata.model_dump_json(by_alias=True, exclude_none=True))
        metadata["properties"] |= self.server.lies
        said = {"metadata-location": table.metadata_location, "metadata": metadata, "config": self.server.config}
        self.answer(200, json.dumps(said))

    def do_GET(self) -> None:
        if self.path.startswith("/v1/config"):
            self.answer(200, '{"defaults": {}, "overrides": {}}')
        elif self.path.endswith("/tables/t"):
            self.table(self.server.warehouse.load())
        else:
            self.fault(404)

    def do_POST(self) -> None:
        asked = CommitTableRequest.model_validate_json(self.rfile.read(int(self.headers["Content-Length"])))
        code, lands = self.server.answers.pop(0) if self.server.answers else (200, True)
        if lands:
            catalog = self.server.warehouse.catalog
            made = catalog.commit_table(catalog.load_table("ns.t"), asked.requirements, asked.updates)
        if code == 200:
            self.table(made)
        else:
            self.fault(code)


@pytest.fixture
def server(warehouse: Warehouse) -> Iterator[Server]:
    """A table of 1,000 rows, and its server."""
    table = warehouse.create(SCHEMA, properties={"commit.retry.min-wait-ms": "1", "commit.retry.num-retries": "1"})
    append(table, rows_of(*range(1000)))
    made = Server(warehouse)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def connections() -> int:
    """Sockets that this process has open for HTTP."""
    kinds = [one for one in gc.get_objects() if isinstance(one, urllib3.connection.HTTPConnection)]
    return sum(one.sock is not None for one in kinds)


def test_commits_and_faults_and_no_connection_that_stays(server: Server) -> None:
    """Not until Python collects garbage either. Whatever is answered, it is told what became of the commit."""
    given = {"catalog_properties": {"type": "rest", "uri": f"http://127.0.0.1:{server.server_port}"}}

    def add() -> int:
        return len(pb.add_filters("iceberg:r/ns.t", columns=["id"], replace=True, **given).commits)

    def told(answers: list[tuple[int, bool]]) -> type[Exception] | int:
        server.answers = answers
        try:
            return add()
        except ParquetBloomError as error:
            return type(error)

    before = connections()
    gc.disable()
    try:
        assert pb.count("iceberg:r/ns.t", **given) == 1000
        assert told([]) == 1
        assert told([(409, False)]) == 1, "another attempt"
        assert told([(409, True)]) == 1, "it landed all the same"
        assert told([(503, False)]) == StorageError
        assert told([(500, False)]) == UnknownCommitError
        assert told([(500, True)]) == 1
        with pytest.raises(RequestError, match="no such table"):
            pb.count("iceberg:r/ns.none", **given)
        assert pb.count("iceberg:r/ns.t", "id >= 500", **given) == 500
        assert connections() == before
    finally:
        gc.enable()


def test_the_servers_config_is_obeyed_and_the_metadata_are_not(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"catalog_properties": {"type": "rest", "uri": f"http://127.0.0.1:{server.server_port}"}}
    (tmp_path / "of_metadata.py").write_text("raise RuntimeError('imported')")
    shutil.copy(tmp_path / "of_metadata.py", tmp_path / "of_config.py")
    monkeypatch.syspath_prepend(tmp_path)
    server.lies = {"py-io-impl": "of_metadata.IO", "s3.endpoint": "http://127.0.0.1:1", "commit.retry.num-retries": "1"}
    assert pb.count("iceberg:r/ns.t", **given) == 1000
    assert len(pb.add_filters("iceberg:r/ns.t", columns=["id"], **given).commits) == 1
    table = find_catalog("r", given["catalog_properties"]).load_table("ns.t")
    assert set(server.lies) <= set(table.properties), "they are properties of the table, and nothing else"
    assert not set(server.lies) & set(table.io.properties)
    assert "of_metadata" not in sys.modules
    server.config = {"s3.endpoint": "http://127.0.0.1:2"}
    table = find_catalog("r", given["catalog_properties"]).load_table("ns.t")
    assert table.io.properties["s3.endpoint"] == server.config["s3.endpoint"], "what the catalog says counts"
    server.config = {"py-io-impl": "of_config.IO"}
    with pytest.raises(StorageError, match="imported"):
        pb.count("iceberg:r/ns.t", **given)
