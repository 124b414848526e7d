#!/bin/sh
# usage: tools/deb.sh BUILD [DEV_PACKAGE...]: makes the Debian packages of what BUILD contains, in
# BUILD/dist. `make deb` calls it with what a static program needs in addition. Two runs give the same
# bytes (SOURCE_DATE_EPOCH).
#
#   fsdp          the command, its manual and completion scripts
#   libfsdp0      libfsdp.so.0, for programs that are linked with it
#   libfsdp-dev   headers, libfsdp.a, the link libfsdp.so, the pkg-config file, examples
#
# The maintainer is that of DEBFULLNAME and DEBEMAIL, as for Debian's own tools. A step that fails
# leaves no package behind.
set -e
build=$1
shift
static_needs=$(echo "$*" | sed 's/ /, /g')
for tool in dpkg-deb dpkg-shlibdeps dpkg-architecture; do
    command -v $tool >/dev/null || { echo "deb: no $tool here: apt-get install dpkg-dev" >&2; exit 1; }
done
[ -e "$build/libfsdp.so.0" ] || { echo "deb: $build has no libfsdp.so.0; 'make' says why" >&2; exit 1; }
version=$(sed -n 's/.*FSDP_VERSION "\(.*\)"/\1/p' include/fsdp/base.h)
arch=$(dpkg-architecture -qDEB_HOST_ARCH)
libdir=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
maintainer="${DEBFULLNAME:-fsdp.c} <${DEBEMAIL:-root@localhost}>"
SOURCE_DATE_EPOCH=$(sh tools/source_date.sh)
export SOURCE_DATE_EPOCH
umask 022
top=$build/deb
rm -rf "$top"
mkdir -p "$top/debian" "$build/dist"

# What is installed, divided into the packages.
${MAKE:-make} --no-print-directory install BUILD="$build" DESTDIR="$top/all" PREFIX=/usr LIBDIR="$libdir" >/dev/null
for package in fsdp libfsdp0 libfsdp-dev; do
    mkdir -p "$top/$package/usr/share/doc/$package" "$top/$package/DEBIAN"
done
mkdir -p "$top/libfsdp0$libdir"
mv "$top/all$libdir/libfsdp.so.0" "$top/libfsdp0$libdir/"
mkdir -p "$top/libfsdp-dev$libdir"
mv "$top/all$libdir"/* "$top/libfsdp-dev$libdir/"
mv "$top/all/usr/include" "$top/libfsdp-dev/usr/"
mkdir "$top/libfsdp-dev/usr/share/doc/libfsdp-dev/examples"
cp examples/*.c "$top/libfsdp-dev/usr/share/doc/libfsdp-dev/examples/"
mv "$top/all/usr/bin" "$top/fsdp/usr/"
mv "$top/all/usr/share"/* "$top/fsdp/usr/share/"
# Debian's zsh searches another folder.
mkdir -p "$top/fsdp/usr/share/zsh"
mv "$top/fsdp/usr/share/zsh/site-functions" "$top/fsdp/usr/share/zsh/vendor-completions"
cp README.md "$top/fsdp/usr/share/doc/fsdp/"
cp -r docs "$top/fsdp/usr/share/doc/fsdp/"
strip --strip-unneeded -R .comment -R .note "$top/fsdp/usr/bin/fsdp" "$top/libfsdp0$libdir/libfsdp.so.0"
strip --strip-debug -D "$top/libfsdp-dev$libdir/libfsdp.a"
find "$top" -name '*.1' -exec gzip -9n {} +
find "$top/all" ! -type d | sed "s|^$top/all|deb: in no package: |" >&2

for package in fsdp libfsdp0 libfsdp-dev; do
    doc=$top/$package/usr/share/doc/$package
    cat >"$doc/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: fsdp.c

Files: *
Copyright: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y) the authors of fsdp.c
License: Apache-2.0

License: Apache-2.0
 On Debian systems, the text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
END
    cat >"$doc/changelog" <<END
fsdp ($version) unstable; urgency=medium

  * Made by 'make deb'.

 -- $maintainer  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
END
    gzip -9n "$doc/changelog"
done
# Programs that are linked with libfsdp.so.0 get this dependency from dpkg-shlibdeps.
echo "libfsdp 0 libfsdp0 (>= $version)" >"$top/libfsdp0/DEBIAN/shlibs"
echo "activate-noawait ldconfig" >"$top/libfsdp0/DEBIAN/triggers"

# dpkg-shlibdeps reads debian/control of the folder in which it runs.
printf 'Source: fsdp\n\nPackage: fsdp\nArchitecture: any\n' >"$top/debian/control"
# depends FILE...: the packages with the libraries that the files need
depends() { (cd "$top" && dpkg-shlibdeps -O "$@" | sed -n 's/^shlibs:Depends=//p'); }

# control PACKAGE SECTION DEPENDS FIELDS: writes DEBIAN/control; the description is standard input
control() {
    {
        echo "Package: $1"
        echo "Source: fsdp"
        echo "Version: $version"
        echo "Architecture: $arch"
        echo "Maintainer: $maintainer"
        echo "Installed-Size: $(find "$top/$1" -path '*/DEBIAN' -prune -o -type f -printf '%s\n' | awk '{ k += int(($1 + 1023) / 1024) } END { print k + 0 }')"
        echo "Depends: $3"
        [ -z "$4" ] || printf '%s\n' "$4"
        echo "Section: $2"
        echo "Priority: optional"
        cat
    } >"$top/$1/DEBIAN/control"
}
control fsdp science "$(depends fsdp/usr/bin/fsdp)" "" <<'END'
Description: fully sharded data parallel training without Python
 The command fsdp trains, evaluates and runs language models (T5, Llama,
 GPT-2, BERT) with parameters, gradients and optimizer state sharded over
 processes. It reads and writes the files of PyTorch, Accelerate and Hugging
 Face.
END
control libfsdp0 libs "$(depends "libfsdp0$libdir/libfsdp.so.0")" "Multi-Arch: same" <<'END'
Description: fully sharded data parallel training in C - shared library
 The library behind the command fsdp: tensors, process groups, fully_shard,
 models and checkpoints, for programs in C.
END
control libfsdp-dev libdevel "libfsdp0 (= $version)" "${static_needs:+Suggests: $static_needs}" <<'END'
Description: fully sharded data parallel training in C - development files
 Headers, the static library and examples. Programs that are linked statically
 need the suggested packages, too.
END

for package in fsdp libfsdp0 libfsdp-dev; do
    (cd "$top/$package" && find usr -type f | LC_ALL=C sort | xargs md5sum >DEBIAN/md5sums)
    find "$top/$package" -type f ! -path '*/usr/bin/*' -exec chmod 644 {} +
    # Files get the date of the sources, which dpkg-deb does only for later dates.
    find "$top/$package" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    file=$build/dist/${package}_${version}_$arch.deb
    dpkg-deb --root-owner-group --build "$top/$package" "$file.part" >/dev/null
    mv "$file.part" "$file"
    echo "$file"
done
