#!/bin/sh
# usage: tools/call_cycles.sh BUILD: finds source files of one folder that call each other in a
# circle, from the symbols of the objects in BUILD/src, and folders of one layer that do. File a uses
# file b if a's object refers to a symbol that b's object defines. A circle is an error unless
# tools/call_cycles.allowed lists its files. A listed circle that no longer exists is an error, too.
build=${1:-build}
allowed=$(dirname "$0")/call_cycles.allowed
[ -d "$build/src" ] || {
    echo "call_cycles: there are no objects in $build/src: run 'make BUILD=$build lib' first" >&2
    exit 2
}
objects() { find "$build/src" -name '*.o' ! -path '*/kernels/cpu/isa/*'; }
# Ignore objects whose sources were removed.
sources() {
    objects | while read -r object; do
        source=${object#"$build"/}
        source=${source%.o}
        if [ -f "$source.c" ] || [ -f "$source" ]; then echo "$object"; fi
    done
}
# shellcheck disable=SC2046
nm -A -P $(sources) | awk -v build="$build/" -v allowed="$allowed" '
function name_of(path) {
    sub(/^.*\//, "", path)
    sub(/(\.cc)?\.o$/, "", path)
    return path
}
function folder_of(path) {
    path = substr(path, length(build) + 1)
    sub(/^src\//, "", path)
    sub(/\/[^\/]*$/, "", path)
    return path
}
# src/data of src/data/csv: the folder that has a row of its own in tools/lint.sh
function layer_of(folder) {
    sub(/\/.*$/, "", folder)
    return folder
}
# "from" uses "to", both in `group`; `symbol` shows it
function add_use(group, from, to, symbol) {
    reaches[from, to] = 1
    via[from, to] = symbol
    member[group, from] = member[group, to] = 1
}
BEGIN {
    while ((getline line < allowed) > 0) {
        if (line ~ /^#/ || line ~ /^[ \t]*$/)
            continue
        n_allowed++
        split(line, half, "#")
        split(half[1], part, ":")
        allowed_folder[n_allowed] = part[1]
        allowed_files[n_allowed] = " " part[2] " "
        if (half[2] !~ /[a-z]/) {
            print "call_cycles: " allowed ": no reason is given for: " line
            bad = 1
        }
    }
}
# "build/src/fsdp/state.o: fsdp_state_of T 0 40"
{
    object = $1
    sub(/:$/, "", object)
    if ($3 == "U") {
        uses[object, $2] = 1
    } else if ($3 ~ /^[TDRBVW]$/) {
        definer[$2] = object
    }
    seen[object] = 1
}
END {
    for (pair in uses) {
        split(pair, item, SUBSEP)
        from = item[1]
        to = definer[item[2]]
        if (to == "" || to == from)
            continue
        a = folder_of(from)
        b = folder_of(to)
        if (a == b)
            add_use(a, from, to, item[2])
        else if (layer_of(a) == layer_of(b))
            add_use("folders of " layer_of(a), a, b, item[2] " of " name_of(to) " in " name_of(from))
    }
    for (pair in member) {
        split(pair, item, SUBSEP)
        in_folder[item[1]] = in_folder[item[1]] " " item[2]
    }
    for (folder in in_folder) {
        n = split(in_folder[folder], file, " ")
        for (k = 1; k <= n; k++)
            for (i = 1; i <= n; i++)
                if ((file[i], file[k]) in reaches)
                    for (j = 1; j <= n; j++)
                        if ((file[k], file[j]) in reaches)
                            reaches[file[i], file[j]] = 1
        for (i = 1; i <= n; i++) {
            if (file[i] in done || !((file[i], file[i]) in reaches))
                continue
            count = 0
            for (j = 1; j <= n; j++)
                if ((file[i], file[j]) in reaches && (file[j], file[i]) in reaches) {
                    circle[++count] = file[j]
                    done[file[j]] = 1
                }
            report(folder, count)
        }
    }
    for (a = 1; a <= n_allowed; a++)
        if (!(a in used)) {
            print "call_cycles: " allowed ": no such circle any more, remove the line: " \
                allowed_folder[a] ":" allowed_files[a]
            bad = 1
        }
    exit bad
}
# circle[1..count]: checks whether it is in the list
function report(folder, count,    a, i, j, inside, text) {
    for (a = 1; a <= n_allowed; a++) {
        inside = allowed_folder[a] == folder
        for (i = 1; i <= count; i++)
            inside = inside && index(allowed_files[a], " " name_of(circle[i]) " ")
        if (inside) {
            used[a] = 1
            return
        }
    }
    for (i = 1; i <= count; i++)
        text = text " " name_of(circle[i])
    if (sub(/^folders of /, "folders of src/", folder) == 0)
        folder = "files of src/" folder
    print "call_cycles: " folder " call each other in a circle:" text
    for (i = 1; i <= count; i++)
        for (j = 1; j <= count; j++)
            if ((circle[i], circle[j]) in via)
                print "    " name_of(circle[i]) " -> " name_of(circle[j]) ": " via[circle[i], circle[j]]
    bad = 1
}'
