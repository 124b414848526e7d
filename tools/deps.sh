#!/bin/sh
# usage: tools/deps.sh PACKAGE...: install the Debian packages that are missing, and print their
# names.
missing=
for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || { echo "deps: nothing is missing"; exit 0; }
command -v apt-get >/dev/null || { echo "deps: no apt-get here; install:$missing" >&2; exit 1; }
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
echo "deps: apt-get install$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
$sudo apt-get install -y -q --no-install-recommends $missing >/dev/null 2>&1 ||
    { $sudo apt-get update -q && $sudo apt-get install -y -q --no-install-recommends $missing; }
