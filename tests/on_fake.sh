# What the scripts named test_on_fake.sh share: `. on_fake.sh; on_fake PROGRAM...` runs programs and
# scripts below tests/ once more on a device that computes late (FSDP_DEVICE=fake; Note [Delays] in
# src/kernels/fake/stream.h): what nobody waits for is missed, and under ThreadSanitizer it is a data
# race. What $TEST_SKIP leaves out is left out here too.
build=${FSDP_BUILD:-build}
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0
# The sum of field N of the programs' last lines: "3 passed, 0 failed, 1 skipped".
field() { grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1 | cut -d ' ' -f "$1"; }
on_fake() {
    for program; do
        [ -n "${TEST_SKIP:-}" ] && echo "$program" | grep -Eq -- "$TEST_SKIP" && continue
        case $program in
        *.sh) path=$(dirname "$0")/../$program ;;
        *) path=$build/tests/$program ;;
        esac
        FSDP_DEVICE=fake "$path" >"$log" 2>&1
        rc=$?
        p=$(field 1) f=$(field 3) s=$(field 5)
        passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0})) skipped=$((skipped + ${s:-0}))
        [ $rc -eq 0 ] && continue
        [ "${f:-0}" -gt 0 ] || failed=$((failed + 1))
        echo "FAIL $program on the fake device: exit status $rc"
        { grep '^FAIL' "$log"; tail -n 20 "$log"; } | sed 's/^/    /'
    done
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}
