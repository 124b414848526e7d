#!/bin/sh
# usage: tests/run.sh BUILD [FILTER]: run every test program under BUILD/tests, print progress,
# end with the sum. FILTER is a substring of the program's path.
build=$1
filter=${2:-}
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
FSDP_TESTS=${FSDP_TESTS:-$(dirname "$0")}
FSDP_BUILD=$build
export FSDP_TESTS FSDP_BUILD
passed=0 failed=0 skipped=0 count=0
programs=$(find "$build/tests" -type f -name 'test_*' ! -name '*.o' ! -name '*.d' | sort)
scripts=$(find "$(dirname "$0")" -name 'test_*.sh' | sort)
total=$(printf '%s\n' $programs $scripts | grep -c -- "$filter")
for program in $programs $scripts; do
    case $program in *"$filter"*) ;; *) continue ;; esac
    count=$((count + 1))
    start=$(date +%s)
    timeout "${TEST_TIMEOUT:-300}" "$program" >"$log" 2>&1
    rc=$?
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    p=$(echo "$line" | sed -n 's/^\([0-9]*\) passed.*/\1/p')
    f=$(echo "$line" | sed -n 's/.* \([0-9]*\) failed.*/\1/p')
    s=$(echo "$line" | sed -n 's/.* \([0-9]*\) skipped.*/\1/p')
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0})) skipped=$((skipped + ${s:-0}))
    if [ $rc -ne 0 ] && [ "${f:-0}" -eq 0 ]; then
        failed=$((failed + 1))
        line="exit status $rc"
    fi
    echo "[$count/$total] ${program#"$build"/}: ${line:-no result} ($(($(date +%s) - start)) s)"
    if [ $rc -ne 0 ]; then tail -n 60 "$log" | sed 's/^/    /'; else grep '^skip' "$log" | sed 's/^/    /'; fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
