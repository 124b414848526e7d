#!/bin/sh
# `make install` into an empty folder, and what a user does with it: examples/train_t5.c is
# compiled with pkg-config's flags only, linked to the shared and to the static library, and run
# on two ranks.
# usage: FSDP_BUILD=build tests/cli/test_install.sh
. "$(dirname "$0")/lib.sh"
needs libcsv utf8proc
cc=${CC:-gcc}
if [ ! -e "$build/libfsdp.so" ]; then
    skip make_install "this build has no libfsdp.so ('make' says why)"
    tally
    exit
fi

# works NAME COMMAND...: the command must succeed
works() {
    name=$1
    shift
    capture "$@"
    expect "$name" 0
}

# Without an installation: linked to build/libfsdp.so, as from a neighboring project.
cat >"$dir/beside.c" <<'END'
#include <stdio.h>
#include <fsdp.h>
int main(void) { return puts(FSDP_VERSION) < 0 || *fsdp_last_error(); }
END
# A library built for a sanitizer needs its runtime in the program.
sanitize=
if nm -D "$build/libfsdp.so" | grep -q __asan_; then sanitize=-fsanitize=address,undefined; fi
if nm -D "$build/libfsdp.so" | grep -q __tsan_; then sanitize=-fsanitize=thread; fi
works links_against_the_build_folder sh -c \
    "$cc $sanitize -I'$root/include' '$dir/beside.c' -o '$dir/beside' -L'$build' -lfsdp -Wl,-rpath,'$build'"
works and_starts "$dir/beside"

works make_install make -C "$root" install BUILD="$build" PREFIX="$dir/usr"
check says_how_programs_find_the_library shows "$dir/usr/lib is not searched .* -Wl,-rpath,$dir/usr/lib"
for file in bin/fsdp lib/libfsdp.a lib/libfsdp.so lib/libfsdp.so.0 lib/pkgconfig/fsdp.pc include/fsdp.h \
    share/man/man1/fsdp.1 share/man/man1/fsdp-train.1 share/man/man1/fsdp-checkpoint-convert.1 \
    share/bash-completion/completions/fsdp share/zsh/site-functions/_fsdp \
    share/fish/vendor_completions.d/fsdp.fish; do
    check "installs_$file" test -e "$dir/usr/$file"
done
PKG_CONFIG_PATH=$dir/usr/lib/pkgconfig
export PKG_CONFIG_PATH
version=$(sed -n 's/.*FSDP_VERSION "\(.*\)"/\1/p' "$root/include/fsdp/base.h")
check pkg_config_knows_the_version test "$(pkg-config --modversion fsdp)" = "$version"
works and_so_does_the_command sh -c "'$dir/usr/bin/fsdp' --version | grep -qF '$version'"

# As packages are made: other folders, below DESTDIR.
works make_install_below_destdir make -C "$root" install BUILD="$build" DESTDIR="$dir/stage" PREFIX=/opt/f \
    LIBDIR=/opt/f/lib/machine
check the_library_is_in_libdir test -e "$dir/stage/opt/f/lib/machine/libfsdp.so.0"
check nothing_is_in_lib test ! -e "$dir/stage/opt/f/lib/libfsdp.a"
check pkg_config_does_not_know_destdir test "$(PKG_CONFIG_PATH="$dir/stage/opt/f/lib/machine/pkgconfig" \
    pkg-config --cflags --libs fsdp | sed 's/ *$//')" = "-I/opt/f/include -L/opt/f/lib/machine -lfsdp"
check the_soname_is_the_file test -n "$(objdump -p "$dir/stage/opt/f/lib/machine/libfsdp.so.0" | grep 'SONAME *libfsdp.so.0$')"

# fsdp.h includes every public header.
for header in "$root"/include/fsdp/*.h; do
    check "fsdp_h_includes_$(basename "$header")" \
        grep -qF "#include <fsdp/$(basename "$header")>" "$dir/usr/include/fsdp.h"
done
# The same in C++.
echo '#include <fsdp.h>
int main() { return fsdp_last_error()[0]; }' >"$dir/plus.cc"
works headers_are_cplusplus sh -c \
    "${CXX:-g++} -Wall -Wextra -Werror -fsyntax-only \$(pkg-config --cflags fsdp) '$dir/plus.cc'"

compile="$cc -std=c17 -Wall -Wextra -Werror $sanitize '$root/examples/train_t5.c'"
works compiles_against_the_shared_library sh -c \
    "$compile -o '$dir/shared' \$(pkg-config --cflags --libs fsdp) -Wl,-rpath,'$dir/usr/lib'"
works compiles_against_the_static_library sh -c \
    "$compile -o '$dir/static' \$(pkg-config --cflags fsdp) \$(pkg-config --static --libs fsdp | sed 's/-lfsdp/-l:libfsdp.a/')"
works the_static_one_needs_no_libfsdp sh -c "! ldd '$dir/static' | grep -q libfsdp"

# A small model with T5's vocabulary, and a few rows.
mkdir "$dir/shape" "$dir/out-shared" "$dir/out-static"
sed -e 's/"d_model": [0-9]*/"d_model": 16/' -e 's/"d_ff": [0-9]*/"d_ff": 24/' \
    -e 's/"d_kv": [0-9]*/"d_kv": 8/' -e 's/"num_heads": [0-9]*/"num_heads": 2/' \
    "$root/data/models/t5-demo/config.json" >"$dir/shape/config.json"
cp "$root/data/tokenizers/t5/spiece.model" "$dir/shape/"
printf 'headline,title,text\n' >"$dir/rows.csv"
for i in 1 2 3 4 5 6 7 8 9 10 11; do
    printf 'a short text %d,title,"a longer text, number %d, with ""quotes"""\n' $i $i >>"$dir/rows.csv"
done
fsdp=$dir/usr/bin/fsdp
works the_installed_command_trains "$fsdp" train --model "$dir/shape" --from-config \
    --data "$dir/rows.csv" --epochs 1 --output "$dir/model"
for kind in shared static; do
    works "the_${kind}_program_trains_on_two_ranks" \
        "$fsdp" launch -n 2 "$dir/$kind" "$dir/model" "$dir/rows.csv" "$dir/out-$kind" 2
    check "it_prints_every_step" test "$(grep -c '^step [0-9]*: loss' "$dir/out")" -eq 4
    works "what_it_saved_can_be_loaded" "$fsdp" evaluate --model "$dir/out-$kind" \
        --tokenizer "$dir/shape" --data "$dir/rows.csv" --no-generate
done
works both_saved_the_same cmp "$dir/out-shared/model.safetensors" "$dir/out-static/model.safetensors"
capture "$dir/shared" "$dir/model" "$dir/none.csv" "$dir/out-shared"
expect a_failure_is_a_message 1 'none\.csv'

tally
