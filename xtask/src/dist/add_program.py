"""Puts the binary into a wheel, as a script (PyPA, binary distribution format), and gives all files of the wheel one time.

add_program.py WHEEL BINARY SECONDS: the wheel is written anew. The same files give the same bytes.
"""

import base64
import hashlib
import sys
import time
import zipfile
from pathlib import Path

wheel, binary = Path(sys.argv[1]), Path(sys.argv[2])
# The zip format knows no time before 1980.
at = time.gmtime(max(int(sys.argv[3]), 315_532_800))[:6]
name, version = wheel.name.split("-")[:2]
record = f"{name}-{version}.dist-info/RECORD"
program = f"{name}-{version}.data/scripts/latput"

with zipfile.ZipFile(wheel) as packed:
    files = {it.filename: (packed.read(it), 0o644) for it in packed.infolist() if not it.is_dir()}
del files[record]
files[program] = (binary.read_bytes(), 0o755)

lines = []
with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:

    def add(path: str, content: bytes, mode: int) -> None:
        entry = zipfile.ZipInfo(path, at)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.create_system = 3  # Unix, for the mode
        entry.external_attr = (0o100000 | mode) << 16
        packed.writestr(entry, content)

    # As the format wants it, what describes the wheel is at its end.
    for path in sorted(files, key=lambda path: (".dist-info/" in path, path)):
        content, mode = files[path]
        add(path, content, mode)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}\n")
    add(record, ("".join(lines) + f"{record},,\n").encode(), 0o644)
