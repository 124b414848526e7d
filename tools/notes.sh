#!/bin/sh
# usage: tools/notes.sh [--write]: the index of all notes, docs/notes.md.
#
# A mechanism that spreads over files is explained once, in a comment that begins a line with
# "Note [Name]", alone or followed by "." or ":". Elsewhere it is cited as "Note [Name] in FILE"; in
# the same file, without FILE. --write makes docs/notes.md. Without it the index must be up to date,
# each note must be defined once, and each citation must name the file that defines it.
cd "$(dirname "$0")/.." || exit 2
index=docs/notes.md
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

sh tools/sources.sh --others 'src/*.[ch]' 'src/*.cc' 'src/*.cu' 'src/*.cuh' 'include/*.h' \
    'tests/*.[ch]' 'tests/*.cu' 'tests/*.cpp' 'tests/*.sh' 'tools/*.sh' 'docs/*.md' 'bench/*.c' 'examples/*.c' README.md |
    grep -v -e '^tools/notes.sh$' -e "^$index\$" -e '^docs/style.md$' | tr '\n' '\0' |
    xargs -0 awk '
    function finish() {
        # Citations: anywhere in the text, whose lines are joined.
        while (match(text, /Notes? \[[^]]*\]|and \[[A-Z][^]]*\] in /)) {
            found = substr(text, RSTART, RLENGTH)
            text = substr(text, RSTART + RLENGTH)
            name = found; sub(/^[^[]*\[/, "", name); sub(/\].*/, "", name)
            print "cited\t" name "\t" file "\t" substr(text, 1, 90)
        }
    }
    FNR == 1 { if (file) finish(); file = FILENAME; text = ""; before = "" }
    {
        line = $0
        sub(/^[ \t]*(\/\*\*?|\*\/?|\/\/|#)?[ \t]*/, "", line)
        opens = before == "" || before ~ /[.:;{}]( \*\/)?$/ || $0 ~ /^[ \t]*(\/\*|\/\/|#)/
        if (opens && file !~ /\.md$/ && line ~ /^Note \[[^]]*\]([.:]|$)/) {
            name = line; sub(/^Note \[/, "", name); sub(/\].*/, "", name)
            print "defined\t" name "\t" file
        }
        before = line
        text = text " " line
    }
    END { finish() }' >"$scratch/all"

awk -F '\t' '$1 == "defined" { print $2 "\t" $3 }' "$scratch/all" | sort -u >"$scratch/defined"
{
    cut -f 1 "$scratch/defined" | uniq -d | while read -r name; do
        echo "Note [$name] is defined in several files: $(awk -F '\t' -v n="$name" '$1 == n { printf "%s ", $2 }' "$scratch/defined")"
    done
    awk -F '\t' -v defined="$scratch/defined" '
        BEGIN { while ((getline line < defined) > 0) { split(line, f, "\t"); where[f[1]] = f[2] } }
        $1 != "cited" { next }
        !($2 in where) { print $3 ": Note [" $2 "] is defined nowhere"; next }
        where[$2] == $3 { next }
        {
            base = where[$2]; sub(/.*\//, "", base)
            if (index($4, base) == 0)
                print $3 ": Note [" $2 "] is cited without its file, " where[$2]
        }' "$scratch/all" | sort -u
} >"$scratch/wrong"
sed 's/^/lint: /' "$scratch/wrong"

{
    printf '# Notes\n\n'
    printf 'Mechanisms that spread over files are explained once, in a note. `tools/notes.sh --write` makes this index.\n\n'
    printf '| note | file |\n|---|---|\n'
    awk -F '\t' '{ printf "| %s | [%s](../%s) |\n", $1, $2, $2 }' "$scratch/defined"
} >"$scratch/index"
if [ "$1" = --write ]; then
    cp "$scratch/index" "$index"
elif ! cmp -s "$scratch/index" "$index"; then
    echo "lint: $index is not up to date: run tools/notes.sh --write"
    exit 1
fi
[ ! -s "$scratch/wrong" ]
