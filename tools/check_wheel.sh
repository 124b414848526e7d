#!/bin/sh
# usage: tools/check_wheel.sh [FILE.whl]: installs the wheel of `make wheel` with pip into a new
# virtual environment, trains a model there without the libraries of this machine in its path, and
# removes it again. Its RECORD is compared with what it contains.
set -e
wheel=${1:-$(ls build/dist/fsdp_c-*.whl)}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python=${PYTHON:-python3}
"$python" - "$wheel" <<'END'
import base64, csv, hashlib, io, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
assert archive.testzip() is None
names = archive.namelist()
record = [name for name in names if name.endswith(".dist-info/RECORD")]
assert len(record) == 1 and len(set(names)) == len(names)
rows = list(csv.reader(io.StringIO(archive.read(record[0]).decode())))
assert sorted(row[0] for row in rows) == sorted(names), "RECORD lists other files"
for name, digest, size in rows:
    if name != record[0]:
        content = archive.read(name)
        found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        assert digest == f"sha256={found}" and int(size) == len(content), name
print(f"ok RECORD: {len(rows)} files")
END
"$python" -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
echo "ok pip install"
"$dir/venv/bin/fsdp" --version
ldd "$dir/venv/bin/fsdp"
# fsdp ARGUMENTS...: runs the installed command, and prints what it printed if it fails
fsdp() { "$dir/venv/bin/fsdp" "$@" >"$dir/log" 2>&1 || { cat "$dir/log"; return 1; }; }
fsdp verify tests/golden/llama3
tail -n 1 "$dir/log"
printf 'headline,title,text\nshort,a,"a long text"\nbrief,b,"another text"\nterse,c,"one more text"\nsmall,d,"the last text"\n' >"$dir/rows.csv"
fsdp launch -n 2 train --model data/models/t5-demo --from-config --tokenizer data/tokenizers/t5 \
    --data "$dir/rows.csv" --epochs 1 --output "$dir/out"
test -s "$dir/out/model.safetensors"
fsdp train --model data/models/t5-demo --from-config --tokenizer data/tokenizers/t5 \
    --data "$dir/rows.csv" --epochs 2 --output "$dir/more" --metrics "$dir/m.jsonl"
fsdp plot "$dir/m.jsonl" -o "$dir/loss.png"
test -s "$dir/loss.png"
echo "ok trains and plots"
test -s "$dir/venv/share/man/man1/fsdp-train.1"
echo "ok the manual is installed"
"$dir/venv/bin/pip" uninstall --quiet --disable-pip-version-check --yes fsdp-c
test ! -e "$dir/venv/bin/fsdp" && test -z "$(find "$dir/venv/share" -name '*fsdp*' 2>/dev/null)"
echo "ok pip uninstall"
