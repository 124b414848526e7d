#!/bin/sh
# usage: tests/run.sh BUILD [FILTER]: run every test program under BUILD/tests and every script,
# print progress in order, end with the sum. FILTER is a substring of the program's path. Programs
# whose path matches the extended regular expression $TEST_SKIP are left out, and listed. With
# TEST_AGAIN=1 what fails runs once more, which counts; both are shown, and the end tells of it.
build=$1
filter=${2:-}
# Two of these at a time: they compute, and where ranks or threads wait for each other, it may take
# longer. All others, whose ranks wait at every step or who look at the clock, have the machine to
# themselves, and come last.
beside='/tests/(autograd|base|ckpt|data|dtensor|kernels|models|nn|optim|tensor|text)/'
beside="$beside|cli/test_(checkpoint|compare|evaluate|fsdp2_train|generate|verify)\.sh$"
lanes=2
dir=$(mktemp -d) || exit 1
# timeout hands the signal on to all that it started; who waits for one sees that the folder is gone.
trap 'pids=$(cat "$dir"/*.pid 2>/dev/null); rm -rf "$dir"; echo $pids | xargs -r kill 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
FSDP_TESTS=${FSDP_TESTS:-$(dirname "$0")}
FSDP_BUILD=$build
export FSDP_TESTS FSDP_BUILD
passed=0 failed=0 skipped=0 started=0 reported=0

programs=$(find "$build/tests" -type f -name 'test_*' ! -name '*.o' ! -name '*.d' | sort)
scripts=$(find "$(dirname "$0")" -name 'test_*.sh' | sort)
if [ -n "${TEST_SKIP:-}" ]; then
    programs=$(printf '%s\n' $programs | grep -Ev -- "$TEST_SKIP")
    printf '%s\n' $scripts | grep -E -- "$TEST_SKIP" | sed 's/^/left out here: /'
    scripts=$(printf '%s\n' $scripts | grep -Ev -- "$TEST_SKIP")
fi
chosen=$(printf '%s\n' $programs $scripts | grep -- "$filter")
total=$(printf '%s\n' $chosen | grep -c .)

# try NUMBER PROGRAM: leaves NUMBER.log, sets rc
try() {
    timeout "${TEST_TIMEOUT:-300}" "$2" >"$dir/$1.log" 2>&1 &
    echo $! >"$dir/$1.pid"
    wait $! 2>/dev/null # which would tell of signals; the line does
    rc=$?
    [ -d "$dir" ] || exit # interrupted
    rm "$dir/$1.pid"
}
# run NUMBER PROGRAM: leaves NUMBER.log, .seconds, .first if there was one before and, last, .rc
run() {
    start=$(date +%s)
    try "$1" "$2"
    if [ $rc -ne 0 ] && [ "${TEST_AGAIN:-0}" = 1 ]; then
        { cat "$dir/$1.log"; echo "exit status $rc; again:"; } >"$dir/$1.first"
        try "$1" "$2"
    fi
    echo $(($(date +%s) - start)) >"$dir/$1.seconds"
    echo $rc >"$dir/$1.rc"
}
# report NUMBER PROGRAM: its line, what it skipped or how it failed; adds to the sums
report() {
    log=$dir/$1.log
    read -r rc <"$dir/$1.rc"
    read -r seconds <"$dir/$1.seconds"
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    p=$(echo "$line" | sed -n 's/^\([0-9]*\) passed.*/\1/p')
    f=$(echo "$line" | sed -n 's/.* \([0-9]*\) failed.*/\1/p')
    s=$(echo "$line" | sed -n 's/.* \([0-9]*\) skipped.*/\1/p')
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0})) skipped=$((skipped + ${s:-0}))
    if [ "$rc" -ne 0 ] && [ "${f:-0}" -eq 0 ]; then
        failed=$((failed + 1))
        line="exit status $rc"
    fi
    echo "[$1/$total] ${2#"$build"/}: ${line:-no result} ($seconds s)"
    if [ -e "$dir/$1.first" ]; then
        tail -n 60 "$dir/$1.first" | sed 's/^/    /'
        { echo "${2#"$build"/} failed at first:"; causes "$dir/$1.first"; } >>"$dir/failures"
    fi
    if [ "$rc" -eq 0 ]; then
        grep '^skip' "$log" | sed 's/^/    /'
    else
        tail -n 60 "$log" | sed 's/^/    /'
        { echo "${2#"$build"/}, exit status $rc:"; causes "$log"; } >>"$dir/failures"
    fi
}
# causes LOG: for the end, where the last lines of a long log show them
causes() {
    grep -E '^FAIL|ERROR: |WARNING: |runtime error' "$1" | head -n 5 | cut -c -300 | sed 's/^/    /'
    grep -q '^FAIL' "$1" || tail -n 3 "$1" | cut -c -300 | sed 's/^/    /'
}
# The programs that have ended, up to the first that has not.
report_ended() {
    while [ $reported -lt $started ] && [ -e "$dir/$((reported + 1)).rc" ]; do
        reported=$((reported + 1))
        read -r ended <"$dir/$reported.program"
        report $reported "$ended"
    done
}

# Who takes a line from this pipe may run, and puts it back.
mkfifo "$dir/lanes"
exec 3<>"$dir/lanes"
for i in $(seq $lanes); do echo >&3; done
take() { for i in $(seq "$1"); do read -r _ <&3; done; }

# all_of WIDTH PROGRAM...: one after the other, each on so many lanes
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
all_of 1 $(printf '%s\n' $chosen | grep -E -- "$beside")
all_of $lanes $(printf '%s\n' $chosen | grep -Ev -- "$beside")
take $lanes
report_ended
if [ -e "$dir/failures" ]; then cat "$dir/failures"; fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
