#!/bin/sh
# usage: tools/deps_folder.sh DIR PACKAGE...: download Debian packages and unpack their headers
# and static libraries into DIR, without root, for a machine of the same architecture where
# packages cannot be installed: make DEPS_DIR=DIR.
dir=$1
shift
fail() { echo "deps-folder: $*" >&2; exit 1; }
for tool in apt-get dpkg; do
    command -v $tool >/dev/null || fail "no $tool here; this part needs a Debian machine"
done
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$dir" && dir=$(cd "$dir" && pwd) && cd "$work" || exit 1
# If apt's lists are missing or out of date, only root can update them. So download the newest
# lists into our own folder.
own="-o Dir::State::Lists=$work/lists -o Dir::Cache=$work/cache -o Debug::NoLocking=1"
apt-get download -q "$@" >log 2>&1 || {
    rm -f ./*.deb
    mkdir -p lists/partial cache/archives/partial
    # shellcheck disable=SC2086
    { apt-get $own update -q && apt-get $own download -q "$@"; } >log 2>&1
} || { tail -n 5 log >&2; fail "cannot download $*"; }
for package in ./*.deb; do
    dpkg -x "$package" "$dir" || fail "cannot unpack ${package#./} into $dir"
done
# These links point to shared libraries, which are in other packages.
find "$dir" -type l -exec rm {} +
echo "deps-folder: $dir has $(cd "$dir" && find . -name '*.a' -exec basename {} \; | sort | tr '\n' ' ')"
echo "deps-folder: there, or where you carry it: make DEPS_DIR=FOLDER"
