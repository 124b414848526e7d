#!/bin/sh
# usage: tools/wheel.sh BUILD OUT [WITHOUT...]: makes OUT/fsdp_c-VERSION-py3-none-manylinux_2_NN_ARCH.whl,
# which `pip install FILE` turns into the command fsdp. `make wheel` calls it.
#
# A wheel runs on other Linux systems, so the command in it needs only the C library: every other
# library is linked statically. Optional libraries of which this machine has no static archive are
# left out, and named. BUILD is a build folder of its own, because it is compiled without them. The
# tag of the wheel says which version of glibc the command needs.
set -e
build=$1
out=$2
shift 2
without=$*
cc=${CC:-gcc}
command -v python3 >/dev/null || { echo "wheel: python3 is needed: it writes the file" >&2; exit 1; }
archive() { [ -e "$($cc -print-file-name="lib$1.a")" ]; }

# NAME in WITHOUT, a file that is there if the library is, and the archives that it needs.
# Three libraries have none in Debian: libdnnl is a shared library only, hwloc needs libudev, and
# libmicrohttpd needs GnuTLS, which needs p11-kit.
static= archives=
while read -r name header needs; do
    case " $without " in *" $name "*) continue ;; esac
    printf '#include <%s>\n' "$header" | $cc -E -x c++ - >/dev/null 2>&1 || continue
    missing=
    for library in $needs; do archive "$library" || missing="$missing lib$library.a"; done
    if [ -n "$missing" ]; then
        echo "wheel: without $name: no$missing here"
        without="$without $name"
    else
        for library in $needs; do
            static="$static -l$library"
            archives="$archives $($cc -print-file-name="lib$library.a")"
        done
    fi
done <<'END'
oneDNN dnnl.h dnnl gomp
hwloc hwloc.h hwloc udev
csv csv.h csv
yaml yaml.h yaml
cairo cairo/cairo.h cairo pixman-1 fontconfig freetype expat png16 brotlidec brotlicommon
microhttpd microhttpd.h microhttpd gnutls hogweed nettle gmp tasn1 idn2 unistring p11-kit
nettle nettle/hmac.h nettle
PCRE2 stddef.h pcre2-8
utf8proc utf8proc.h utf8proc
flatbuffers flatbuffers/flatbuffers.h stdc++
zlib zlib.h z
zstd zstd.h zstd
lz4 lz4.h lz4
END
deps=${DEPS_DIR:-build/deps}
jansson=$(ls "$deps"/usr/lib/*/libjansson.a 2>/dev/null | head -n 1)
[ -n "$jansson" ] || jansson=$($cc -print-file-name=libjansson.a)
[ -e "$jansson" ] || { echo "wheel: no libjansson.a: 'make deps-folder' gets it" >&2; exit 1; }
archives="$archives $jansson"

# Static libraries may need each other in any order. cairo and libpng need zlib.
static="-Wl,-Bstatic -Wl,--start-group $jansson $static -Wl,--end-group -Wl,-Bdynamic"
${MAKE:-make} BUILD="$build" WITHOUT="$without" STATIC_LIBS="$static" "$build/fsdp-static" "$build/man/fsdp.1" \
    "$build/completion/fsdp.bash"
program=$build/wheel-fsdp
strip --strip-unneeded -R .comment -o "$program" "$build/fsdp-static"

# What PEP 600 allows of what it needs.
for library in $(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    case $library in
    libc.so.6 | libm.so.6 | libpthread.so.0 | libdl.so.2 | librt.so.1 | libgcc_s.so.1 | ld-linux*.so.*) ;;
    *) echo "wheel: the command needs $library, which other Linux systems may lack; make it without that library: WITHOUT=..." >&2
       exit 1 ;;
    esac
done
glibc=$(objdump -T "$program" | sed -n 's/.*GLIBC_\([0-9]*\)\.\([0-9]*\)[ .)].*/\1_\2/p' | sort -t _ -k 1,1n -k 2,2n | tail -n 1)
version=$(sed -n 's/.*FSDP_VERSION "\(.*\)"/\1/p' include/fsdp/base.h)
SOURCE_DATE_EPOCH=$(sh tools/source_date.sh)
export SOURCE_DATE_EPOCH
mkdir -p "$out"
# The licenses of the libraries that are linked into the command.
licenses=
for file in $archives; do
    package=$(dpkg-query -S "$(realpath "$file")" 2>/dev/null | head -n 1 | cut -d : -f 1)
    [ -z "$package" ] || [ ! -e "/usr/share/doc/$package/copyright" ] ||
        licenses="$licenses $package=/usr/share/doc/$package/copyright"
done
# shellcheck disable=SC2086
python3 tools/wheel.py "$out" "$version" "manylinux_${glibc}_$(uname -m)" "$program" "$build/man" \
    "$build/completion" $(printf '%s\n' $licenses | sort -u)
