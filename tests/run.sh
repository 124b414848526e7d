#!/bin/sh
# usage: tests/run.sh BUILD [FILTER]: run every file of tests, each in a process of its own, and
# every script. Prints progress in order, and finally the ten slowest, the failures and the sum.
# FILTER is a substring of a file's path, with or without "test_" (fsdp/overlap:
# tests/fsdp/test_overlap.c). If no path contains it, it is a substring of a test's name, alone or
# after its folder (fsdp/NAME). Files and scripts whose path matches the extended regular
# expression $TEST_SKIP are skipped, and listed. With TEST_AGAIN=1 a failed file runs once more
# and the second result counts; both are shown, and the summary names it. BUILD/test-times.tsv has
# the seconds of each, and those of its processes on processors, which other programs of the machine
# hardly change.
build=$1
filter=${2:-}
# $TEST_LANES of these run at a time (3 by default, on two processors: many wait for a process to start or
# to end). Scripts come first, because they take longer than most files: a long one at the end would leave a
# processor idle. All others, whose ranks meet at every step, have the machine to themselves, and run last.
# The extended regular expression $TEST_BESIDE replaces this one.
beside='^tests/(autograd|base|batch|bench|checkpoint_tools|cuda|data|dcp|dtensor|foreign|fuzz|generate|hf|hosts|kernels|launch|models|nn|optim|options|plan|report|source|state_dict|tensor|text|tokenize|torchfile)/'
beside="$beside|\.sh$|comm/test_(failures|mpi|shm)$|cli/test_job$|fsdp/test_(divergence|divergence_shm|fully_shard|hosts)$"
beside="$beside|train/test_(flags|resume|span_corruption)$"
beside=${TEST_BESIDE:-$beside}
# These run make in the build folder. It may link programs again, which others could not start meanwhile.
makes='cli/test_(install|packages)\.sh$'
lanes=${TEST_LANES:-4}
dir=$(mktemp -d) || exit 1
# timeout passes the signal on to all processes it started. A shell that waits for one sees that
# the folder is gone.
trap 'pids=$(cat "$dir"/*.pid 2>/dev/null); rm -rf "$dir"; echo $pids | xargs -r kill 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
FSDP_TESTS=${FSDP_TESTS:-$(dirname "$0")}
FSDP_BUILD=$build
# On a machine with a card, the programs under test would take it by themselves.
FSDP_DEVICE=${FSDP_DEVICE:-cpu}
export FSDP_TESTS FSDP_BUILD FSDP_DEVICE
passed=0 failed=0 skipped=0 started=0 reported=0

# The tests of tests/FOLDER/test_X.c and tests/FOLDER/ROOM/test_X.c are run by
# BUILD/tests/FOLDER/tests --file test_X.
programs=$(cd "$(dirname "$0")" && find . -name 'test_*.c' ! -path ./test_main.c | sed 's|^\.|tests|; s|\.c$||' | sort)
scripts=$(find "$(dirname "$0")" -name 'test_*.sh' | sort)
if [ -n "${TEST_SKIP:-}" ]; then
    programs=$(printf '%s\n' $programs | grep -Ev -- "$TEST_SKIP")
    printf '%s\n' $scripts | grep -E -- "$TEST_SKIP" | sed 's/^/left out here: /'
    scripts=$(printf '%s\n' $scripts | grep -Ev -- "$TEST_SKIP")
fi
# with_path: the lines whose path contains FILTER, also if written without "test_"
with_path() {
    while read -r path; do
        case $path in *"$filter"*) echo "$path"; continue ;; esac
        case ${path%/test_*}/${path##*/test_} in *"$filter"*) echo "$path" ;; esac
    done
}
# with_name: files that have a test whose name, after its folder, contains FILTER
with_name() {
    for program in "$build"/tests/*/tests; do "$program" --list; done |
        sed -n 's|^\(.*\)\.c\t|\1\t|p' | while IFS="$(printf '\t')" read -r file name; do
            folder=${file%/*}
            case ${folder##*/}/$name in *"$filter"*) echo "$file" ;; esac
        done | sort -u
}
names=
chosen=$(printf '%s\n' $scripts $programs | with_path)
if [ -z "$chosen" ]; then
    names=${filter##*/}
    chosen=$(printf '%s\n' "$(with_name)" | grep -Fx -- "$programs")
fi
if [ -z "$chosen" ]; then
    echo "T=$filter: no path of a file or script of tests contains it, nor any test's name"
    exit 1
fi
total=$(printf '%s\n' $chosen | grep -c .)

# try NUMBER PROGRAM: writes NUMBER.log, sets rc
try() {
    case $2 in
    *.sh) set -- "$1" "$2" "$2" ;;
    *)
        layer=${2#tests/}
        set -- "$1" "$2" "$build/tests/${layer%%/*}/tests" --file "${2##*/}" $names
        ;;
    esac
    number=$1
    shift 2
    timeout "${TEST_TIMEOUT:-300}" "$@" >"$dir/$number.log" 2>&1 &
    echo $! >"$dir/$number.pid"
    wait $! 2>/dev/null # bash would report signals; the report does
    rc=$?
    [ -d "$dir" ] || exit # interrupted
    rm "$dir/$number.pid"
}
now() { cut -d ' ' -f 1 /proc/uptime; }
# run NUMBER PROGRAM: writes NUMBER.log, .seconds (elapsed, and of its processes on processors), .first
# if there was an attempt before and, last, .rc. It runs in a subshell of its own, whose `times` counts
# this program only.
run() {
    start=$(now)
    try "$1" "$2"
    if [ $rc -ne 0 ] && [ "${TEST_AGAIN:-0}" = 1 ]; then
        { cat "$dir/$1.log"; echo "exit status $rc; again:"; } >"$dir/$1.first"
        try "$1" "$2"
    fi
    times >"$dir/$1.times" # in a pipeline it would be another shell's
    echo "$start $(now)" | cat - "$dir/$1.times" | tr 'ms' '  ' | awk '
        NR == 1 { elapsed = $2 - $1 }
        NR == 3 { printf "%.2f\t%.2f\n", elapsed, $1 * 60 + $2 + $3 * 60 + $4 }' >"$dir/$1.seconds"
    echo $rc >"$dir/$1.rc"
}
# report NUMBER PROGRAM: prints its line, and what it skipped or how it failed; adds to the sums
report() {
    log=$dir/$1.log
    read -r rc <"$dir/$1.rc"
    read -r seconds used <"$dir/$1.seconds"
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    p=$(echo "$line" | sed -n 's/^\([0-9]*\) passed.*/\1/p')
    f=$(echo "$line" | sed -n 's/.* \([0-9]*\) failed.*/\1/p')
    s=$(echo "$line" | sed -n 's/.* \([0-9]*\) skipped.*/\1/p')
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0})) skipped=$((skipped + ${s:-0}))
    if [ "$rc" -ne 0 ] && [ "${f:-0}" -eq 0 ]; then
        failed=$((failed + 1))
        line="exit status $rc"
    fi
    echo "[$1/$total] $2: ${line:-no result} (${seconds%.*} s)"
    printf '%s\t%s\t%s\n' "$2" "$seconds" "$used" >>"$dir/times"
    if [ -e "$dir/$1.first" ]; then
        tail -n 60 "$dir/$1.first" | sed 's/^/    /'
        { echo "$2 failed at first:"; causes "$dir/$1.first"; } >>"$dir/failures"
    fi
    if [ "$rc" -eq 0 ]; then
        grep '^skip' "$log" | sed 's/^/    /'
    else
        tail -n 60 "$log" | sed 's/^/    /'
        { echo "$2, exit status $rc:"; causes "$log"; } >>"$dir/failures"
    fi
}
# causes LOG: prints the failures for the summary, where the last lines of a long log show them
causes() {
    grep -E '^FAIL|ERROR: |WARNING: |runtime error' "$1" | head -n 5 | cut -c -300 | sed 's/^/    /'
    grep -q '^FAIL' "$1" || tail -n 3 "$1" | cut -c -300 | sed 's/^/    /'
}
# report_ended: reports the programs that have ended, up to the first that has not.
report_ended() {
    while [ $reported -lt $started ] && [ -e "$dir/$((reported + 1)).rc" ]; do
        reported=$((reported + 1))
        read -r ended <"$dir/$reported.program"
        report $reported "$ended"
    done
}

# A program may run once it has taken a line from this pipe; it puts the line back when it ends.
mkfifo "$dir/lanes"
exec 3<>"$dir/lanes"
for i in $(seq $lanes); do echo >&3; done
take() { for i in $(seq "$1"); do read -r _ <&3; done; }

# all_of WIDTH PROGRAM...: runs them one after the other, each on WIDTH lanes
all_of() {
    width=$1
    shift
    for program; do
        take "$width"
        report_ended
        started=$((started + 1))
        echo "$program" >"$dir/$started.program"
        { run $started "$program"; for i in $(seq "$width"); do echo >&3; done; } &
    done
}
all_of 1 $(printf '%s\n' $chosen | grep -E -- "$beside" | grep -Ev -- "$makes")
all_of $lanes $(printf '%s\n' $chosen | grep -E -- "$makes")
all_of $((lanes / 2)) $(printf "%s\n" $chosen | grep -Ev -- "$beside|$makes")
take $lanes
report_ended
sort -t "$(printf '\t')" -k 2,2 -rn "$dir/times" >"$build/test-times.tsv"
if [ "$total" -gt 1 ]; then
    echo "slowest (seconds; seconds on processors):"
    head -n 10 "$build/test-times.tsv" | awk -F '\t' '{ printf "%8.2f %8.2f  %s\n", $2, $3, $1 }'
fi
if [ -e "$dir/failures" ]; then cat "$dir/failures"; fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
