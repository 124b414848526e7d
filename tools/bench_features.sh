#!/bin/sh
# usage: tools/bench_features.sh BUILD: what options cost or save, each compared with a run
# without it, alternately ROUNDS (3) times, medians: activation checkpointing, more ranks than
# cores, bf16, prefetch in backward; and how long a start takes.
#
# SHAPE (t5-small), BATCH (4) rows per rank, SEQ (512), STEPS (5; the first is reported
# separately). Ranks have one thread each; RANKS (2) of them, and MANY ("4 8") for runs with more
# ranks than cores.
build=${1:-build}
shape=${SHAPE:-t5-small} batch=${BATCH:-4} seq=${SEQ:-512} steps=${STEPS:-5} ranks=${RANKS:-2}
many=${MANY:-4 8}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
touch "$dir/table"

value() { printf '%s' "$line" | sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p"; }
tag() { printf '%s' "$line" | sed -n "s/.*\"peak_mib\": {\([^}]*\)}.*/\1/p" | sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }
# measure NAME RANKS OPTIONS...
measure() {
    name=$1 n=$2
    shift 2
    line=$("$build/fsdp" bench train --shape "$shape" --ranks "$n" --threads-per-rank 1 \
        --batch "$batch" --seq "$seq" --steps "$steps" --json "$@") || exit 1
    printf '%-24s %5s %9.3f %9.0f %11.2f %11.1f %9.0f\n' "$name" $round "$(value step_s)" \
        "$(value tok_per_s)" "$(value first_step_after_s)" "$(tag activation)" "$(value peak_host_mib)"
    echo "$name $(value step_s) $(value tok_per_s) $(value first_step_after_s) $(tag activation) $(value peak_host_mib)" >>"$dir/table"
}

echo "$shape, $batch rows of $seq tokens a rank, $ranks ranks of one thread unless said; bf16 unless said"
printf '%-24s %5s %9s %9s %11s %11s %9s\n' run round step_s tok/s first_step activations host_MiB
round=0
while [ $round -lt "${ROUNDS:-3}" ]; do
    round=$((round + 1))
    measure plain "$ranks"
    measure checkpointing "$ranks" --activation-checkpointing
    measure checkpointing-op "$ranks" --activation-checkpointing --activation-checkpointing-kind op
    measure BACKWARD_POST "$ranks" --backward-prefetch BACKWARD_POST
    measure NO_PREFETCH "$ranks" --backward-prefetch NO_PREFETCH
    measure fp32 "$ranks" --dtype fp32
    for n in $many; do measure "ranks-$n" "$n"; done
done

echo
echo 'medians'
awk '
    function median(of,    n, v, i, j, t) {
        n = split(of, v, " ")
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
        return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    }
    function of(run, k) { return median(all[run, k]) }
    function against(run, k) { return of(run, k) / of("plain", k) }
    function show(what, value, unit) { printf "%-64s %8.3f %s\n", what, value, unit }
    !($1 in seen) { order[++n] = $1; seen[$1] }
    { for (k = 2; k <= 6; k++) all[$1, k] = all[$1, k] " " $k }
    END {
        show("checkpointing: step time, of that without", against("checkpointing", 2), "")
        show("checkpointing: activations, of those without", against("checkpointing", 5), "")
        show("checkpointing of kind op: step time", against("checkpointing-op", 2), "")
        show("checkpointing of kind op: activations", against("checkpointing-op", 5), "")
        for (i = 1; i <= n; i++)
            if (order[i] ~ /^ranks-/)
                show(order[i] ": tokens/s of all ranks, of those of the plain run", against(order[i], 3), "")
        show("bf16: how many times as fast as fp32", of("fp32", 2) / of("plain", 2), "")
        show("bf16: host memory, of that of fp32", of("plain", 6) / of("fp32", 6), "")
        show("BACKWARD_POST: step time, of that of BACKWARD_PRE", against("BACKWARD_POST", 2), "")
        show("NO_PREFETCH: step time, of that of BACKWARD_PRE", against("NO_PREFETCH", 2), "")
        show("process start to the end of the first step", of("plain", 4), "s")
        show("that, less the median step", of("plain", 4) - of("plain", 2), "s")
    }' "$dir/table"
