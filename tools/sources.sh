#!/bin/sh
# usage: tools/sources.sh [--others] PATTERN...: prints the names of the source files that match a
# pattern, one a line and sorted. As in git's pathspecs, * also matches a slash. In a git repository,
# these are the tracked files, and with --others also the files that could be added. In a folder that
# `make dist`'s file was unpacked to, these are all files but objects and the folders of builds.
if [ -e .git ]; then
    [ "$1" != --others ] || { shift && set -- --cached --others --exclude-standard -- "$@"; }
    git ls-files "$@" | LC_ALL=C sort
    exit
fi
[ "$1" != --others ] || shift
for pattern; do
    set -- "$@" -o -path "./$pattern"
    shift
done
shift # the first -o
# The names that .gitignore has are left out.
find . -path './build*' -prune -o ! -type d ! -name '*.o' \( "$@" \) -print | sed 's|^\./||' | LC_ALL=C sort
