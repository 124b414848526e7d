#!/bin/sh
# What the page of `fsdp dashboard` says about runs: tests/dashboard/findings.js runs the scripts of
# the page with Node.js, without a browser. Skipped where there is no Node.js.
# usage: FSDP_BUILD=build tests/cli/test_dashboard_findings.sh
. "$(dirname "$0")/lib.sh"
node=$(command -v node || command -v nodejs)
if [ -z "$node" ]; then
    skip findings "no Node.js here (apt-get install nodejs)"
    tally
    exit
fi
capture "$node" "$root/tests/dashboard/findings.js" "$root"
while read -r word name why; do
    case $word in
    ok) ok "$name" ;;
    FAIL) bad "${name%:}" "$why" ;;
    esac
done <out
check the_tests_ran_to_their_end test $rc -eq "$([ $failed -eq 0 ] && echo 0 || echo 1)" -a $((passed + failed)) -ge 77
tally
