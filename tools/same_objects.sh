#!/bin/sh
# usage: tools/same_objects.sh OLD [NEW]: checks that the commit NEW (default: HEAD) changes only
# comments.
#
# Compiles the library and the command at both commits, without debug information and with the same
# value for __LINE__, and compares all object files. Prints those whose code (objdump -d) or data
# differ, and fails if there are any.
old=${1:?usage: tools/same_objects.sh OLD [NEW]}
new=${2:-HEAD}
top=$(git rev-parse --show-toplevel) || exit 2
scratch=$(mktemp -d)
trap 'cd "$top"; for side in old new; do git worktree remove --force "$scratch/$side"; done; rm -rf "$scratch"' EXIT

for side in old new; do
    [ $side = old ] && commit=$old || commit=$new
    git worktree add --quiet --detach "$scratch/$side" "$commit" || exit 2
    make --no-print-directory -C "$scratch/$side" -j"$(nproc)" OPT='-O1 -g0' ISA_OPT=-O1 \
        CC="${CC:-gcc}" CXX="${CXX:-g++}" CFLAGS='-D__LINE__=1 -Wno-builtin-macro-redefined' \
        build/libfsdp.a build/fsdp >"$scratch/$side.log" 2>&1 ||
        { tail -n 20 "$scratch/$side.log"; exit 2; }
done

(cd "$scratch/old/build" && find src -name '*.o' | sort) >"$scratch/objects"
(cd "$scratch/new/build" && find src -name '*.o' | sort) | cmp -s - "$scratch/objects" ||
    { echo "there are other source files"; exit 1; }
differ=0
while read -r object; do
    a=$scratch/old/build/$object b=$scratch/new/build/$object
    cmp -s "$a" "$b" && continue
    differ=$((differ + 1))
    objdump -d "$a" | tail -n +4 >"$scratch/a"
    objdump -d "$b" | tail -n +4 >"$scratch/b"
    cmp -s "$scratch/a" "$scratch/b" && echo "$object: same code, other data" || echo "$object: other code"
done <"$scratch/objects"
echo "$(wc -l <"$scratch/objects") object files, $differ differ"
[ $differ -eq 0 ]
