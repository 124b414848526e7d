#!/bin/sh
# Prints the date of the sources, in seconds since 1970: that of the last commit, or, in a folder
# that `make dist` packed, the date of its files. What is built of them can so be reproduced.
if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then
    echo "$SOURCE_DATE_EPOCH"
elif [ -e .git ]; then
    git log -1 --format=%ct
else
    date -r include/fsdp/base.h +%s
fi
