"""Hadoop's S3A for the Spark that is installed here, fetched once through Maven, as docs/spark.md names it.

Owns: which jars, and showing them to a Spark that runs. Does not own: the cache (`cached_software`).
Invariants: the jars are of the Hadoop that this PySpark has; those that Spark has itself are not among them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from tests.services.cached_software import cached, carry_out, maven

AWS_SDK: Final = "2.35.4"
_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_MODULES: Final = ("s3", "s3-transfer-manager", "sts")
_OF_SPARK: Final = ("io.netty", "org.slf4j", "org.apache.httpcomponents", "commons-codec", "commons-logging")


def s3a_jars() -> list[Path]:
    """The jars, from the cache or fetched into it."""
    hadoop = hadoop_version()
    with cached("s3a", f"{hadoop}-{AWS_SDK}", _fetch) as folder:
        return sorted(folder.glob("*.jar"))


def hadoop_version() -> str:
    """The version of Hadoop in the PySpark of these tests."""
    [jar] = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def add_s3a(spark: SparkSession) -> None:
    """Show S3A to a running Spark with a local master, as `spark.jars` does to one that starts."""
    java = spark._jvm
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    known = {str(url) for url in loader.getURLs()}
    for jar in s3a_jars():
        url = java.java.io.File(str(jar)).toURI().toURL()
        if str(url) not in known:
            loader.addURL(url)


def _fetch(folder: Path) -> Path:
    hadoop = hadoop_version()
    software = f"S3A of Hadoop {hadoop}"
    (folder / "pom.xml").write_text(_pom(hadoop))
    command = [*maven(software), _PLUGIN, "-DoutputDirectory=libs", "-DincludeScope=runtime"]
    carry_out(software, f"fetching {software}, once (20 MB)", command, folder, timeout_s=600)
    return folder / "libs"


def _pom(hadoop: str) -> str:
    kept_out = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>"
        for group, artifact in (("software.amazon.awssdk", "bundle"), *((group, "*") for group in _OF_SPARK))
    )
    wanted = [
        ("org.apache.hadoop", "hadoop-aws", hadoop),
        *(("software.amazon.awssdk", it, AWS_SDK) for it in _MODULES),
    ]
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"<exclusions>{kept_out}</exclusions></dependency>"
        for group, artifact, version in wanted
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>rootline.tests</groupId><artifactId>s3a</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
