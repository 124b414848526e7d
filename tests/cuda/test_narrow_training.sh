#!/bin/sh
# Training on the emulated card with narrow states, Muon, Schedule-Free AdamW, NF4, DoRA and float8: the
# losses are near those of the CPU, and two ranks that share a card give the bits of one. Accesses of
# device memory by the host are checked (EMU_PROTECT), because these options exchange data with the
# host.
# usage: FSDP_BUILD=build tests/cuda/test_narrow_training.sh
FSDP_DEVICE=cuda
export FSDP_DEVICE
. "$(dirname "$0")/../cli/lib.sh"
case $("$fsdp" --version) in
*cuda:0*) ;;
*) skip narrow_training "this build has no device cuda"; tally; exit ;;
esac
model=$golden/llama2/model
awk 'BEGIN { srand(5); for (i = 0; i < 12; i++) { line = ""; for (k = 0; k < 9; k++)
    line = line (k ? ", " : "") int(3 + rand() * 80); printf "{\"input_ids\": [%s]}\n", line } }' >rows.jsonl

# trained RUN DEVICE RANKS FLAGS: trains two steps of four rows; the losses are in RUN.losses
trained() {
    to=$1 device=$2 ranks=$3
    shift 3
    run launch -n "$ranks" train --model "$model" --data rows.jsonl --batch-size 2 --lr 0.003 \
        --gradient-accumulation-steps $((2 / ranks)) --max-steps 2 --device "$device" --metrics "$to.jsonl" \
        --output "$to" --overwrite-output "$@"
    sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p' "$to.jsonl" >"$to.losses" 2>/dev/null
}
# near BOUND: the losses of `cpu` and `one` differ by at most BOUND, relatively
near() {
    paste cpu.losses one.losses | awk -v bound="$1" '{ d = $1 - $2; n += NF == 2
        if (d < 0) d = -d; if (d > bound * $1) bad = 1 } END { exit bad || n < 2 }'
}
# case NAME BOUND FILE FLAGS...: FILE is the saved file whose bits are compared
compare() {
    name=$1 bound=$2 file=$3
    shift 3
    trained cpu cpu 1 "$@"
    expect "${name}_trains_on_the_cpu" 0
    trained one cuda:0 1 "$@"
    expect "${name}_trains_on_a_card" 0
    if near "$bound"; then ok "${name}_has_the_losses_of_the_cpu"
    else bad "${name}_has_the_losses_of_the_cpu" "$(paste cpu.losses one.losses | tr '\n\t' '; ')"; fi
    trained two cuda:0 2 "$@"
    check "${name}_gives_the_same_bits_on_2_ranks" cmp "one/$file" "two/$file"
}
compare schedule_free 1e-5 model.safetensors --optimizer schedule_free_adamw
compare stochastic_rounding 1e-2 model.safetensors --bf16 --master-dtype bfloat16 --optimizer-state-dtype bfloat16 --bf16-stochastic-round
compare adamw_8bit 1e-4 model.safetensors --optimizer adamw_8bit
compare muon 1e-3 model.safetensors --optimizer muon
compare nf4_and_dora 1e-5 adapter_model.safetensors --load-in-4bit --bnb-4bit-use-double-quant --lora-r 4 --lora-target-modules all-linear --use-dora
compare float8 1e-2 model.safetensors --bf16 --float8-recipe tensorwise --float8-enable-fsdp-all-gather
# A card that does not multiply float8 codes multiplies their values.
EMU_CAPABILITY=80
export EMU_CAPABILITY
trained one cuda:0 1 --bf16 --float8-recipe tensorwise --float8-enable-fsdp-all-gather
unset EMU_CAPABILITY
check float8_on_an_older_card_has_the_losses_of_the_cpu near 1e-2
compare float8_rowwise 1e-2 model.safetensors --bf16 --float8-recipe rowwise

# --- plans ---
for flags in "--optimizer adamw_8bit" "--load-in-4bit --lora-r 2" "--optimizer muon"; do
    run plan --model "$model" --batch-size 2 --max-seq-length 9 --device cuda $flags
    expect "a_plan_for_a_card_knows_$(echo "${flags%% -*}" | tr -c 'a-z0-9\n' _)" 0
done
tally
