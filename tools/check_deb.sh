#!/bin/sh
# usage: tools/check_deb.sh [BUILD]: checks the packages of `make deb`. dpkg installs them into an
# empty folder, the command runs there, a program is compiled and linked with what is there, and
# dpkg removes them again, which must leave nothing. Then lintian, where it is installed: the only
# tags it may find are about the maintainer, which DEBFULLNAME and DEBEMAIL name.
build=${1:-build}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0
check() {
    name=$1
    shift
    if "$@" >"$dir/out" 2>&1; then echo "ok $name"; else
        echo "FAIL $name: $*"
        head -n 20 "$dir/out" | sed 's/^/    /'
        failed=1
    fi
}
root=$dir/root
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/triggers"
: >"$root/var/lib/dpkg/status"
# The libraries that the packages depend on are those of this machine, which the empty root does not
# know. The check of the dependencies themselves is below.
dpkg_in() { dpkg --root="$root" --force-not-root --force-depends --force-script-chrootless "$@"; }
version=$(sed -n 's/.*FSDP_VERSION "\(.*\)"/\1/p' include/fsdp/base.h)
packages=$(ls "$build"/dist/*_"${version}"_*.deb) || exit 1
find "$root" -path "$root/var" -prune -o -print | sort >"$dir/before"
# shellcheck disable=SC2086
check installs dpkg_in -i $packages
check the_command_runs sh -c "'$root/usr/bin/fsdp' --version | grep -qF '$version'"
# $packages has one name a line.
for file in $packages; do
    for package in $(dpkg-deb -f "$file" Depends | tr ',' '\n' | sed 's/ *(.*//; s/^ *//'); do
        case $package in libfsdp*) continue ;; esac
        check "depends_on_$package, which is installed here" dpkg -s "$package"
    done
done
check files_are_as_packed dpkg_in --verify
check the_manual_is_there test -s "$root/usr/share/man/man1/fsdp-train.1.gz"
libdir=$(dirname "$(find "$root" -name libfsdp.so.0)")
cat >"$dir/program.c" <<'END'
#include <stdio.h>
#include <fsdp.h>
int main(void) { return puts(FSDP_VERSION) < 0 || *fsdp_last_error(); }
END
PKG_CONFIG_PATH=$libdir/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
check a_program_is_linked sh -c "cc '$dir/program.c' -o '$dir/program' \$(pkg-config --cflags --libs fsdp)"
check and_starts env LD_LIBRARY_PATH="$libdir" "$dir/program"
check an_example_is_compiled sh -c "cc -c '$root/usr/share/doc/libfsdp-dev/examples/train_t5.c' -o '$dir/example.o' \$(pkg-config --cflags fsdp)"
check removes dpkg_in --purge fsdp libfsdp-dev libfsdp0
find "$root" -path "$root/var" -prune -o -print | sort >"$dir/after"
check nothing_is_left cmp "$dir/before" "$dir/after"
if command -v lintian >/dev/null; then
    # shellcheck disable=SC2086
    lintian $packages 2>/dev/null | grep -Ev 'bogus-mail-host|root-in-contact' >"$dir/tags"
    check lintian_finds_nothing_else sh -c "cat '$dir/tags'; [ ! -s '$dir/tags' ]"
else
    echo "skip lintian: not installed"
fi
exit $failed
