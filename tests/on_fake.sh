# Shared by the scripts named test_on_fake.sh. `. on_fake.sh; on_fake PROGRAM...` runs files of
# tests (fsdp/test_hsdp) and scripts below tests/ again on a device that computes late
# (FSDP_DEVICE=fake, or $ON_DEVICE; Note [Delays] in src/kernels/fake/stream_testing.h). A missing wait gives
# other results there, and a data race under ThreadSanitizer. Files that match $TEST_SKIP, alone or as
# fake:fsdp/test_hsdp, are skipped here too. fsdp/test_hsdp:NAME,NAME runs only tests whose names contain a NAME. Three programs run at a time, since they mostly wait for the device.
build=${FSDP_BUILD:-build}
device=${ON_DEVICE:-fake}
logs=$(mktemp -d) || exit 1
trap 'rm -rf "$logs"' EXIT
passed=0 failed=0 skipped=0
# log_of PROGRAM: prints the path of its log; its exit status is stored next to it
log_of() { echo "$logs/$(echo "$1" | tr /:, ___)"; }
# field N LOG: prints a field of the program's last line: "3 passed, 0 failed, 1 skipped"
field() { grep -E '^[0-9]+ passed, [0-9]+ failed' "$2" | tail -n 1 | cut -d ' ' -f "$1"; }
is_left_out() { [ -n "${TEST_SKIP:-}" ] && echo "$device:$1" | grep -Eq -- "$TEST_SKIP"; }
run() { # PROGRAM
    case $1 in
    *.sh) FSDP_DEVICE=$device "$(dirname "$0")/../$1" ;;
    *)
        file=${1%%:*} names=
        case $1 in *:*) names=$(echo "${1#*:}" | tr , ' ') ;; esac
        # shellcheck disable=SC2086
        FSDP_DEVICE=$device "$build/tests/${1%/*}/tests" --file "${file##*/}" $names
        ;;
    esac >"$(log_of "$1")" 2>&1
    echo $? >"$(log_of "$1").rc"
}
# share K PROGRAM...: runs every third program, from the K-th on
share() {
    n=0 k=$1
    shift
    for program; do
        n=$(((n + 1) % 3))
        [ $n -eq "$k" ] && ! is_left_out "$program" && run "$program"
    done
}
count() { # PROGRAM: adds its counts, and prints its log if it failed
    log=$(log_of "$1") rc=$(cat "$(log_of "$1").rc")
    p=$(field 1 "$log") f=$(field 3 "$log") s=$(field 5 "$log")
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0})) skipped=$((skipped + ${s:-0}))
    [ "$rc" -eq 0 ] && return
    [ "${f:-0}" -gt 0 ] || failed=$((failed + 1))
    echo "FAIL $1 on the device $device: exit status $rc"
    { grep '^FAIL' "$log"; tail -n 20 "$log"; } | sed 's/^/    /'
}
on_fake() {
    for k in 0 1 2; do
        share $k "$@" &
    done
    wait
    for program; do
        is_left_out "$program" || count "$program"
    done
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}
