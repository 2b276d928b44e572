"""Words, numbers and shapes that no honest log has, and a way to put them into documents of JSON."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from support.loopback import hostile_names

_RAW = re.compile(r'"<<(.*?)>>"')
# What json.dumps does not write: they stand in a document as a text, and become JSON by `dumped`.
RAW_NUMBERS = ["1e400", "-1e400", "NaN", "Infinity", "9" * 5000, "1" + "0" * 400, "1E5", "-0", "0.1e-999"]
NUMBERS = [-1, 0, 1, 2, 5, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64]
NUMBERS += [10**400, 1.5, -0.0, 1e308, True, False]
DEEP = 3000
_PLACES = re.compile(r"path|location|list|manifest|file|Dv|metadata|uri|url|warehouse", re.IGNORECASE)
_PROPERTY_MAPS = ("configuration", "properties", "summary", "tags", "options", "partitionValues")


def listed(*lines: str) -> list[str]:
    """Texts, with a broken bar between them."""
    return [text for line in lines for text in line.split("¦")]


@dataclass(frozen=True)
class Words:
    """What the words of a case may lead to.

    authority  of the listener
    victim     a folder that no log may name
    table      the folder of the table
    """

    authority: str
    victim: str
    table: str

    def outside(self) -> list[str]:
        """Names of files that are there, and are not the table's."""
        victim, up = self.victim, "../" * 12 + self.victim.lstrip("/")
        encoded = victim.replace("/", "%2F")
        return listed(
            f"{victim}/x.parquet¦{victim}/a.parquet¦file://{victim}/x.parquet¦file:{victim}/x.parquet",
            f"FILE://{victim}/x.parquet¦file://localhost{victim}/x.parquet¦file:////{victim}/x.parquet",
            f"/{victim}/x.parquet¦///{victim}/x.parquet¦{encoded}/x.parquet¦%2F{encoded}%2Fx.parquet¦{up}/x.parquet",
            f"{up.replace('..', '%2e%2e')}/x.parquet¦{up.replace('/', '%2F')}%2Fx.parquet¦{up}/secret",
            f"{victim}/secret¦{victim}/v.bin¦{victim}¦{victim}/¦{victim}/*.parquet¦{self.table}/../victim/x.parquet",
            f"{self.table}/a/../../../victim/x.parquet¦{self.table}-neighbour/x.parquet",
            f"file://{self.table}-neighbour/x.parquet¦file://{self.table}/%2e%2e/%2e%2e/victim/x.parquet",
            f"link/x.parquet¦link/secret¦linked.parquet¦{self.table}/link/x.parquet",
            f"file://{self.table}/linked.parquet¦{self.table}/link/../x.parquet¦/proc/self/environ¦/proc/self/fd/0",
            "/dev/zero¦/dev/stdin¦/etc/passwd",
        )

    def elsewhere(self) -> list[str]:
        """Names of other storages, hosts and options."""
        at = self.authority
        return [
            *hostile_names(at),
            *listed(
                f"s3n://{at}/x.parquet¦oss://{at}/x.parquet¦wasbs://c@{at}/x.parquet¦http://{at}¦s3://{at}/x.parquet",
                f"S3://bucket/x.parquet?endpoint_override={at}&scheme=http¦s3://bucket/%3Fendpoint_override={at}",
                f"s3://a:b@{at}/x¦gs://{at}/x.parquet¦\\\\{at}\\share\\x",
            ),
        ]

    @staticmethod
    def strange() -> list[str]:
        """Texts that are no names, or names of nothing."""
        return [
            *listed(
                "¦ ¦.¦./¦a//b¦/¦//¦~¦~/x¦a\0b¦\ud800¦\udcff¦a\nb¦\r\n¦\x1b[31m¦%¦%zz¦%00¦%ff¦*¦?¦#¦[¦{",
                "://¦s3://¦file:¦file://",
                "C:\\x¦\u202e¦null¦NaN¦-1¦1e9¦true¦x'y\"z¦'; DROP --¦_delta_log/00000000000000000000.json¦a.parquet",
                "__HIVE_DEFAULT_PARTITION__¦1970-01-01¦decimal(99,1)",
            ),
            *("é" * 99, "a" * 300, "a" * 100_000, "a/" * 5000, "9" * 5000),
        ]

    def any(self, rng: random.Random) -> str:
        return rng.choice(rng.choice((self.outside(), self.outside(), self.elsewhere(), self.strange())))

    def declared(self, rng: random.Random) -> str:
        """For a property that says where all data lie: a plain folder of this machine is believed there."""
        return rng.choice([*self.elsewhere(), *(word for word in self.strange() if not word.startswith("~"))])

    def properties(self) -> dict[str, str]:
        """Properties that choose code, hosts or credentials, or tell writers what to do."""
        at = f"http://{self.authority}"
        said = listed(
            f"s3.endpoint={at}¦s3.proxy-uri={at}¦s3.signer=S3V4RestSigner¦s3.signer.uri={at}¦s3.region={at}",
            f"gcs.service.host={at}¦adls.account-name=evil¦hdfs.host=127.0.0.1¦token=x¦uri={at}",
            "py-io-impl=hostile_module.Evil¦write.py-location-provider.impl=hostile_module.Evil",
            "s3.retry-strategy-impl=hostile_module.Evil¦write.metadata.delete-after-commit.enabled=true",
            "write.metadata.previous-versions-max=1¦write.object-storage.enabled=true",
            "write.parquet.bloom-filter-enabled.column.id=true¦write.parquet.bloom-filter-fpp.column.id=nan",
            "write.parquet.compression-codec=evil¦write.target-file-size-bytes=-1",
            "commit.manifest.min-count-to-merge=x¦format-version=99¦write.metadata.compression-codec=gzip",
            "delta.columnMapping.mode=id¦delta.checkpointPolicy=v2¦delta.appendOnly=true",
            "delta.enableDeletionVectors=false¦delta.enableInCommitTimestamps=true",
            "delta.dataSkippingNumIndexedCols=-9¦delta.dataSkippingStatsColumns=`¦delta.minReaderVersion=x",
        )
        return dict(pair.split("=") for pair in said) | {
            "write.parquet.bloom-filter-max-bytes": "9" * 5000,
            "commit.retry.num-retries": "9" * 30,
            "schema.name-mapping.default": "[" * DEEP,
            "delta.inCommitTimestampEnablementVersion": "9" * 5000,
        }


def dumped(document: Any) -> str:
    """JSON, with numbers that Python does not write."""
    return _RAW.sub(lambda found: found[1], json.dumps(document))


def places(document: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """(container, key) of each value in a document."""
    pairs: Any = ()
    if isinstance(document, dict):
        pairs = list(document.items())
    elif isinstance(document, list):
        pairs = list(enumerate(document))
    for key, value in pairs:
        yield document, key
        if depth < 30:
            yield from places(value, depth + 1)


def deep(rng: random.Random) -> Any:
    """A value of many levels, as text that is no text."""
    n = rng.choice((50, 200, DEEP, 100_000))
    return "<<" + rng.choice(("[" * n + "]" * n, '{"a":' * n + "1" + "}" * n)) + ">>"


def lie(words: Words, rng: random.Random, key: Any, value: Any, declared: bool = False) -> Any:
    """Another value for a key, mostly of a type that could be there."""
    what = rng.random()
    if isinstance(value, str) and declared:
        return words.declared(rng)
    if isinstance(value, str) and what < 0.75:
        if _PLACES.search(str(key)) or what < 0.3:
            return words.any(rng)
        return rng.choice((rng.choice(words.strange()), value[: len(value) // 2], value + value, value.upper()))
    if isinstance(value, int | float) and what < 0.75:
        return rng.choice((rng.choice(NUMBERS), f"<<{rng.choice(RAW_NUMBERS)}>>", -value, value + 1))
    if isinstance(value, list) and value and what < 0.6:
        return rng.choice(
            ([], value[1:], value + value[:1], value[::-1], [value], value * 20, [None], [*value[:-1], {}])
        )
    if isinstance(value, dict) and value and what < 0.6:
        return rng.choice(({}, [value], {**value, words.any(rng): words.any(rng)}, dict(list(value.items())[1:])))
    if what < 0.83:
        return deep(rng)
    other = [None, {}, [], "x", 5, f"<<{rng.choice(RAW_NUMBERS)}>>", [[]], {"a": None}, rng.choice(NUMBERS), True]
    return rng.choice([*other, words.declared(rng) if declared else words.any(rng)])


def lied(document: Any, words: Words, rng: random.Random, declaring: tuple[str, ...] = ()) -> Any:
    """A copy of a document, wrong in one place; texts of it that are JSON are documents too.

    declaring  keys whose folders a reader believes
    """
    whole = {"": copy.deepcopy(document)}
    found = list(places(whole))
    container, key = rng.choice(found)
    value, what = container[key], rng.random()
    if isinstance(value, str) and value[:1] in ("{", "[") and rng.random() < 0.8:
        try:
            container[key] = dumped(lied(json.loads(value), words, rng))
        except ValueError:
            container[key] = value[:-1]
    elif isinstance(value, dict) and key in _PROPERTY_MAPS and what < 0.7:
        name, said = rng.choice(list(words.properties().items()))
        value[name] = said if rng.random() < 0.8 else lie(words, rng, name, said)
    elif isinstance(container, dict) and key != "" and what < 0.1:
        del container[key]
    elif isinstance(container, dict) and what < 0.15:
        container[words.any(rng)] = value
    elif what < 0.25 and key not in declaring:
        there, at = rng.choice(found)
        if at not in declaring:
            container[key] = copy.deepcopy(there[at])
    else:
        container[key] = lie(words, rng, key, value, key in declaring)
    return whole.get("", {})
