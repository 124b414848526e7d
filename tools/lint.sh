#!/bin/sh
# usage: tools/lint.sh CC [BUILD]: layering, circles of calls, headers that compile alone (C and C++),
# naming, no goto, formatting. CC may be several words, such as "ccache gcc". Circles of calls are
# found in the objects of BUILD ("build").
# A file includes its own folder and lower rows only, never a neighbor in its row.
cc=${1:-cc}
build=${2:-build}
bad=0
say() { echo "lint: $*"; bad=1; }
files() { sh tools/sources.sh "$@"; }

# Public headers are named after their folders, except these.
folder() {
    case $1 in
    bert | gpt2 | hidden_act | llama | t5) echo models ;;
    accelerate) echo state_dict ;;
    chat) echo text ;;
    checkpoint_entry) echo torchfile ;;
    ckpt) echo pretrained ;;
    progress) echo report ;;
    *) echo "$1" ;;
    esac
}

row() {
    case $1 in
    base) echo 0 ;;
    kernels | trace) echo 1 ;;
    tensor) echo 2 ;;
    autograd | comm | text | batch | options | report | torchfile) echo 3 ;;
    nn | dtensor | profile | hf) echo 4 ;;
    fsdp | models | optim | data | dcp) echo 5 ;;
    source | monitor | lora | float8) echo 6 ;;
    state_dict) echo 7 ;;
    pretrained) echo 8 ;;
    generate | foreign | train_config) echo 9 ;;
    train | launch) echo 10 ;;
    classify | evaluate | plan | verify | bench | checkpoint_tools | tokenize | accelerate | accelerator | dashboard | hosts) echo 11 ;;
    cli) echo 12 ;;
    *) echo -1 ;;
    esac
}

# One idea a folder: with more source files than this it probably has two. Otherwise a header of the
# folder says why, in a sentence with "more than 25 source files".
MOST_SOURCES=25
for folder in $(files 'src/*.c' 'src/*.cc' 'src/*.cu' | xargs -n 1 dirname | sort -u); do
    n=$(files "$folder/*.c" "$folder/*.cc" "$folder/*.cu" | grep -c "^$folder/[^/]*$")
    [ "$n" -le $MOST_SOURCES ] || grep -qsi "more than $MOST_SOURCES source files" "$folder"/*.h ||
        say "$folder: $n source files, at most $MOST_SOURCES, and no header says why: is it two ideas?"
done

for file in $(files 'src/*.c' 'src/*.h' 'src/*.cc' 'src/*.cu' 'src/*.cuh' 'include/fsdp/*.h'); do
    case $file in
    include/fsdp/*) own=$(folder "$(basename "$file" .h)") ;;
    *) own=$(echo "$file" | cut -d/ -f2) ;;
    esac
    own_row=$(row "$own")
    [ "$own_row" -ge 0 ] || { say "$file: folder $own is not a layer"; continue; }
    for target in $(sed -n -e 's|^# *include *"src/\([a-z_]*\)/.*|\1|p' -e 's|^# *include *<fsdp/\([a-z0-9_]*\)\.h>.*|\1|p' "$file"); do
        target=$(folder "$target")
        target_row=$(row "$target")
        [ "$target" = "$own" ] && continue
        [ "$target_row" -lt "$own_row" ] || say "$file: layer $own includes layer $target"
    done
done

sh "$(dirname "$0")/call_cycles.sh" "$build" || bad=1

# Models are single-device code.
grep -nE '<fsdp/fsdp\.h>|"src/fsdp/|cast_input' $(files 'src/models/*' include/fsdp/bert.h include/fsdp/gpt2.h \
    include/fsdp/llama.h include/fsdp/t5.h) && say "models know nothing of sharding or of casts"

# Headers that include CUDA's need its folder.
cuda=${CUDA_HOME:-/usr/local/cuda}/include
headers=
for header in $(files 'include/*.h' 'src/*.h'); do
    [ -e "$cuda/cuda_runtime_api.h" ] || ! grep -qE 'cuda/context\.h|cuda/slots\.h|<cu[a-z_A-Z]*\.h>' "$header" || continue
    headers="$headers $header"
    grep -q '#pragma once' "$header" || say "$header: no #pragma once"
done
# uncompilable COMMAND: prints the names of the headers on stdin, one a line, that do not compile alone
uncompilable() {
    xargs -n 1 -P "$(nproc)" sh -c 'echo "#include \"$1\"" | '"$1"' - || echo "$1"' sh
}
for header in $(printf '%s\n' $headers |
    uncompilable "$cc -std=c17 -D_GNU_SOURCE -I. -Iinclude -isystem '$cuda' -fsyntax-only -x c"); do
    say "$header does not compile alone"
done
for header in $(files 'src/*.cuh' 'tests/cuda/*.h'); do
    grep -q '#pragma once' "$header" || say "$header: no #pragma once"
done
for header in $(files 'include/*.h' | uncompilable "c++ -std=c++17 -I. -Iinclude -fsyntax-only -x c++"); do
    say "$header does not compile as C++"
done

# Only files that are compiled for both builds depend on FSDP_TESTING, so it changes no struct of
# other headers.
for file in $(files 'include/*.h' 'src/*.h' 'src/cli/*' | grep -v '_testing\.h$'); do
    grep -nE 'FSDP_TESTING|^# *include .*_testing\.h' "$file" && say "$file: hooks for tests are in *_testing.h"
done
grep -nE '\b(malloc|calloc|realloc)\(' $(files 'src/*.c' 'src/*.cu') | grep -v '^src/base/alloc.c:' | grep -v 'fsdp_' &&
    say "memory comes from src/base/alloc.h"
# The idiom of cleanup is a chain on one status variable (docs/style.md).
grep -nw goto $(files 'src/*') && say "src has no goto; see 'Errors and cleanup' in docs/style.md"
if command -v clang-format >/dev/null; then
    unformatted=$(files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' |
        xargs -n 50 -P "$(nproc)" sh -c 'clang-format --dry-run -Werror "$@" 2>&1 ||
            echo "clang-format failed"' sh)
    for file in $(printf '%s\n' "$unformatted" | sed -n 's/^\([^: ]*\):[0-9]*:.*/\1/p' | sort -u); do
        say "$file: not formatted (make format)"
    done
    [ -z "$unformatted" ] || say "$(printf '%s\n' "$unformatted" | tail -n 1)"
fi
sh tools/notes.sh || bad=1
sh tools/language.sh || bad=1
[ $bad -eq 0 ] && echo "lint: clean"
exit $bad
