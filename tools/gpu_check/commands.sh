# Part of tools/gpu_check.sh: commands as a user types them, on the card and on the CPU.

# typed NAME DEVICE FLAGS...: trains six steps in float32, or as FLAGS say, and writes NAME.losses
typed() {
    run=$1 on=$2
    shift 2
    # shellcheck disable=SC2086
    FSDP_DEVICE=$on limited 25 "$run.log" "$fsdp" train --model $model --data "$rows" --batch-size 4 \
        --max-steps "$typed_steps" --dropout 0.1 --lr 0.001 --max-grad-norm 1 --param-dtype float32 \
        --metrics "$logs/$run.jsonl" "$@"
    sed -n "s/.*$STEP.*/\\1 \\2 \\3/p" "$logs/$run.jsonl" >"$logs/$run.losses" 2>/dev/null
    judge "$run"
}
# near A B MOST: the losses of steps that both runs have made differ by at most MOST
near() {
    apart=$(distance "$1" "$2")
    holds "$apart <= $3" || fail "$2 and $1: losses differ by $apart, more than $3"
}
# same_answers NAME COMMAND...: the command writes the same on the card and on the CPU
same_answers() {
    run=$1
    shift
    for on in "$device" cpu; do
        FSDP_DEVICE=$on limited 25 "$run-$on.log" "$@"
        judge "$run on $on" || return
        grep -v 'note: device' "$log" >"$logs/$run-$on.answers"
    done
    cmp -s "$logs/$run-$device.answers" "$logs/$run-cpu.answers" ||
        fail "$run: $device and cpu differ: $(diff "$logs/$run-$device.answers" \
            "$logs/$run-cpu.answers" | sed -n '2p;$p' | cut -c -60)"
}

checkpoints() {
    half=$((typed_steps / 2))
    typed saved "$device" --save-steps $half --save-total-limit 0 --output "$out/typed" || return
    for on in "$device" cpu; do
        typed "resumed-$on" "$on" --output "$out/typed-again" --no-save-model \
            --resume "$out/typed-checkpoints/checkpoint-$half" --checkpoint-dir "$out/typed-$on" || return
    done
    same_losses_from $((half + 1)) saved "resumed-$device"
    near saved resumed-cpu 0.0005
}
# same_losses_from STEP A B: same_losses, for the steps from STEP on
same_losses_from() {
    awk -v first="$1" '$1 >= first' "$logs/$2.losses" >"$logs/$2-end.losses"
    cp "$logs/$3.losses" "$logs/$3-end.losses"
    same_losses "$2-end" "$3-end"
}

part_commands() {
    begin commands 90
    typed_steps=6
    [ "$rehearse" != 1 ] || typed_steps=2
    if has "$fsdp"; then
        rows=$(rows)
        rm -rf "$out"/typed*
        checkpoints
        typed offloaded "$device" --no-save-model --cpu-offload && near saved offloaded 0.0005
        if [ "$rehearse" != 1 ]; then
            typed checkpointed "$device" --no-save-model --activation-checkpointing &&
                near saved checkpointed 0.00001
            typed stashed "$device" --no-save-model --activation-checkpointing --activation-offload \
                --offload-dir "$out/typed-stash" && near saved stashed 0.00001
            typed half "$device" --no-save-model --param-dtype float16 && near saved half 0.01
            typed lora "$device" --no-save-model --lora-r 8 &&
                typed lora-cpu cpu --no-save-model --lora-r 8 && near lora-cpu lora 0.0005
            FSDP_DEVICE=$device limited 25 missing.log "$fsdp" bench train --ranks 1 --dtype bf16 \
                --shape tools/gpu_check/shapes/llama-8b-8-layers --batch 64 --seq 8192 --steps 2
            grep -q 'GiB are free' "$log" || fail "missing memory: exit code $rc: $(tail -n 1 "$log")"
            limited 25 limit.log "$fsdp" train --model $model --data "$rows" --batch-size 4 \
                --max-steps 2 --no-save-model --memory-limit 40M
            grep -q 'memory-limit 40.00 MiB' "$log" || fail "limit: $(tail -n 1 "$log")"
        fi
        typed profiled "$device" --no-save-model --profile "$out/trace.json" &&
            { grep -q '"name":"device"' "$out/trace.json" || fail "the trace has no track of the card"; }
        sed -n '3,6s/, *"labels".*/}/p' "$rows" >"$out/prompts.jsonl"
        for beams in 1 3; do
            same_answers "generate, $beams beams" "$fsdp" generate --model "$out/typed" \
                --input-ids "$out/prompts.jsonl" --num-beams $beams --max-new-tokens 12
        done
        summary="checkpoints, offloading, profile and generation as on the CPU"
    fi
    finish
}
