# Part of tools/gpu_check.sh: time limits and results. A part is a function that calls begin, runs
# its commands by `limited`, judges them, and calls finish.

now() { cut -d ' ' -f 1 /proc/uptime; }
whole() { now | cut -d . -f 1; }
started=$(whole)
# Limits save the time of a card. A rehearsal has no card, but may have to share its processors.
patience=1
[ "$rehearse" != 1 ] || patience=10
end=$((started + ${GPU_CHECK_SECONDS:-$((360 * patience))}))
mkdir -p "$out" || exit 1
logs=$out/logs
rm -rf "$logs" "$out"/gpu_check.jsonl "$out"/table
mkdir "$logs" || exit 1

# as_text: makes its input one line that may be in a JSON string
as_text() {
    tr '\t\n' '  ' | tr -d '\000-\037' | tr '\\"' "/'" | sed 's/ *$//' | cut -c -400
}
# begin PART SECONDS: starts a result, and the limit of its commands
begin() {
    part=$1 status=passed why='' n_why=0 figures='' summary=''
    part_began=$(now)
    part_end=$(($(whole) + $2 * patience))
    [ "$part_end" -le "$end" ] || part_end=$end
}
# The first four reasons are written, and how many others there were.
add_why() {
    n_why=$((n_why + 1))
    [ $n_why -gt 4 ] || why="$why${why:+; }$(echo "$*" | as_text)"
}
fail() { status=failed; add_why "$@"; }
late() { [ "$status" = failed ] || status=timeout; add_why "$@"; }
skip() { [ "$status" != passed ] || status=skipped; add_why "$@"; }
# figure KEY NUMBER, figure_text KEY TEXT: add to the figures of the result
figure() { [ -z "$2" ] || figures="$figures${figures:+, }\"$1\": $2"; }
figure_text() { figure "$1" "\"$(echo "$2" | as_text)\""; }
# finish: writes the result
finish() {
    [ $n_why -le 4 ] || why="$why; and $((n_why - 4)) more"
    seconds=$(echo "$part_began $(now)" | awk '{ printf "%.1f", $2 - $1 }')
    printf '{"part": "%s", "status": "%s", "seconds": %s, "figures": {%s}, "why": "%s"}\n' \
        "$part" "$status" "$seconds" "$figures" "$why" >>"$out/gpu_check.jsonl"
    {
        printf '%-20s %-8s %6s  %s\n' "$part" "$status" "$seconds" "$summary"
        [ -z "$why" ] || printf '    %s\n' "$why"
    } | tee -a "$out/table"
}

# limited SECONDS LOG COMMAND...: runs it for at most that long, the rest of the part and the rest
# of the check. Sets $rc, which is 124 or 137 if it did not end in time.
limited() {
    most=$(($1 * patience)) log=$logs/$2
    shift 2
    left=$((part_end - $(whole)))
    [ "$most" -le "$left" ] || most=$left
    rc=124
    if [ "$most" -le 0 ]; then
        echo "not started: no time was left" >"$log"
    else
        timeout -k 3 "$most" "$@" >"$log" 2>&1
        rc=$?
    fi
}
# judge WHAT: the result of the command before it, from $rc and $log; returns false if it did not
# succeed
judge() {
    case $rc in
    0) return 0 ;;
    124 | 137) late "$1: not within $most s" ;;
    *) fail "$1: exit code $rc: $(grep -Ev "^$|^try '|^make" "$log" | tail -n 1 | cut -c -240)" ;;
    esac
    return 1
}
# has PROGRAM: skips the part if it is not there
has() {
    [ -x "$1" ] && return
    skip "there is no $1"
    return 1
}
# number KEY: prints the first value of that key in the JSON on its input
number() { tr ',{}' '\n' | sed -n 's/^ *"'"$1"'": *\([-0-9.e+]*\).*/\1/p' | head -n 1; }
# calc FORMAT EXPRESSION, holds CONDITION: by awk
calc() { awk "BEGIN { printf \"$1\", $2 }"; }
holds() { [ "$(calc %d "($1)")" = 1 ]; }
