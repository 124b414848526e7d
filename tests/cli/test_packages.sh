#!/bin/sh
# What `make dist` and `make wheel` write: the same bytes for the same sources, and a RECORD that is
# right. tools/check_deb.sh and tools/check_wheel.sh install the packages themselves.
. "$(dirname "$0")/lib.sh"

# A small tree of sources without git, as if it had been unpacked.
mkdir -p "$dir/tree/include/fsdp" "$dir/tree/tools" "$dir/tree/build/x" "$dir/tree/build-asan"
cp "$root/include/fsdp/base.h" "$dir/tree/include/fsdp/"
cp "$root/tools/dist.sh" "$root/tools/sources.sh" "$root/tools/source_date.sh" "$dir/tree/tools/"
echo text >"$dir/tree/a file" && echo text >"$dir/tree/build/x/result" && : >"$dir/tree/build-asan/y"
: >"$dir/tree/z.o" && chmod 755 "$dir/tree/tools/dist.sh" && chmod 600 "$dir/tree/a file"
ln -s "a file" "$dir/tree/link"
touch -d @1700000000 "$dir/tree/include/fsdp/base.h"
version=$(sed -n 's/.*FSDP_VERSION "\(.*\)"/\1/p' "$root/include/fsdp/base.h")
dist() { (cd "$1" && sh tools/dist.sh "$2") >"$dir/out" 2>"$dir/err"; rc=$?; }
dist tree "$dir/one"
expect packs_the_sources 0 "/fsdp-$version.tar.gz\$" out
tar -tzf "$dir/one/fsdp-$version.tar.gz" | sort >"$dir/list"
printf 'fsdp-%s/%s\n' "$version" 'a file' "$version" include/fsdp/base.h "$version" link "$version" tools/dist.sh "$version" \
    tools/source_date.sh "$version" tools/sources.sh | sort >"$dir/expected"
check nothing_that_was_built cmp "$dir/list" "$dir/expected"
# The same files with other dates, modes and owners, in what the first run packed.
mkdir "$dir/again" && tar -xzf "$dir/one/fsdp-$version.tar.gz" -C "$dir/again"
check links_lead_where_they_did test "$(readlink "$dir/again/fsdp-$version/link")" = "a file"
check files_have_the_date_of_the_sources test "$(date -r "$dir/again/fsdp-$version/a file" +%s)" = 1700000000
chmod 640 "$dir/again/fsdp-$version/a file" && touch -d @1800000000 "$dir/again/fsdp-$version/a file"
dist "again/fsdp-$version" "$dir/two"
expect packs_again 0
check the_same_bytes cmp "$dir/one/fsdp-$version.tar.gz" "$dir/two/fsdp-$version.tar.gz"
# What lint reads: the sources, in a repository of git as in what was unpacked.
mkdir "$dir/tree/src" "$dir/tree/src/a" && echo 'int a;' >"$dir/tree/src/a/a.c" && echo 'int b;' >"$dir/tree/src/a/b.h"
cp "$root/tools/language.sh" "$root/tools/language.allowed" "$dir/tree/tools/"
sources() { (cd "$dir/tree" && sh tools/sources.sh "$@" | tr '\n' ' ') >"$dir/out"; }
language() { (cd "$dir/tree" && sh tools/language.sh) >"$dir/out" 2>"$dir/err"; rc=$?; }
sources 'src/*.[ch]' 'a file'
check sources_without_git test "$(cat "$dir/out")" = "a file src/a/a.c src/a/b.h "
language
expect words_of_unpacked_sources_are_checked 0
echo '/* He is tol''d. */' >>"$dir/tree/src/a/a.c"
language
expect and_found 1 'src/a/a.c: 1 of them' out
if command -v git >/dev/null; then
    (cd "$dir/tree" && git init -q . && git add src/a/a.c tools "a file" && echo '/build/' >.gitignore) 2>"$dir/err"
    sources 'src/*.[ch]' 'a file' 'build/*'
    check sources_that_are_tracked test "$(cat "$dir/out")" = "a file src/a/a.c "
    sources --others 'src/*.[ch]' 'build/*'
    check sources_that_could_be_added test "$(cat "$dir/out")" = "src/a/a.c src/a/b.h "
    language
    expect words_of_a_repository_are_checked 1 'src/a/a.c: 1 of them' out
    rm -rf "$dir/tree/.git"
else
    skip sources_that_are_tracked "no git here"
fi
rm "$dir/tree/include/fsdp/base.h"
dist tree "$dir/three"
check no_package_of_no_sources test $rc -ne 0 -a ! -e "$dir/three/fsdp-$version.tar.gz"

# tools/wheel.sh leaves a library out if it cannot be linked statically, so its table needs all of them.
# In a call such as $(call has,libzstd,zstd) of the Makefile, both names mean the library.
names=$(sed -n 's/.*(call has,\([^)]*\)).*/\1/p; s/.*(call has_header,\([^,]*\),.*/\1/p' "$root/Makefile")
check the_makefile_has_optional_libraries test "$(printf '%s\n' "$names" | wc -l)" -ge 10
for library in $names; do
    check "the_wheel_knows $library" grep -qE "^($(echo "$library" | sed 's/-[0-9.]*,/,/; s/,/|/g')) " "$root/tools/wheel.sh"
done

if ! command -v python3 >/dev/null || ! python3 -c 'import zipfile, hashlib' 2>/dev/null; then
    skip wheel "no python3 here"
    tally
    exit
fi
mkdir "$dir/man" "$dir/completion"
echo page >"$dir/man/fsdp.1"
for shell in bash zsh fish; do echo $shell >"$dir/completion/fsdp.$shell"; done
wheel() {
    mkdir -p "$dir/$1"
    SOURCE_DATE_EPOCH=1700000000 capture python3 "$root/tools/wheel.py" "$dir/$1" 0.1.0 manylinux_2_34_x86_64 \
        "$root/tools/dist.sh" "$dir/man" "$dir/completion" "name=$root/LICENSE"
}
wheel_name=fsdp_c-0.1.0-py3-none-manylinux_2_34_x86_64.whl
wheel w1
expect makes_a_wheel 0 "/$wheel_name\$" out
wheel w2
check of_the_same_bytes cmp "$dir/w1/$wheel_name" "$dir/w2/$wheel_name"
cat >"$dir/read.py" <<'END'
import base64, csv, hashlib, io, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
names = archive.namelist()
record = "fsdp_c-0.1.0.dist-info/RECORD"
rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(record).decode()))}
assert sorted(rows) == sorted(names) and rows.pop(record) == ["", ""]
for name, (digest, size) in rows.items():
    content = archive.read(name)
    found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    assert digest == "sha256=" + found and int(size) == len(content), name
program = archive.getinfo("fsdp_c-0.1.0.data/scripts/fsdp")
assert program.external_attr >> 16 == 0o100755
assert b"Tag: py3-none-manylinux_2_34_x86_64\n" in archive.read("fsdp_c-0.1.0.dist-info/WHEEL")
assert b"\nVersion: 0.1.0\n" in archive.read("fsdp_c-0.1.0.dist-info/METADATA")
for name in ("data/share/man/man1/fsdp.1", "data/share/bash-completion/completions/fsdp"):
    assert "fsdp_c-0.1.0.data/" + name in names, name
assert "fsdp_c-0.1.0.dist-info/licenses/name" in names
END
capture python3 "$dir/read.py" "$dir/w1/$wheel_name"
expect its_record_is_right 0

tally
