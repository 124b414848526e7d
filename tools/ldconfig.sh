#!/bin/sh
# usage: tools/ldconfig.sh DESTDIR LIBDIR: after `make install`, lets programs find libfsdp.so.0 in
# LIBDIR when they start, or says how they find it there.
[ -z "$1" ] || exit 0
[ -e "$2/libfsdp.so.0" ] || exit 0
case $2 in
/lib | /lib/* | /usr/lib | /usr/lib/* | /usr/local/lib)
    [ "$(id -u)" -ne 0 ] || ! command -v ldconfig >/dev/null || ldconfig
    exit 0 ;;
esac
echo "$2 is not searched when programs start: link with -Wl,-rpath,$2 or set LD_LIBRARY_PATH"
