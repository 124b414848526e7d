#!/bin/sh
# usage: tools/dist.sh FOLDER: writes FOLDER/fsdp-VERSION.tar.gz, the sources. Two runs of the same
# sources give the same bytes, also in a folder that such a file was unpacked to: files are sorted,
# and have the date of the sources and no owner.
set -e
out=$1
version=$(sed -n 's/.*FSDP_VERSION "\(.*\)"/\1/p' include/fsdp/base.h)
date=$(sh tools/source_date.sh)
mkdir -p "$out"
list=$(mktemp)
trap 'rm -f "$list" "$list.tar"' EXIT
sh tools/sources.sh '*' >"$list"
[ ! -e .git ] || git diff --quiet HEAD || echo "dist: with changes that are not committed" >&2
tar --create --file "$list.tar" --format=ustar --no-recursion --verbatim-files-from --files-from "$list" \
    --transform "s|^|fsdp-$version/|SH" --mtime "@$date" --owner 0 --group 0 --numeric-owner --mode 'u=rwX,go=rX'
gzip -9n <"$list.tar" >"$out/fsdp-$version.tar.gz.part"
mv "$out/fsdp-$version.tar.gz.part" "$out/fsdp-$version.tar.gz"
echo "$out/fsdp-$version.tar.gz"
