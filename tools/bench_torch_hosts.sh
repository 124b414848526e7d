#!/bin/sh
# usage: tools/bench_torch_hosts.sh BUILD VENV [HOSTSxRANKS...]: the same training steps in this library
# and in PyTorch's FSDP2 (gloo, eager) on several hosts, which are namespaces of this machine with cables
# of 1 Gbit/s (tests/hosts/hosts.sh; needs root), alternately ROUNDS (2) times; then medians: seconds of
# a step, tokens per second of all ranks, 10^6 bytes that a host sends in a step (counted on its
# interface), and the ratios. Ranks have one thread, and both begin with the same weights. With more
# ranks than free cores, the times compare processor time as much as communication; bytes do not depend
# on the load.
#
# VENV is a virtual environment with torch and transformers. RUNS ("shape:dtype:batch:seq:target ...")
# and STEPS (4; the first is left out) choose the work. RATE (1gbit) is that of the cables. OURS are more
# flags of `fsdp train`.
build=${1:-build}
venv=${2:-venv}
[ $# -lt 2 ] || shift 2
case $build in /*) ;; *) build=$(pwd)/$build ;; esac
case $venv in /*) ;; *) venv=$(pwd)/$venv ;; esac
here=$(cd "$(dirname "$0")" && pwd)
hosts=$here/../tests/hosts/hosts.sh
runs=${RUNS:-llama-58m:bf16:2:256:0 t5-small:bf16:2:256:64}
steps=${STEPS:-4} rounds=${ROUNDS:-2}
export HOSTS_PREFIX=${HOSTS_PREFIX:-fsdpb} HOSTS_NET=${HOSTS_NET:-10.79.3}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
[ -x "$venv/bin/torchrun" ] || {
    echo "$venv/bin/torchrun: not there: 'python3 -m venv VENV; VENV/bin/pip install torch transformers'" >&2
    exit 1
}
dir=$(mktemp -d) || exit 1
trap '"$hosts" down; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
cd "$dir" || exit 1

value() { printf '%s' "$line" | sed -n "s/.*\"$1\": *\([-0-9.e+]*\).*/\1/p"; }
failed() {
    tail -n 40 "$dir"/err* >&2
    exit 1
}
sent() { "$hosts" bytes | head -n 1; }
row() { # PROGRAM STEP_S MB
    tokens=$((batch * (seq + target) * ranks))
    awk -v run="$run" -v shape="$shape_of_hosts" -v program="$1" -v s="$2" -v mb="$3" -v tokens=$tokens \
        'BEGIN { printf "%-24s %-5s %-8s %8.3f %9.1f %9.1f\n", run, shape, program, s, tokens / s, mb }'
    echo "$run $shape_of_hosts $1 $2 $3 $tokens" >>table
}
# train STEPS: `fsdp train` on all hosts
train() {
    "$hosts" exec 1 mpirun.openmpi --mca plm_rsh_agent "$hosts ssh" --mca plm_rsh_no_tree_spawn 1 \
        --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 --mca pml ob1 \
        --mca btl self,vader,tcp --bind-to none --oversubscribe -H "$("$hosts" list "$slots")" \
        "$build/fsdp" train --model model --data rows.jsonl $flags ${OURS:-} --batch-size "$batch" \
        --threads-per-rank 1 --max-grad-norm 1 --lr 1e-4 --lr-schedule constant --device cpu \
        --max-steps "$1" --metrics "metrics" --no-save-model --overwrite-output >out 2>err || failed
}
ours() {
    before=$(sent)
    train 2
    middle=$(sent)
    train $((steps + 2))
    line=$(grep step_s metrics | tail -n 1)
    row fsdp.c "$(value step_s)" "$(awk "BEGIN { print (($(sent) - $middle) - ($middle - $before)) / $steps / 1e6 }")"
}
torch() {
    ids=
    for i in $(seq "$n_hosts" -1 1); do
        "$hosts" exec "$i" env GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 \
            "$venv/bin/torchrun" --nnodes="$n_hosts" --node-rank=$((i - 1)) --nproc-per-node="$slots" \
            --master-addr="${HOSTS_PREFIX}1" --master-port=29500 "$here/bench_torch.py" --model model \
            --dtype "$dtype" --batch "$batch" --seq "$seq" --target "$target" --steps "$((steps + 1))" \
            --interface eth0 >"out$i" 2>"err$i" &
        ids="$ids $!"
    done
    for id in $ids; do wait "$id" || failed; done
    line=$(grep step_s out1)
    row FSDP2 "$(value step_s)" "$(awk "BEGIN { print $(value host_sent_bytes) / 1e6 }")"
}
# rows of random ids, as many as all steps and ranks need
write_rows() {
    awk -v n=$((batch * ranks * (steps + 2))) -v source="$seq" -v target="$target" 'BEGIN { srand(1)
        for (i = 0; i < n; i++) {
            printf "{\"input_ids\": ["
            for (k = 0; k < source; k++) printf "%s%d", k ? ", " : "", 3 + int(31990 * rand())
            if (target) printf "], \"labels\": ["
            for (k = 0; k < target; k++) printf "%s%d", k ? ", " : "", 3 + int(31990 * rand())
            print "]}"
        } }' >rows.jsonl
}

printf '%-24s %-5s %-8s %8s %9s %9s\n' run hosts program step_s tokens/s MB
for run in $runs; do
    IFS=: read -r model dtype batch seq target <<END
$run
END
    rm -rf model
    "$build/fsdp" bench train --shape "$model" --ranks 1 --batch 1 --seq 16 --steps 2 --save-model model \
        >out 2>err || failed
    flags="--max-seq-length $seq"
    [ "$target" = 0 ] || flags="--max-source-length $seq --max-target-length $target"
    [ "$dtype" != bf16 ] || flags="$flags --bf16"
    for shape_of_hosts in ${*:-2x1 2x2}; do
        n_hosts=${shape_of_hosts%x*} slots=${shape_of_hosts#*x}
        ranks=$((n_hosts * slots))
        write_rows
        "$hosts" down
        "$hosts" up "$n_hosts" "${RATE:-1gbit}" || exit 1
        for round in $(seq "$rounds"); do
            ours
            torch
        done
        "$hosts" down
    done
done
echo
echo '| model, rows x tokens a rank | hosts x ranks | fsdp.c: s, tokens/s, MB | FSDP2: s, tokens/s, MB | speed | bytes |'
echo '|---|---|---|---|---|---|'
sort -k1,3 -k4,4g table | awk '
    { key = $1 " " $2; if (!(key in seen)) { seen[key] = 1; order[++n] = key }
      k = key " " $3; count[k]++; s[k, count[k]] = $4; mb[k] = $5; tokens[key] = $6 }
    function median(k) { return s[k, int((count[k] + 1) / 2)] }
    END { for (i = 1; i <= n; i++) { key = order[i]; a = key " fsdp.c"; b = key " FSDP2"; split(key, w, " "); split(w[1], p, ":")
        printf "| %s %s, %s x (%s + %s) | %s | %.2f, %.0f, %.1f | %.2f, %.0f, %.1f | %.2f x | %.2f x fewer |\n", p[1], p[2], p[3],
            p[4], p[5], w[2], median(a), tokens[key] / median(a), mb[a], median(b), tokens[key] / median(b), mb[b],
            median(b) / median(a), mb[b] / mb[a] } }'
