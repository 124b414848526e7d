#!/bin/sh
# `fsdp train --resume` from folders that Accelerate saved (fixtures/accelerate/llama.tar.gz, made
# by tools/check_accelerate.py --keep: a Llama after four steps on two ranks). The following steps
# must have Accelerate's own losses.
# usage: FSDP_BUILD=build tests/cli/test_accelerate.sh
. "$(dirname "$0")/lib.sh"
gzip -dc "$fixtures/accelerate/llama.tar.gz" | tar -xf - || exit 1

# train RANKS ARGUMENTS...: trains with twelve rows per step
train() {
    ranks=$1
    shift
    rm -f m.jsonl
    run launch -n "$ranks" train --model model --data rows.jsonl --no-save-model \
        --no-shuffle --batch-size $((12 / ranks)) --epochs 1 --max-steps 8 --lr 0.002 \
        --lr-schedule constant --num-workers 0 --metrics m.jsonl "$@"
}
losses() { sed -n 's/.*"kind": "step", "step": \([0-9]*\),.*"loss": \([^,]*\),.*/\1 \2/p' m.jsonl; }
tr -d '[],' <losses.json | tr ' ' '\n' | awk 'NF { print ++n, $1 }' >theirs
# Steps 5 to 8 must be within 2e-5 of Accelerate's losses.
continues() {
    [ "$rc" -eq 0 ] || return 1
    losses | awk 'NR == FNR { want[$1] = $2; next }
        { d = $2 - want[$1]; if ($1 != ++n + 4 || (d > 0 ? d : -d) > 2e-5 * want[$1]) bad = 1 }
        END { exit bad || n != 4 }' theirs -
}

for form in sharded full; do
    for ranks in 1 2 3; do
        train $ranks --resume $form
        check "${form}_folder_of_accelerate_continues_on_${ranks}_ranks" continues
    done
done
check the_step_is_what_the_optimizer_counted grep -q '^resuming from full: step 4 of 8$' out

# Our checkpoints with Accelerate's names, and with its names before 0.25.
train 2 --save-steps 4 --checkpoint-dir ours --checkpoint-format accelerate
for name in model optimizer; do
    case $name in model) folder=pytorch_model_fsdp_0 ;; *) folder=optimizer_0 ;; esac
    check "the_${name}_is_where_accelerate_looks" test -f ours/checkpoint-4/$folder/.metadata
done
check the_rest_too test -f ours/checkpoint-4/scheduler.bin -a -f ours/checkpoint-4/random_states_1.pkl
check no_scaler_without_scaling test ! -e ours/checkpoint-4/scaler.pt
rm ours/checkpoint-4/trainer_state.json
train 1 --resume ours/checkpoint-4
check ours_continues continues
train 2 --save-steps 4 --checkpoint-dir older --checkpoint-format accelerate-0.24
check older_names test -f older/checkpoint-4/pytorch_model_0/.metadata
rm older/checkpoint-4/trainer_state.json
train 1 --resume older/checkpoint-4
check older_names_continue continues
train 2 --save-steps 4 --checkpoint-dir fp16 --checkpoint-format accelerate --mixed-precision fp16
check a_scaler_with_scaling test -f fp16/checkpoint-4/scaler.pt
run_scale() { sed -n 's/^| scale *| \([0-9.]*\) *|$/\1/p' out; }
LC_ALL=C run checkpoint inspect fp16/checkpoint-4/scaler.pt
check its_scale_is_a_number test -n "$(run_scale)"

tally
