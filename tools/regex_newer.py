#!/usr/bin/env python3
"""Writes src/text/regex/regex_newer.h: characters of versions of Unicode after 14 (that of Debian 12's PCRE2),
by the property that the tokenizers library gives them. Run with Python 3.11, whose unicodedata is
Unicode 14, and pip's tokenizers:

    python3 tools/regex_newer.py >src/text/regex/regex_newer.h && clang-format -i src/text/regex/regex_newer.h
"""
import unicodedata

from tokenizers import Regex, __version__, pre_tokenizers

assert unicodedata.unidata_version == "14.0.0"
NEW = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) == "Cn"]
TEXT = "".join(map(chr, NEW))
PROPERTIES = {"WORD": r"\w", "ALPHABETIC": r"\p{Alphabetic}", "LOWERCASE": r"\p{Lowercase}", "UPPERCASE": r"\p{Uppercase}"}
for category in ("L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Cf").split():
    PROPERTIES[category.upper()] = rf"\p{{{category}}}"


def ranges(points):
    runs = []
    for c in points:
        if runs and runs[-1][1] == c - 1:
            runs[-1][1] = c
        else:
            runs.append([c, c])
    return "".join(f"\\\\x{{{a:X}}}" + (f"-\\\\x{{{b:X}}}" if b > a else "") for a, b in runs)


def main():
    print(f"/* Made by tools/regex_newer.py from tokenizers {__version__}: items of a bracket for characters that")
    print(" * PCRE2's version of Unicode may not have. */")
    print("#pragma once\n")
    for name, pattern in PROPERTIES.items():
        split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
        found = sorted(ord(c) for text, _ in split.pre_tokenize_str(TEXT) for c in text)
        text = ranges(found)
        lines, size = [], 75
        while text:
            cut = len(text) if len(text) <= size else text.rfind("\\\\x", 0, size)
            lines.append(text[:cut])
            text = text[cut:]
        print(f"#define FSDP_REGEX_NEWER_{name} " + " ".join(f'"{line}"' for line in lines or [""]))


main()
