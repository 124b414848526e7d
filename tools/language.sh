#!/bin/sh
# usage: tools/language.sh [--write]: words that docs/style.md ("Language") rules out, counted by file.
#
# A file may have as many of them as tools/language.allowed says, and none if it is not listed there,
# so that the numbers only fall. --write records the numbers of now; it refuses to record a larger one.
cd "$(dirname "$0")/.." || exit 2
allowed=tools/language.allowed
scratch=$(mktemp)
trap 'rm -f "$scratch"' EXIT

# A word counts where it stands alone, in text and in names whose parts are joined by underscores; so
# does a sentence or a comment that opens with "Of".
sh tools/sources.sh --others 'src/*.[ch]' 'src/*.cc' 'src/*.cu' 'src/*.cuh' 'include/*.h' 'tests/*.[ch]' \
    'tests/*.sh' 'tests/*.cu' 'tests/*.cpp' 'tools/*.sh' 'tools/*.py' 'tools/*.[ch]' 'bench/*.c' 'examples/*.c' \
    'docs/*.md' 'tests/*.md' README.md Makefile .ci/run |
    grep -v -e '^tests/fixtures/' -e '^tests/golden/' -e '^tests/fuzz/corpus/' -e '^tools/language.sh$' \
        -e '^docs/style.md$' | tr '\n' '\0' |
    xargs -0 awk '
    BEGIN {
        words = "(told|tell|tells|telling|lie|lies|stand|stands|stood|whoever|anew|nobody|oftener)"
        pattern = "(^|[^a-zA-Z])" words "([^a-zA-Z]|$)|(^|[.:] |/\\*+<? |\\* |\\| |# )of [a-z]"
    }
    {
        line = tolower($0)
        while (match(line, pattern)) {
            found = substr(line, RSTART, RLENGTH)
            # A comment does not open with "of", a sentence does not open with "Of".
            if (found !~ /of [a-z]$/ || found ~ /^\/\*/ ||
                substr($0, length($0) - length(line) + RSTART, RLENGTH) ~ /Of /)
                n[FILENAME]++
            line = substr(line, RSTART + RLENGTH - 1)
        }
    }
    END { for (file in n) print n[file], file }' | sort -k 2 >"$scratch"

over=$(awk -v allowed="$allowed" '
    BEGIN { while ((getline line < allowed) > 0) { split(line, f, " "); most[f[2]] = f[1] } }
    $1 > most[$2] + 0 { printf "lint: words that docs/style.md rules out: %s: %d of them, at most %d\n", $2, $1, most[$2] }' "$scratch")
if [ -n "$over" ]; then
    echo "$over"
    exit 1
fi
[ "$1" != --write ] || {
    echo "# COUNT FILE: words that docs/style.md rules out and that are still in a file; tools/language.sh reads it."
    cat "$scratch"
} >"$allowed"
