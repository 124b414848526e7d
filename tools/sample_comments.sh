#!/bin/sh
# usage: tools/sample_comments.sh SEED [N]: N (100) comments of src and include at random, the same ones
# for the same seed and tree, each with its file, its line and the code after it: for a fresh reader,
# who says which need a second reading.
cd "$(dirname "$0")/.." || exit 2
seed=${1:?usage: tools/sample_comments.sh SEED [N]}
n=${2:-100}
git ls-files 'src/*.[ch]' 'src/*.cu' 'src/*.cuh' 'src/*.cpp' 'include/*.h' | xargs awk '
    function keep() {
        # Less than four words explain themselves.
        if (split(comment, words, " ") >= 6)
            printf "%s:%d\001%s\001%s\n", FILENAME, line, comment, code
        comment = ""
    }
    FNR == 1 { if (comment != "") comment = ""; open = 0 }
    # A string such as "shards/*" does not begin a comment.
    { outside = $0; gsub(/"([^"\\]|\\.)*"/, "", outside) }
    comment != "" && !open { code = $0; keep() }
    !open && outside ~ /\/\*/ {
        line = FNR
        comment = $0
        open = $0 !~ /\*\//
        next
    }
    open {
        comment = comment "\002" $0
        open = $0 !~ /\*\//
    }' |
    awk -v seed="$seed" 'BEGIN { srand(seed) } { printf "%.9f\001%s\n", rand(), $0 }' | sort |
    head -n "$n" | awk -F '\001' '{
        gsub("\002", "\n", $3)
        printf "== %d. %s\n%s\n%s\n\n", NR, $2, $3, $4
    }'
