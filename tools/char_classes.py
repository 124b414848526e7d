#!/usr/bin/env python3
"""Writes src/text/chars/char_class_data.c: the classes of characters that the tokenizers library uses.

Its parts take their classes from different versions of Unicode, so they are measured, one character
at a time, with the library itself (pip install tokenizers):

    python3 tools/char_classes.py >src/text/chars/char_class_data.c && clang-format -i src/text/chars/char_class_data.c
"""
from tokenizers import Regex, __version__, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def splits(pre_tokenizer, around="a"):
    found = set()
    for c in POINTS:
        text = around + chr(c) + around
        if pre_tokenizer.pre_tokenize_str(text) != [(text, (0, 3))]:
            found.add(c)
    return found


def regex(pattern, around="a"):
    return splits(pre_tokenizers.Split(Regex(pattern), "removed"), around)


def word():
    whitespace = pre_tokenizers.Whitespace()  # \w+|[^\w\s]+ of the regex crate
    return {c for c in POINTS if len(whitespace.pre_tokenize_str("!" + chr(c) + "!")) == 3}


def bert(**which):
    options = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**options, **which})


def removes(normalizer):
    return {c for c in POINTS if normalizer.normalize_str("a" + chr(c) + "a") == "aa"}


def changes(normalizer):
    return {c for c in POINTS if normalizer.normalize_str(chr(c)) != chr(c)}


def reordered():
    """Characters with a combining class: they change places with U+0334 (class 1) or U+0301 (230)."""
    nfd = normalizers.NFD()
    low, high, found = "\u0334", "\u0301", {0x334, 0x301}
    for c in POINTS:
        s = chr(c)
        if nfd.normalize_str("a" + s + low) == "a" + low + s != "a" + s + low:
            found.add(c)
        elif nfd.normalize_str("a" + high + s) == "a" + s + high != "a" + high + s:
            found.add(c)
    return found


def lower_runs():
    """(first, last, step, difference) for runs of characters with a simple lower case."""
    normalizer = normalizers.Lowercase()
    runs = []
    for c in POINTS:
        to = normalizer.normalize_str(chr(c))
        if to == chr(c) or len(to) != 1:
            continue  # U+0130, the only one with two characters, is in char_class.c
        difference = ord(to) - c
        if runs:
            first, last, step, d = runs[-1]
            if d == difference and c - last <= 2 and (last == first or c - last == step):
                runs[-1] = (first, c, c - last, d)
                continue
        runs.append((c, c, 1, difference))
    return runs


def script_runs():
    """(first, script): script 0 joins every text, and characters of one script join each other."""
    pre = pre_tokenizers.UnicodeScripts()

    def joins(a, b):
        return len(pre.pre_tokenize_str(a + b)) == 1

    examples = []  # a character of script 1, 2, ...
    runs = []
    for c in range(0x110000):
        s = chr(c)
        if 0xD800 <= c < 0xE000 or (joins("a", s) and joins("\u0434", s)):
            script = 0
        elif runs and runs[-1][1] and joins(examples[runs[-1][1] - 1], s):
            script = runs[-1][1]
        else:
            script = next((i for i, example in enumerate(examples, 1) if joins(example, s)), len(examples) + 1)
            if script > len(examples):
                examples.append(s)
        if not runs or runs[-1][1] != script:
            runs.append((c, script))
    assert len(examples) < 256
    return runs


def main():
    classes = [
        splits(pre_tokenizers.WhitespaceSplit()),
        splits(pre_tokenizers.Digits()),
        splits(pre_tokenizers.Punctuation()),
        removes(bert(strip_accents=True)),
        removes(bert(clean_text=True)),
        removes(normalizers.StripAccents()),
        regex(r"\p{L}", "!"),
        regex(r"\p{N}"),
        word(),
        changes(normalizers.NFD()),
        changes(normalizers.NFKD()),
        reordered(),
    ]
    flags = [0] * 0x110000
    for bit, members in enumerate(classes):
        for c in members:
            flags[c] |= 1 << bit
    print(f"/* Made by tools/char_classes.py from tokenizers {__version__}. See char_class.h. */")
    print('#include "src/text/chars/char_class.h"\n')
    print("const uint32_t fsdp_char_class_runs[][2] = {")
    print(", ".join(f"{{{c:#x}, {flags[c]:#x}}}" for c in range(0x110000)
                    if c == 0 or flags[c] != flags[c - 1]) + "};")
    print("const size_t fsdp_char_class_run_count = sizeof fsdp_char_class_runs / sizeof *fsdp_char_class_runs;\n")
    print("const int32_t fsdp_char_lower_runs[][4] = {")
    print(", ".join(f"{{{a:#x}, {b:#x}, {s}, {d}}}" for a, b, s, d in lower_runs()) + "};")
    print("const size_t fsdp_char_lower_run_count = sizeof fsdp_char_lower_runs / sizeof *fsdp_char_lower_runs;\n")
    print("const uint32_t fsdp_char_script_runs[][2] = {")
    print(", ".join(f"{{{c:#x}, {script}}}" for c, script in script_runs()) + "};")
    print("const size_t fsdp_char_script_run_count = sizeof fsdp_char_script_runs / sizeof *fsdp_char_script_runs;")


main()
