#!/usr/bin/env python3
"""usage: tools/wheel.py OUT VERSION PLATFORM PROGRAM MAN COMPLETION [NAME=LICENCE...]

Writes a wheel (the binary distribution format of Python packages) with the program, its pages of the
manual and its completion scripts, and prints its path. tools/wheel.sh calls it. It needs Python's
own library only. The same input gives the same bytes: files have the date SOURCE_DATE_EPOCH.
"""
import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile

NAME = "fsdp_c"
METADATA = """Metadata-Version: 2.1
Name: fsdp-c
Version: {version}
Summary: Fully sharded data parallel training without Python
License: Apache-2.0
Requires-Python: >=3
Description-Content-Type: text/plain

The command fsdp trains, evaluates and runs language models (T5, Llama, GPT-2, BERT) with parameters,
gradients and optimizer state sharded over processes. It reads and writes the files of PyTorch,
Accelerate and Hugging Face. The wheel contains the command only: nothing is imported.
"""
WHEEL = """Wheel-Version: 1.0
Generator: tools/wheel.py
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""


def main():
    out, version, platform, program, man, completion, *licenses = sys.argv[1:]
    data, info = f"{NAME}-{version}.data", f"{NAME}-{version}.dist-info"
    files = [(f"{data}/scripts/fsdp", pathlib.Path(program).read_bytes(), 0o755)]
    share = f"{data}/data/share"
    for page in sorted(pathlib.Path(man).glob("*.1")):
        files.append((f"{share}/man/man1/{page.name}", page.read_bytes(), 0o644))
    for source, target in (("fsdp.bash", "bash-completion/completions/fsdp"),
                           ("fsdp.zsh", "zsh/site-functions/_fsdp"),
                           ("fsdp.fish", "fish/vendor_completions.d/fsdp.fish")):
        files.append((f"{share}/{target}", (pathlib.Path(completion) / source).read_bytes(), 0o644))
    files.append((f"{info}/METADATA", METADATA.format(version=version).encode(), 0o644))
    files.append((f"{info}/WHEEL", WHEEL.format(platform=platform).encode(), 0o644))
    root = pathlib.Path(__file__).resolve().parent.parent
    files.append((f"{info}/licenses/LICENSE", (root / "LICENSE").read_bytes(), 0o644))
    for license in licenses:
        name, path = license.split("=", 1)
        files.append((f"{info}/licenses/{name}", pathlib.Path(path).read_bytes(), 0o644))
    record = ""
    for name, content, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), 0o644))

    date = max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800)  # zip knows no date before 1980
    path = pathlib.Path(out) / f"{NAME}-{version}-py3-none-{platform}.whl"
    part = path.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content, mode in files:
            entry = zipfile.ZipInfo(name, time.gmtime(date)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix: the mode counts
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content)
    part.replace(path)
    print(path)


if __name__ == "__main__":
    main()
