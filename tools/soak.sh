#!/bin/sh
# usage: tools/soak.sh BUILD (`make soak`): training that saves after every step is interrupted
# SOAK_RUNS times (200), at random instants and in random ways: SIGKILL of all ranks or of one; a
# write, fsync or rename that fails; SIGKILL while an old checkpoint is removed (soak_fault.c); a
# full disk (a small tmpfs, if one can be mounted). After each interruption every folder
# checkpoint-N must be complete, and none that was reported as saved may be missing; `--resume
# auto` continues from the newest. Runs follow each other until their training has finished:
# losses and weights must then equal those of the uninterrupted training bit for bit. Every second
# run saves asynchronously if `fsdp train` can. SOAK_SEED=n repeats the choices, but not the
# instants; SOAK_KINDS="all one ..." uses only these ways; SOAK_STEPS=n makes a training shorter.
fsdp=${1:-build}/fsdp
case $fsdp in /*) ;; *) fsdp=$(pwd)/$fsdp ;; esac
here=$(cd "$(dirname "$0")" && pwd)
runs=${SOAK_RUNS:-200}
seed=${SOAK_SEED:-$(date +%s)}
[ -x "$fsdp" ] || { echo "$fsdp is not there: make builds it"; exit 1; }
dir=$(mktemp -d) || exit 1
pid=
mounted=
leave() {
    [ -z "$pid" ] || kill_session
    [ -z "$mounted" ] || umount "$dir/disk"
    rm -rf "$dir"
}
trap leave EXIT
trap 'exit 1' INT TERM
cd "$dir" || exit 1
mkdir tmp disk
TMPDIR=$dir/tmp
export TMPDIR

# --- a model, data, and the uninterrupted training ---
mkdir tiny
cat >tiny/config.json <<JSON
{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": true,
 "d_model": 24, "d_kv": 8, "num_heads": 3, "d_ff": 40, "num_layers": 2, "num_decoder_layers": 2,
 "vocab_size": 67, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20,
 "dropout_rate": 0.1, "layer_norm_epsilon": 1e-6, "initializer_factor": 1.0,
 "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0,
 "feed_forward_proj": "relu"}
JSON
awk 'BEGIN { for (i = 0; i < 40; i++) {
    printf "{\"input_ids\": [%d", 2 + i % 65
    for (k = 1; k < 3 + i * 7 % 19; k++) printf ", %d", 2 + (i * 31 + k * k * 7) % 65
    printf "], \"labels\": ["
    for (k = 0; k < 1 + i * 5 % 7; k++) printf "%d, ", 2 + (i + k * 3) % 65
    print "1]}" } }' >ids.jsonl
steps=${SOAK_STEPS:-60}
train="launch -n 2 train --model tiny --from-config --data ids.jsonl --output o --batch-size 4
    --max-steps $steps --epochs 100 --num-workers 0 --metrics m.jsonl --lr-schedule cosine"
numbers() {
    sed -n 's/.*"step", "step": \([0-9]*\), "epoch": \([0-9]*\), "loss": \([^,]*\),.*"grad_norm": \([^,]*\), "lr": \([^,]*\),.*/\1 \2 \3 \4 \5/p' "$1"
}
clock() { date +%s%N; } # nanoseconds
saving="--save-steps 1 --save-total-limit 3"
# shellcheck disable=SC2086
"$fsdp" $train >out 2>err || { cat err; echo "the uninterrupted training failed"; exit 1; }
numbers m.jsonl >whole.numbers
mv o/model.safetensors whole.safetensors
[ "$(wc -l <whole.numbers)" -eq $steps ] || { echo "the uninterrupted training lacks steps"; exit 1; }

# Measure how long the same training takes with its saves, and the size of a save.
begin=$(clock)
# shellcheck disable=SC2086
"$fsdp" $train $saving --checkpoint-dir ck --overwrite-output >out 2>err ||
    { cat err; echo "the training that saves failed"; exit 1; }
span=$(($(clock) - begin))
checkpoint_bytes=$(du -sb ck/checkpoint-$steps | cut -f 1)

# --- ways to interrupt a run ---
kinds=${SOAK_KINDS:-all one write fsync rename remove full}
without() { kinds=$(echo " $kinds " | sed "s/ $1 / /"); echo "left out: $1, since $2"; }
if grep -Eq '__(asan|tsan)_init' "$fsdp"; then
    for kind in write fsync rename remove; do without $kind "a sanitizer comes first in LD_PRELOAD"; done
elif ! ${CC:-cc} -O1 -shared -fPIC -o fault.so "$here/soak_fault.c" 2>err; then
    for kind in write fsync rename remove; do without $kind "${CC:-cc} cannot compile soak_fault.c"; done
fi
if mount -t tmpfs -o size=32m tmpfs disk 2>err; then mounted=1; else
    without full "no tmpfs can be mounted here"
fi
async=
"$fsdp" train --help async-save | grep -q 'async-save' && async=--async-save

# schedule: prints for each run its way and two random numbers below 1000
# shellcheck disable=SC2086
awk -v seed="$seed" -v runs="$runs" -v kinds="$kinds" 'BEGIN {
    srand(seed)
    n = split(kinds, kind, " ")
    for (i = 0; i < runs; i++)
        print kind[i < n ? i + 1 : 1 + int(n * rand())], int(1000 * rand()), int(1000 * rand())
}' >schedule
echo "$runs runs, seed $seed; a training of $steps steps, each with a save, takes $((span / 1000000)) ms"

count_all=0 count_one=0 count_write=0 count_fsync=0 count_rename=0 count_remove=0 count_full=0 count_async=0
ended=0 during=0 resumed=0 verified=0 lost=0 lost_most=0 broken=0 curves=0 failures=0
fail() {
    failures=$((failures + 1))
    echo "FAIL run $run ($kind): $1"
    tail -n 3 err | cut -c 1-300 | sed 's/^/    err: /'
}

# --- one run ---
session() { pgrep -s "$pid"; }
kill_session() {
    # shellcheck disable=SC2046
    kill -9 $(session) 2>/dev/null
    wait "$pid" 2>/dev/null
    while session >/dev/null; do sleep 0.01; done
    pid=
}
# Sleep for $1 / 1000 of a whole training, or until the run ends.
sleep_part() { sleep "$(awk -v part="$1" -v span="$span" 'BEGIN { print part * span / 1e12 }')"; }
# A rank of the run, not the launcher, chosen by $1 of 1000.
some_rank() { pgrep -P "$pid" | awk -v part="$1" '{ id[NR] = $1 } END { if (NR) print id[1 + int(part * NR / 1000)] }'; }
start() {
    [ -f m.jsonl ] || : >m.jsonl
    # shellcheck disable=SC2086
    setsid env $fault "$fsdp" $train $mode $saving --checkpoint-dir "$place" \
        --resume auto >out 2>err &
    pid=$!
}
# Wait until the run ends by itself; fails if that takes longer than a minute.
await() {
    tries=0
    while session >/dev/null && [ $tries -lt 3000 ]; do
        sleep 0.02
        tries=$((tries + 1))
    done
    [ $tries -lt 3000 ] || fail "it did not end by itself"
    wait "$pid"
    rc=$?
    kill_session
}
# Leave room on the small disk for a part of the next checkpoints. There are four while one is
# written, so with more room the run succeeds. $1 / 1000 is the part.
fill() {
    bytes=$(du -sb "$place" 2>/dev/null | cut -f 1)
    there=$(ls "$place" 2>/dev/null | wc -l)
    [ "$there" -gt 0 ] || { bytes=$checkpoint_bytes there=1; }
    room=$((bytes / there * (there < 3 ? 4 - there : 1) * $1 / 900))
    available=$(($(stat -f -c '%a * %S' disk)))
    head -c $((available - room)) /dev/zero >disk/filler
}
# break_off KIND A B: starts a run and interrupts it.
break_off() {
    fault=
    case $1 in
    write | fsync | rename | remove)
        code=5 # EIO
        [ "$1" = remove ] && code=0 # SIGKILL
        [ "$1" = write ] && [ $(($3 % 2)) -eq 0 ] && code=28 # ENOSPC
        most=60
        [ "$1" = fsync ] && most=200
        number=$((1 + $2 * most / 1000))
        [ "$1" = remove ] && number=$((2 + $2 * 3 / 1000)) # some of its files have been removed
        fault="LD_PRELOAD=$dir/fault.so SOAK_FAULT=$1:$number:$code"
        ;;
    full) fill "$2" ;;
    esac
    start
    case $1 in
    all)
        sleep_part "$2"
        rc=killed
        session >/dev/null || rc=
        [ -n "$rc" ] && kill_session || await
        ;;
    one)
        sleep_part "$2"
        victim=$(some_rank "$3")
        [ -z "$victim" ] || kill -9 "$victim" 2>/dev/null
        await
        ;;
    *) await ;;
    esac
    rm -f disk/filler
}
newest() { ls "$place" 2>/dev/null | sed -n 's/^checkpoint-\([0-9]*\)$/\1/p' | sort -n | tail -n 1; }
verify_left() {
    for path in "$place"/checkpoint-*; do
        case $path in *.* | *\*) continue ;; esac
        verified=$((verified + 1))
        "$fsdp" checkpoint verify "$path" >verify 2>&1 || fail "$(tail -n 2 verify | tr '\n' ' ')"
    done
}
# Check what an interruption left behind: complete checkpoints, none of them missing, and correct
# steps.
check_left() {
    if ls "$place" 2>/dev/null | grep -q '\.' || grep -q 'saving a checkpoint' err; then
        during=$((during + 1))
    fi
    verify_left
    said=$(sed -n 's/^--> saved .*checkpoint-\([0-9]*\) .*/\1/p' out | tail -n 1)
    at=$(newest)
    [ "${at:-0}" -ge "${said:-0}" ] || fail "checkpoint-$said was saved, and the newest is '$at'"
    [ "${at:-0}" -ge "$before" ] || fail "checkpoint-$before was there, and the newest is '$at'"
    numbers m.jsonl >now.numbers
    reached=$(wc -l <now.numbers)
    head -n "$reached" whole.numbers | cmp -s - now.numbers || fail "its losses are not those of the uninterrupted training"
    [ "$reached" -gt "${at:-0}" ] && gone=$((reached - ${at:-0})) || gone=0
    lost=$((lost + gone))
    [ $gone -le $lost_most ] || lost_most=$gone
    broken=$((broken + 1))
}
# Check that the run continued from the newest checkpoint. A run that was interrupted before it
# reported this is not checked.
check_resumed() {
    from=$(sed -n 's/^resuming from .*checkpoint-\([0-9]*\): step.*/\1/p' out)
    [ -z "$from" ] && [ "$rc" = 0 ] && [ "$before" -gt 0 ] && fail "it did not resume"
    [ -n "$from" ] || return
    resumed=$((resumed + 1))
    [ "$from" -eq "$before" ] || fail "it resumed from step $from, not from $before"
}
check_whole() {
    curves=$((curves + 1))
    verify_left
    numbers m.jsonl | cmp -s - whole.numbers || fail "the losses are not those of the uninterrupted training"
    cmp -s o/model.safetensors whole.safetensors || fail "the weights are not those of the uninterrupted training"
}
# Check that this error belongs to the way in which the run was interrupted.
check_error() {
    case $kind in
    one | remove) grep -Eq 'killed|signal|SIGKILL' err || fail "no word of the killed rank" ;;
    write | fsync | rename | full) grep -q 'checkpoint-' err || fail "the error names no checkpoint" ;;
    esac
}
start_over() {
    rm -rf o m.jsonl ck disk/*
    before=0
}

run=0
start_over
while read -r kind a b; do
    run=$((run + 1))
    mode=
    [ $((b / 2 % 2)) -eq 0 ] || mode=$async
    [ -z "$mode" ] || count_async=$((count_async + 1))
    # The folder moves to the small disk and back with its content.
    if [ "$kind" = full ]; then place=disk/ck; else place=ck; fi
    [ "$kind" = full ] && [ -d ck ] && rm -rf disk/ck && cp -r ck disk/ck
    [ $((run % 20)) -ne 1 ] || [ $run -eq 1 ] || echo "$((run - 1)) runs, $failures failures"
    break_off "$kind" "$a" "$b"
    eval "count_$kind=\$((count_$kind + 1))"
    check_resumed
    if [ "$rc" = 0 ]; then
        ended=$((ended + 1))
        check_whole
        start_over
        continue
    fi
    [ "$rc" = killed ] || check_error
    check_left
    [ "$kind" = full ] && rm -rf ck && [ -d disk/ck ] && cp -r disk/ck ck && rm -rf disk/ck
    before=$(place=ck newest)
    before=${before:-0}
done <schedule
# Finish the last training.
kind=last place=ck fault='' mode=
start
await
check_resumed
if [ "$rc" -eq 0 ]; then check_whole; else fail "it failed"; fi

row() { printf '%-44s %8s\n' "$1" "$2"; }
row "runs" "$runs"
row "  all ranks killed" $count_all
row "  one rank killed" $count_one
row "  a write failed" $count_write
row "  an fsync failed" $count_fsync
row "  a rename failed" $count_rename
row "  killed while an old checkpoint was removed" $count_remove
row "  the disk was full" $count_full
row "  with --async-save, of all these" $count_async
row "ended before they were broken" $ended
row "broken during a save" $during
row "resumed" $resumed
row "checkpoints verified" $verified
row "steps lost by a break, on average" "$(awk -v l=$lost -v n=$broken 'BEGIN { printf "%.2f", n ? l / n : 0 }')"
row "steps lost by a break, at most" $lost_most
row "trainings compared to their end" $curves
row "failures" $failures
[ $failures -eq 0 ]
