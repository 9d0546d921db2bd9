"""Fetches Delta's two jars once, by Spark's own resolver, into the folder where `find_jars` looks.

Run by `tools/setup.py` with the environment's Python. Spark's resolver honours the settings that people have for it:
`DEFAULT_ARTIFACT_REPOSITORY` for a mirror, and Maven's local repository.
"""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from pipelines.spark.runtime import (
    DELTA_SPARK,
    DELTA_STORAGE,
    JavaHome,
    RuntimeNotFoundError,
    find_jars,
    find_java,
    jars_folder,
)

# Delta declares these dependencies, but only Unity Catalog and the Java kernel use them.
UNUSED = (
    "io.delta:delta-kernel-api",
    "io.delta:delta-kernel-defaults",
    "io.delta:delta-kernel-unitycatalog",
    "io.unitycatalog:unitycatalog-client",
    "io.unitycatalog:unitycatalog-hadoop",
)
RESOLVE_SECONDS = 600
STORE_PASSWORD = "changeit"  # Java's own default: a store of public certificates is no secret


def main() -> int:
    """Check Java, then check or fetch the jars; the exit status is 1, with a paragraph on stderr, if one is missing."""
    try:
        java = find_java()
        print(f"deltatag: Java {java.version} from {java.origin}", flush=True)
        try:
            find_jars()
        except RuntimeNotFoundError as missing:
            # a folder that the user has named must be filled by the user
            if "DELTATAG_JARS" in os.environ:
                raise
            fetch(java, missing)
    except RuntimeNotFoundError as error:
        print(f"deltatag: {error}", file=sys.stderr)
        return 1
    return 0


def fetch(java: JavaHome, missing: RuntimeNotFoundError) -> None:
    """Put both jars into their folder; RuntimeNotFoundError with the resolver's message if that fails."""
    print("deltatag: fetching Delta's jars", flush=True)
    folder = jars_folder()
    folder.mkdir(parents=True, exist_ok=True)
    said = ""
    with tempfile.TemporaryDirectory(prefix="deltatag-jars-") as work:
        for options in java_options(Path(work)):
            said = resolve(java, Path(work), options)
            if keep(Path(work) / "ivy" / "jars", folder):
                find_jars()
                return
    raise RuntimeNotFoundError(f"{missing} The attempt to fetch them ended with: {said}")


def resolve(java: JavaHome, work: Path, options: str) -> str:
    """Have Spark resolve the jars into `work/ivy/jars`; returns what it printed about a failure."""
    spark = Path(str(find_spec("pyspark").origin)).parent  # type: ignore[union-attr]
    nothing = work / "nothing.py"
    nothing.write_text("")
    shutil.rmtree(work / "ivy", ignore_errors=True)
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark),
        "JAVA_HOME": str(java.path),
        "PYSPARK_PYTHON": sys.executable,
        "JDK_JAVA_OPTIONS": options,
        "SPARK_LOCAL_HOSTNAME": "localhost",
    }
    command = [str(spark / "bin" / "spark-submit"), "--master", "local[1]"]
    command += ["--packages", f"{DELTA_SPARK.coordinate},{DELTA_STORAGE.coordinate}"]
    command += ["--exclude-packages", ",".join(UNUSED), "--conf", f"spark.jars.ivy={work / 'ivy'}", str(nothing)]
    try:
        run = subprocess.run(command, env=environment, cwd=work, capture_output=True, timeout=RESOLVE_SECONDS)
    except subprocess.TimeoutExpired:
        return f"no answer within {RESOLVE_SECONDS} seconds."
    return summary(run.stdout.decode(errors="replace") + run.stderr.decode(errors="replace"))


def keep(fetched: Path, folder: Path) -> bool:
    """Move the jars that were fetched to `folder` under their Maven names; False if one is missing."""
    jars = [(fetched / f"{jar.group}_{jar.file_name}", folder / jar.file_name) for jar in (DELTA_SPARK, DELTA_STORAGE)]
    if not all(source.is_file() for source, _ in jars):
        return False
    for source, target in jars:
        # copied next to the target first, so that the rename is atomic
        partial = target.with_suffix(".partial")
        shutil.copyfile(source, partial)
        os.replace(partial, target)
    return True


def summary(output: str) -> str:
    """The lines of the resolver's output that give the reason, without its tables."""
    wanted = re.compile(
        r"UnknownHost|Host .+ not found|Server access error|proxy server|SSLHandshake|PKIX|Connection|denied|No space"
    )
    lines = [line.strip(" \t:") for line in output.splitlines() if wanted.search(line)]
    fallback = [line for line in output.splitlines() if line.strip()][-1:]
    return " | ".join(list(dict.fromkeys(lines))[:3] or fallback) or "no message"


def java_options(work: Path) -> Iterator[str]:
    """Java options to try in turn: with the certificates that Python trusts, then with Java's own.

    Behind a proxy that inspects TLS, usually only the machine's bundle has the proxy's certificate; sometimes only the
    JDK of a company has it.
    """
    usual = " ".join([os.environ.get("JDK_JAVA_OPTIONS", ""), *proxy_options()]).strip()
    store = trust_store(work / "trusted.p12")
    if store is not None:
        trust = f'"-Djavax.net.ssl.trustStore={store}" -Djavax.net.ssl.trustStorePassword={STORE_PASSWORD}'
        yield f"{usual} {trust} -Djavax.net.ssl.trustStoreType=PKCS12".strip()
    yield usual


def trust_store(path: Path) -> Path | None:
    """Write a Java trust store of the certificates that Python trusts; None without any, or without `cryptography`."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
    except ImportError:
        return None
    entries = []
    for number, pem in enumerate(sorted(trusted_certificates())):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                certificate = x509.load_pem_x509_certificate(pem.encode())
        except ValueError:
            continue  # an invalid certificate in a bundle is skipped
        entries.append(pkcs12.PKCS12Certificate(certificate, b"trusted-%d" % number))
    if not entries:
        return None
    path.write_bytes(pkcs12.serialize_java_truststore(entries, BestAvailableEncryption(STORE_PASSWORD.encode())))
    return path


def trusted_certificates() -> set[str]:
    """The PEM texts of all certificates in the bundles that Python and common tools use."""
    paths = ssl.get_default_verify_paths()
    files = [os.environ.get(name) for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")]
    files += [paths.cafile, "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", certifi_bundle()]
    found: set[str] = set()
    for name in files:
        if name and Path(name).is_file():
            text = Path(name).read_text(errors="replace")
            found.update(re.findall(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", text, re.DOTALL))
    return found


def certifi_bundle() -> str | None:
    """The bundle of the package certifi, for Pythons that come without one."""
    try:
        import certifi
    except ImportError:
        return None
    return certifi.where()


def proxy_options() -> list[str]:
    """Java options for the proxies in the environment, which Java itself does not read."""
    options = []
    for scheme, address in urllib.request.getproxies().items():
        proxy = urllib.parse.urlsplit(address)
        if scheme in ("http", "https") and proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    return options


if __name__ == "__main__":
    sys.exit(main())
