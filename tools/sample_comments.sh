#!/bin/sh
# usage: tools/sample_comments.sh SEED [N]: N (100) comments of src and include at random, the same ones
# for the same seed and tree, for a fresh reader, who says which need a second reading. Each comment
# is shown in its place: with its file, its line, and the lines of code before and after it. A '>'
# marks the lines of the comment.
cd "$(dirname "$0")/.." || exit 2
seed=${1:?usage: tools/sample_comments.sh SEED [N]}
n=${2:-100}
sh tools/sources.sh 'src/*.[ch]' 'src/*.cu' 'src/*.cuh' 'src/*.cpp' 'include/*.h' | xargs awk '
    function keep() {
        # Less than four words explain themselves.
        if (split(comment, words, " ") >= 6)
            printf "%s\001%d\001%d\n", FILENAME, line, FNR - 1
        comment = ""
    }
    FNR == 1 { if (comment != "") comment = ""; open = 0 }
    # A string such as "shards/*" does not begin a comment.
    { outside = $0; gsub(/"([^"\\]|\\.)*"/, "", outside) }
    comment != "" && !open { keep() }
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
        file = $2
        first = $3
        last = $4
        printf "== %d. %s:%d\n", NR, file, first
        for (number = 1; number <= last + 12 && (getline text < file) > 0; number++)
            if (number >= first - 8)
                printf "%s %s\n", (number >= first && number <= last) ? ">" : " ", text
        close(file)
        print ""
    }'
