#!/usr/bin/env python3
"""Compares the reader and the writer of Arrow files with pyarrow and datasets from PyPI:

    make build/tools/arrow_rows && VENV/bin/python tools/check_arrow.py [--rows PROGRAM] [--runs N] [--seed S]

Random tables of random types are written by pyarrow as streams and as files, compressed or not, in
batches of random sizes, and by datasets as folders; build/tools/arrow_rows must print the same rows.
Then it copies folders, and datasets.load_from_disk() must read the same rows from the copies. Last,
bytes of files are changed at random: the reader must print rows or an error, but never crash.
"""
import argparse
import datetime
import json
import os
import random
import shutil
import string
import subprocess
import sys
import tempfile

import datasets
import pyarrow as pa

datasets.disable_progress_bars()
ROWS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "tools", "arrow_rows")


def run(*arguments):
    return subprocess.run([ROWS, *map(str, arguments)], capture_output=True)


# ---- random tables ----

def random_text(rng):
    alphabet = string.ascii_letters + ' "\\\n\täß€漢字😀\u2028'
    return "".join(rng.choice(alphabet) for _ in range(rng.choice([0, 1, 5, 12, 13, 40])))


def int_type(rng):
    bits, signed = rng.choice([8, 16, 32, 64]), rng.random() < 0.5
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
    type_ = getattr(pa, ("" if signed else "u") + f"int{bits}")()
    return type_, lambda: rng.choice([low, high - 1, rng.randrange(low, high)])


def float_type(rng):
    bits = rng.choice([32, 64])
    def value():
        x = rng.choice([0.0, -0.0, 1.5, rng.uniform(-1e6, 1e6), 1e30])
        return x if bits == 64 else pa.scalar(x, pa.float32()).as_py()
    return getattr(pa, f"float{bits}")(), value


def text_type(rng):
    return rng.choice([pa.string(), pa.large_string(), pa.string_view()]), lambda: random_text(rng)


def dictionary_type(rng):
    words = [random_text(rng) for _ in range(5)]
    value = rng.choice([pa.string(), pa.large_string()])
    index = rng.choice([pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.int64()])
    return pa.dictionary(index, value), lambda: rng.choice(words)


def list_type(rng, depth):
    inner, value = nullable(rng, *random_type(rng, depth - 1))
    kind = rng.choice(["list", "large_list", "fixed", "list_view", "large_list_view"])
    if kind == "fixed":
        n = rng.randrange(4)
        return pa.list_(inner, n), lambda: [value() for _ in range(n)]
    make = {"list": pa.list_, "large_list": pa.large_list, "list_view": pa.list_view,
            "large_list_view": pa.large_list_view}[kind]
    return make(inner), lambda: [value() for _ in range(rng.choice([0, 1, 2, 7]))]


def struct_type(rng, depth):
    names = rng.sample(["role", "content", "en", "de", "x"], rng.randrange(1, 4))
    types = [nullable(rng, *random_type(rng, depth - 1)) for _ in names]
    return (pa.struct([(n, t) for n, (t, _) in zip(names, types)]),
            lambda: {n: value() for n, (_, value) in zip(names, types)})


def random_type(rng, depth):
    makers = [int_type, int_type, float_type, text_type, dictionary_type,
              lambda r: (pa.bool_(), lambda: r.random() < 0.5), lambda r: (pa.null(), lambda: None)]
    if depth > 0:
        makers += [lambda r: list_type(r, depth)] * 3 + [lambda r: struct_type(r, depth)]
    return rng.choice(makers)(rng)


def nullable(rng, type_, value):
    share = rng.choice([0, 0, 0.3, 1])
    return type_, lambda: None if rng.random() < share else value()


UNREAD = [(pa.timestamp("us"), lambda: datetime.datetime(2024, 1, 2)), (pa.binary(), lambda: b"\xff"),
          (pa.date32(), lambda: datetime.date(2024, 1, 2)), (pa.list_(pa.binary()), lambda: [b"a"]),
          (pa.map_(pa.string(), pa.int8()), lambda: [("a", 1)]), (pa.binary_view(), lambda: b"x" * 20),
          (pa.duration("s"), lambda: datetime.timedelta(1)), (pa.binary(3), lambda: b"abc"),
          (pa.large_binary(), lambda: b""), (pa.decimal128(5, 1), lambda: None),
          (pa.time32("s"), lambda: datetime.time(1))]


def random_array(type_, values):
    # pyarrow makes no dictionaries inside of other types from Python values, but casts to them.
    def plain(t):
        if pa.types.is_dictionary(t):
            return t.value_type
        if pa.types.is_struct(t):
            return pa.struct([(f.name, plain(f.type)) for f in t])
        for is_, make in [(pa.types.is_large_list, pa.large_list), (pa.types.is_list, pa.list_)]:
            if is_(t):
                return make(plain(t.value_type))
        if pa.types.is_fixed_size_list(t):
            return pa.list_(plain(t.value_type), t.list_size)
        return t
    try:
        return pa.array(values, type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.array(values, plain(type_))


def random_table(rng):
    n = rng.choice([0, 1, 3, 10, 40])
    columns, unread = {}, set()
    for i in range(rng.randrange(1, 7)):
        name = f"c{i}"
        if rng.random() < 0.15:
            type_, value = rng.choice(UNREAD)
            unread.add(name)
        else:
            type_, value = random_type(rng, 3)
        type_, value = nullable(rng, type_, value)
        columns[name] = random_array(type_, [value() for _ in range(n)])
    return pa.table(columns), unread


# ---- comparisons ----

def lines_of(rows, unread):
    return "".join(json.dumps({k: v for k, v in row.items() if k not in unread}, ensure_ascii=False,
                              separators=(",", ":")) + "\n" for row in rows)


def write_table(rng, table, path):
    options = pa.ipc.IpcWriteOptions(compression=rng.choice([None, None, "lz4", "zstd"]),
                                     emit_dictionary_deltas=rng.random() < 0.5,
                                     unify_dictionaries=True)
    is_stream = rng.random() < 0.6
    if is_stream:
        options.unify_dictionaries = rng.random() < 0.5
    new = pa.ipc.new_stream if is_stream else pa.ipc.new_file
    begin = rng.randrange(table.num_rows + 1) if rng.random() < 0.3 else 0
    table = table.slice(begin)  # offsets that do not begin at 0
    with pa.OSFile(path, "wb") as sink, new(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rng.choice([1, 2, 7, 1000]))
    return table


def check_files(rng, folder, runs):
    skipped = 0
    for i in range(runs):
        path = os.path.join(folder, "table.arrow")
        try:
            table, unread = random_table(rng)
            table = write_table(rng, table, path)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # types that pyarrow cannot write
            skipped += 1
            continue
        found = run(path)
        expected = lines_of(table.to_pylist(), unread)
        if found.returncode or found.stdout.decode() != expected:
            shutil.copy(path, "/tmp/check_arrow_failure.arrow")
            sys.exit(f"run {i}: {table.schema}\nexpected {expected[:3000]}\nfound "
                     f"{found.stdout.decode()[:3000]}{found.stderr.decode()}\n"
                     "the file is /tmp/check_arrow_failure.arrow")
    print(f"{runs - skipped} random tables are read as pyarrow reads them")


def random_folder(rng, path):
    n = rng.choice([1, 5, 50, 2500])
    lengths = [rng.randrange(12) for _ in range(n)]
    maybe = lambda value: None if rng.random() < 0.1 else value
    rows = {"input_ids": [maybe([rng.randrange(-100, 50000) for _ in range(k)]) for k in lengths],
            "attention_mask": [maybe([rng.randrange(2) for _ in range(k)]) for k in lengths],
            "text": [maybe(random_text(rng)) for _ in lengths],
            "label": [maybe(rng.randrange(2)) for _ in lengths],
            "score": [maybe(rng.uniform(-5, 5)) for _ in lengths]}
    features = datasets.Features({"input_ids": datasets.List(datasets.Value("int32")),
                                  "attention_mask": datasets.List(datasets.Value("int8")),
                                  "text": datasets.Value("string"),
                                  "label": datasets.ClassLabel(names=["bad", "good"]),
                                  "score": datasets.Value("float64")})
    data = datasets.Dataset.from_dict(rows, features=features)
    data.save_to_disk(path, num_shards=min(n, rng.choice([1, 2, 5])))
    return data


def check_folders(rng, folder, runs):
    fingerprints = set()
    for i in range(runs):
        path, copy = os.path.join(folder, f"in{i}"), os.path.join(folder, f"out{i}")
        data = random_folder(rng, path)
        found = run(path)
        if found.stdout.decode() != lines_of(data.to_list(), ()):
            sys.exit(f"folder {i}: other rows than datasets reads: {found.stderr.decode()}")
        found = run("--copy", path, copy, rng.choice([1, 7, 1000]), rng.choice([1, 3000, 10**9]))
        if found.returncode:
            sys.exit(f"folder {i}: {found.stderr.decode()}")
        loaded = datasets.load_from_disk(copy)
        if loaded.to_list() != data.to_list() or loaded.features != data.features:
            sys.exit(f"folder {i}: datasets reads other rows from the copy:\n{loaded.features}")
        if loaded._fingerprint in fingerprints:
            sys.exit(f"folder {i}: the fingerprint of another data set")
        fingerprints.add(loaded._fingerprint)
        shutil.rmtree(path)
        shutil.rmtree(copy)
    print(f"{runs} folders of datasets are read, copied, and read by datasets")


def check_damage(rng, folder, runs):
    path, errors = os.path.join(folder, "damaged.arrow"), 0
    for i in range(runs):
        try:
            table, _ = random_table(rng)
            write_table(rng, table, path)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            continue
        with open(path, "rb") as file:
            data = bytearray(file.read())
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)):]
        with open(path, "wb") as file:
            file.write(data)
        found = run(path)
        if found.returncode not in (0, 1) or (found.returncode and path.encode() not in found.stderr):
            shutil.copy(path, "/tmp/check_arrow_failure.arrow")
            sys.exit(f"damage {i}: exit {found.returncode}, {found.stderr.decode()}\n"
                     "the file is /tmp/check_arrow_failure.arrow")
        errors += found.returncode
    print(f"{runs} damaged files: {errors} errors, no crash")


def main():
    global ROWS
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default=ROWS, help="the program that prints rows")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    ROWS = os.path.abspath(arguments.rows)
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        check_files(rng, folder, arguments.runs)
        check_folders(rng, folder, max(1, arguments.runs // 15))
        check_damage(rng, folder, arguments.runs)


main()
