"""A PostgreSQL server of Debian's package on the loopback interface, for catalogs that several programs share."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from support.loopback import free_port

JDBC = "/usr/share/java/postgresql.jar"  # of Debian's libpostgresql-jdbc-java
_BINARIES = Path("/usr/lib/postgresql")
_PATIENCE_S = 30


class Postgres:
    """The server; nobody needs a password."""

    def __init__(self) -> None:
        self._psycopg2 = pytest.importorskip("psycopg2")
        found = sorted(_BINARIES.glob("*/bin/initdb"))
        if not found or not os.path.exists(JDBC):
            pytest.skip("no PostgreSQL: apt-get install postgresql libpostgresql-jdbc-java")
        self._folder = Path(tempfile.mkdtemp(prefix="parquet-bloom-postgres-"))
        as_whom = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}  # it does not run as root
        if as_whom:
            shutil.chown(self._folder, **as_whom)
        data, self.port, self._databases = self._folder / "data", free_port(), 0
        begin = [found[-1], "-A", "trust", "-U", "bloom", "-D", data]
        subprocess.run(begin, check=True, capture_output=True, cwd=self._folder, **as_whom)
        command = [found[-1].with_name("postgres"), "-D", data, "-p", str(self.port), "-k", self._folder]
        self._process = subprocess.Popen(
            [*command, "-c", "listen_addresses=127.0.0.1"], cwd=self._folder, stderr=subprocess.DEVNULL, **as_whom
        )
        stop = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self._execute("SELECT 1")
                return
            except self._psycopg2.OperationalError:
                assert time.monotonic() < stop, "it does not start"
                time.sleep(0.1)

    def _execute(self, statement: str) -> None:
        connection = self._psycopg2.connect(host="127.0.0.1", port=self.port, user="bloom", dbname="postgres")
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
        connection.close()

    def database(self) -> tuple[str, str]:
        """A new database: as pyiceberg names it, and as Java does."""
        self._databases += 1
        name = f"catalog{self._databases}"
        self._execute(f"CREATE DATABASE {name}")
        at = f"127.0.0.1:{self.port}/{name}"
        return f"postgresql+psycopg2://bloom@{at}", f"jdbc:postgresql://{at}?user=bloom"

    def close(self) -> None:
        """End it, with all that it holds."""
        self._process.send_signal(signal.SIGINT)  # waits for no client
        self._process.wait()
        shutil.rmtree(self._folder)
