"""Finish built distributions: the same bytes from every build of a commit, and a bill of materials in each wheel.

    python tools/distributions.py FOLDER                  finish every sdist and wheel of a folder
    python tools/distributions.py FOLDER --same ANOTHER   compare the SHA-256 of the files of two folders

setuptools writes the modification times, owners and modes of the checkout into an archive, and the order of its entries
follows the file system. Here entries are sorted, times are SOURCE_DATE_EPOCH, files belong to nobody and have mode 644
(755 if they are programs). A wheel gets a bill of materials in CycloneDX's format under `.dist-info/sboms` (PEP 770).
"""

from __future__ import annotations

import argparse
import base64
import email
import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
import time
import uuid
import zipfile
from pathlib import Path

# Data of others that a wheel holds in another form; their licences are in `.dist-info/licenses`.
PARTS = {
    "groundup-bpe": [
        {
            "type": "data",
            "name": "Unicode Character Database",
            "version": "16.0.0",
            "licenses": [{"license": {"id": "Unicode-3.0"}}],
            "description": "general categories, scripts, case folding and normalization, as tables of C and Python",
        }
    ],
    "groundup-lm": [
        {"type": "library", "name": "@huggingface/jinja", "version": "0.5.11", "licenses": [{"license": {"id": "MIT"}}]}
    ],
}


def bill_of_materials(metadata: str) -> bytes:
    """The CycloneDX document of a wheel: the package itself, and what is inside it that others wrote.

    Args:
        metadata: the text of the wheel's METADATA.

    Returns:
        JSON, the same for the same metadata.
    """
    fields = email.message_from_string(metadata)
    name, version = fields["Name"], fields["Version"]
    identifier = f"pkg:pypi/{name}@{version}"
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, identifier)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": identifier,
                "purl": identifier,
                "name": name,
                "version": version,
                "licenses": [{"expression": fields["License-Expression"]}],
            }
        },
        "components": PARTS.get(name, []),
    }
    return json.dumps(document, indent=2).encode()


def record_line(name: str, data: bytes) -> str:
    """A line of a wheel's RECORD: path, SHA-256 in URL-safe base64 without padding, size."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def finish_wheel(path: Path, seconds: int) -> None:
    """Write a wheel again: sorted, with fixed times and modes, with its bill of materials and a new RECORD."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    (metadata,) = (name for name in files if name.endswith(".dist-info/METADATA"))
    folder = metadata.removesuffix("METADATA")
    sbom = f"{folder}sboms/{path.name.split('-')[0]}.cdx.json"
    files[sbom] = bill_of_materials(files[metadata].decode())
    # The archive ends with the metadata, and its RECORD with itself, as the wheel format recommends.
    names = sorted(files.keys() - {f"{folder}RECORD"}, key=lambda name: (name.startswith(folder), name))
    record = "".join(record_line(name, files[name]) for name in names) + f"{folder}RECORD,,\n"
    files[f"{folder}RECORD"] = record.encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in [*names, f"{folder}RECORD"]:
            entry = zipfile.ZipInfo(name, time.gmtime(seconds)[:6])
            mode = 0o755 if name.endswith((".so", ".pyd")) else 0o644
            entry.create_system, entry.external_attr, entry.compress_type = 3, (0o100000 | mode) << 16, 8
            archive.writestr(entry, files[name])


def finish_sdist(path: Path, seconds: int) -> None:
    """Write an sdist again: sorted, with fixed times, modes and owners, without entries for folders."""
    with tarfile.open(path) as archive:
        files = {entry.name: (entry.mode, archive.extractfile(entry)) for entry in archive if entry.isfile()}
        contents = {name: (mode, data.read()) for name, (mode, data) in files.items() if data}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, (mode, data) in sorted(contents.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(data), seconds, 0o755 if mode & 0o100 else 0o644
            archive.addfile(entry, io.BytesIO(data))
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=seconds))


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--same", type=Path, metavar="ANOTHER", help="compare with the files of this folder")
    arguments = parser.parse_args()
    if arguments.same:
        one, other = digests(arguments.folder), digests(arguments.same)
        for name in sorted(one | other):
            print(name, one.get(name), "the same" if one.get(name) == other.get(name) else f"is not {other.get(name)}")
        sys.exit(one != other)
    # The ZIP format begins in 1980.
    seconds = max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800)
    for path in sorted(arguments.folder.iterdir()):
        if path.suffix == ".whl":
            finish_wheel(path, seconds)
        elif path.name.endswith(".tar.gz"):
            finish_sdist(path, seconds)


if __name__ == "__main__":
    main()
