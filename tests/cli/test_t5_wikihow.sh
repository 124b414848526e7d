#!/bin/sh
# examples/t5_wikihow: the script of the T5/WikiHow tutorial, its flags, output lines and files.
# usage: FSDP_BUILD=build tests/cli/test_t5_wikihow.sh
. "$(dirname "$0")/lib.sh"
needs libcsv utf8proc
tokenizer=$root/data/tokenizers/t5

differs() { ! cmp -s "$1" "$2"; }
# script RANKS FLAGS...: runs the example, with float32 unless the flags say otherwise, because
# the default depends on the machine
script() {
    ranks=$1
    shift
    rm -f T5-model--*
    run launch --nnodes 1 --nproc_per_node "$ranks" "$build/examples/t5_wikihow" --model model \
        --mixed-precision fp32_policy "$@"
    losses >losses
    sed -n 's/^-->>>> New Val Loss Record: //p' out >records
}
# unsaved RANKS FLAGS...: the same without saving
unsaved() {
    ranks=$1
    shift
    script "$ranks" --no-save-model "$@"
}
losses() { sed -n 's/^Train Epoch: .*Loss: *//p; s/^Validation Loss: //p' "${1:-out}"; }
peaks() { sed -n 's/.*at most \([0-9.]*\) GiB.*/\1/p' out; }
sizes() { sed -n 's/^Size of .*: *//p' out | tr '\n' ' '; }
keep() { cp losses "$1"; cp records "$1.records"; }
# refused NAME TEXT: it must fail before training, with an error that contains TEXT
refused() {
    if [ "$rc" -eq 0 ]; then bad "$1" "it succeeded"
    elif ! grep -Eq -- "$2" err; then bad "$1" "stderr does not say '$2'"
    elif grep -q 'Training Epoch' err; then bad "$1" "after training began"
    else ok "$1"; fi
}

# --- data, and two models: one that learns, and one with large blocks ---
mkdir -p data sep tuned
# rows FIRST LAST: prints rows of wikihowAll.csv. All summaries have the same number of tokens, so
# the mean of means is the mean.
rows() {
    awk -v first="$1" -v last="$2" 'BEGIN { print "headline,title,text"
        split("red blue green black white old new", color, " ")
        split("car dog house door window table room", thing, " ")
        for (i = first; i <= last; i++) {
            what = color[1 + i % 7] " " thing[1 + int(i / 7)]
            printf "\"\nWash the %s.,\",How to wash a %s,\"Take \"\"soap\"\" and water, ", what, what
            printf "and then %d times more of it, for the %s...\n\n,\"\r\n", i, what } }'
}
rows 1 19 >data/wikihowAll.csv # a sixth, rounded up, is for validation: 15 and 4
tiny_t5 tiny 12 5 2 32 1 32100
tiny_t5 wide 12 5 2 4000 6 32100
# make_model CONFIG MODEL
make_model() {
    run train --model "$1" --from-config --tokenizer "$tokenizer" --data data/wikihowAll.csv \
        --max-train-samples 4 --output "$2" --max-steps 1 --lr 0
    check "a_model_is_made_of_$1" [ -e "$2/spiece.model" ]
}
make_model tiny model
make_model wide wide_model

# --- the output lines of T5_training.py ---
mask() { sed 's/[0-9][0-9-]*-[0-9]*-[0-9:]*_[AP]M/DATE/g; s/[0-9]*\.[0-9][0-9]*/#/g; s/[0-9]* s,/# s,/' "$1" | grep -v '^bf16_ready'; }
epoch() {
    printf 'Train Epoch: \t%d, Loss: \t#\nValidation Loss: #\n' "$1"
    echo "--> epoch $1 completed...entering save and stats zone"
    echo "memory allocated: # GiB, at most # GiB; reserved: # GiB"
    echo "completed save and stats zone..."
    echo "--> entering save model state"
    echo "--> saving model ..."
    echo "--> attempting to save model prefix -$1-#.pt"
    echo "--> saving as model name T5-model--DATE--$1-#.pt"
    echo "-->>>> New Val Loss Record: #"
}
{
    printf 'Size of train dataset:  (15, 2)\nSize of Validation dataset:  (4, 2)\n'
    echo "--> current date and time of run = DATE"
    epoch 1
    epoch 2
    echo '--> 2 epochs in # s, best validation loss #'
} >expected
script 2 --lr 0.01
keep two
mask out >masked
if cmp -s masked expected; then ok the_printed_lines; else bad the_printed_lines "$(diff expected masked | head -n 4)"; fi
check bf16_ready_is_reported grep -Eq '^bf16_ready: (True|False), the CPU has (no )?instructions.* bfloat16' out
check two_bars [ "$(grep -c '^r0 Training Epoch: 100%.* 2/2 ' err)$(grep -c '^Validation Epoch: 100%.* 1/1 ' err)" = 22 ]
# On a terminal, which script(1) provides; `script` is a function here.
typescript=$(unset -f script; command -v script)
if [ -z "$typescript" ]; then
    skip blue_trains_and_green_validates "script(1) is not here"
else
    words="--model model --no-save-model --mixed-precision fp32_policy --epochs 1"
    capture env TERM=xterm NO_COLOR= "$typescript" -qec \
        "$build/examples/t5_wikihow $words" /dev/null </dev/null
    escape=$(printf '\033')
    check blue_trains shows "r0 Training Epoch: 100%\\|$escape\\[34m[^|]*$escape\\[0m\\| 4/4 "
    check green_validates shows "Validation Epoch: 100%\\|$escape\\[32m[^|]*$escape\\[0m\\| 1/1 "
fi
check files_are_named_by_date_epoch_and_loss [ "$(ls | grep -Ec '^T5-model--[0-9]{4}-[0-9]{2}-[0-9]{2}-[01][0-9]:[0-9]{2}:[0-9]{2}_[AP]M--[12]-[0-9]+\.[0-9]{4}\.pt$')" -eq 2 ]
check the_loss_falls awk '{ loss[NR] = $1 } END { exit !(NR == 4 && loss[3] < loss[1] && loss[4] < loss[2]) }' losses

# --- the saved model is the trained one ---
cp model/config.json model/spiece.model tuned/
cp T5-model--*--2-*.pt tuned/pytorch_model.bin
run generate --model tuned --max-new-tokens 3 "Take soap"
check it_generates [ "$rc" -eq 0 ]
run checkpoint diff tuned/pytorch_model.bin model
check training_changes_them [ "$rc" -eq 1 ]
script 1 --epochs 1 --lr 0
# same_weights NAME FILE MODEL: except that torch.save stores a tied weight under all of its names
same_weights() {
    run checkpoint diff "$2" "$3"
    check "$1" [ "$(grep -v ': only in A$' out)" = '26 tensors and values of both compared, 3 differences' ]
}
same_weights a_saved_file_holds_the_weights_to_the_bit T5-model--*--1-*.pt model

# --- the same as fsdp train, on 1, 2 and 4 ranks: weights are bit for bit the same ---
rows 1 16 >train.csv
rows 17 20 >validation.csv
rows 1 20 >all.csv
for ranks in 1 2 4; do
    script $ranks --batch-size 2 --data-dir all.csv
    keep script.$ranks
    run launch -n $ranks train --model model --data train.csv --validation-data validation.csv \
        --task-prefix= --wikihow-cleaning --sampler distributed --loss-reduction mean-of-means --batch-size 2 \
        --output trained.$ranks
    losses >train.$ranks
    check "fsdp_train_has_the_same_losses_on_$ranks" cmp -s script.$ranks train.$ranks
    check "four_losses_on_$ranks" [ "$(wc -l <train.$ranks)" -eq 4 ]
    same_weights "and_the_same_weights_on_$ranks" T5-model--*--2-*.pt trained.$ranks
done

# --- strategies: the same losses, less memory ---
# strategy POLICY STRATEGY BOUND: the peak must be below BOUND and becomes the bound `last`
strategy() {
    unsaved 2 --model wide_model --epochs 1 --mixed-precision "$1" --sharding-strategy "$2"
    peak=$(peaks)
    keep "$2"
    check "less_memory_$1_$2" awk "BEGIN { exit !($peak > 0 && $peak < $3) }"
    last=$peak
    check "same_losses_$1_$2" cmp -s NO_SHARD "$2"
}
# In float16 units gather copies; in bfloat16 no unit does, whatever is resharded.
strategy fpSixteen NO_SHARD 9999
strategy fpSixteen SHARD_GRAD_OP "$last"
strategy fpSixteen FULL_SHARD "$last"
strategy bfSixteen NO_SHARD 9999
whole=$last
strategy bfSixteen SHARD_GRAD_OP "$whole"
strategy bfSixteen FULL_SHARD "$whole"
unsaved 2 --model wide_model --epochs 1 --mixed-precision bfSixteen --activation-checkpointing
check checkpointing_changes_no_loss cmp -s losses FULL_SHARD
check and_takes_less awk "BEGIN { exit !($(peaks) < $last) }"

# --- each flag has an effect ---
unsaved 1
keep one
# changes NAME FLAGS...: losses must differ from those without the flags, even if only in the
# record's last digits
changes() {
    name=$1
    shift
    unsaved 1 "$@"
    if [ "$rc" -ne 0 ]; then bad "$name" "exit code $rc"
    elif cmp -s losses one && cmp -s records one.records; then bad "$name" "the same losses"
    else ok "$name"; fi
}
changes batch_size --batch-size 3
changes lr --lr 0.01
changes gamma --gamma 0.1
changes seed --seed 2
changes epochs --epochs=1
changes bfSixteen --mixed_precision bfSixteen
changes grad_bf16 --mixed-precision grad_bf16
changes fpSixteen --mixed-precision fpSixteen
check float16_learns awk '{ loss[NR] = $1 } END { exit !(NR == 4 && loss[4] < loss[2]) }' losses
changes tutorial_loss --tutorial-loss
check it_counts_four_keys_a_batch awk 'NR == 1 { exit !($1 > 1 && $1 < 4) }' losses
unsaved 1 --test-batch-size 2 --backward-prefetch NO_PREFETCH --no-cuda
check neither_validation_batch_nor_prefetch_nor_no_cuda_change_a_loss cmp -s losses one
check but_the_bar grep -q '^Validation Epoch: 100%.* 2/2 ' err
script 1 --no-save_model --no-track-memory --epochs 1
check nothing_is_saved_nor_memory_tracked [ -z "$(ls T5-model--* 2>/dev/null)$(peaks)" ]
script 1 --no-run-validation --track_memory --save-model --epochs 1
check without_validation_nothing_is_saved [ -z "$(ls T5-model--* 2>/dev/null)$(grep 'Validation Loss' out)" ]
check and_a_warning_says_so grep -q 'warning: a model is saved when its validation loss improves' err
check a_bare_flag_is_on [ -n "$(peaks)" ]
check and_a_note_says_so [ "$(grep -c 'note: --\(track-memory\|save-model\) is on' out)" -eq 2 ]

# --- a CPU without bfloat16 ---
old() { FSDP_ISA=x86-64-v3 unsaved 1 --epochs 1 "$@"; }
old
keep slow
old --mixed-precision auto
check without_instructions_it_is_float32 grep -q '^bf16_ready: False' out
check as_fp32_policy_is cmp -s losses slow
old --mixed-precision bfSixteen
check bfloat16_is_warned_of grep -q 'warning: bfloat16 without such instructions is slow' err

# --- the other form, with WikiHow's lists; a file of another program; the cache of Hugging Face
# ---
awk 'BEGIN { print "overview,headline,text,sectionLabel,title"; for (i = 10; i < 22; i++)
    printf "An overview,Wash it %d.,Take soap and water and a good deal of it %d times.,Steps,How to %d\n", i, i, i }' >sep/wikihowSep.csv
unsaved 1 --data-dir sep --epochs 1
check wikihowSep [ "$(sizes)" = "(10, 2) (2, 2) " ]
keep sep.losses
{
    printf '\357\273\277id,text,headline\r\n'
    sed '1d; s/^An overview,\([^,]*\),\([^,]*\),.*/7,"\2",\1\r/' sep/wikihowSep.csv
} >stranger.csv
unsaved 1 --data-dir stranger.csv --epochs 1
check byte_order_mark_quotes_crlf_and_other_columns cmp -s losses sep.losses
seq -f 'Howto%g' 10 14 >sep/all_train.txt
printf 'Howto20\r\nHowto21\r\nHowto99\r\n' >sep/all_val.txt
unsaved 1 --data-dir sep --epochs 1
check the_lists_of_titles_say_what_is_trained_on [ "$(sizes)" = "(5, 2) (2, 2) " ]
printf 'headline,title,text\n1,2,3.5\n7,x,1000\n' >numbers.csv
unsaved 1 --data-dir numbers.csv --epochs 1
check cells_that_are_numbers_are_texts [ "$rc" -eq 0 ]
mkdir -p hf/hub/models--t5-base/snapshots hf/hub/models--t5-base/refs
cp -r model hf/hub/models--t5-base/snapshots/abc
printf abc >hf/hub/models--t5-base/refs/main
HF_HOME=$dir/hf run launch -n 1 "$build/examples/t5_wikihow" --no-save-model --mixed-precision fp32_policy
losses >losses
check t5_base_of_the_cache_is_the_default cmp -s losses one

# --- errors ---
# refuses NAME TEXT FLAGS...: must fail with TEXT
refuses() {
    name=$1 text=$2
    shift 2
    script 1 "$@"
    refused "$name" "$text"
}
refuses a_number_is_wanted "--lr: 'fast' is not allowed" --lr fast
refuses a_near_miss_is_suggested "unknown option '--epoch'; did you mean '--epochs'" --epoch 3
refuses strategies_are_listed 'FULL_SHARD, SHARD_GRAD_OP, NO_SHARD' --sharding-strategy HALF
refuses missing_data 'none: No such file or directory' --data-dir none
refuses an_empty_folder 'model: holds neither wikihowAll.csv nor wikihowSep.csv' --data-dir model
refuses a_missing_model "model 'none' is neither a directory nor" --model none
head -n 2 sep/wikihowSep.csv >one.csv
refuses too_few_rows 'one.csv: 1 row, which cannot be split' --data-dir one.csv
printf 'title,text\na,b\n' >no_headline.csv
refuses a_missing_column "no_headline.csv: line 1: no column 'headline'; the header has title, text" \
    --data-dir no_headline.csv
printf 'headline,title,text\na,b,c\n\na,"b\n' >open.csv
refuses an_open_quote 'open.csv: line 4: a quoted field is never closed' --data-dir open.csv
printf 'headline,title,text\na,b,c\na,b,\303(\n' >latin.csv
refuses no_utf8 'latin.csv: line 3: not UTF-8: byte 0xc3 at column 5' --data-dir latin.csv
rm sep/all_train.txt
refuses a_list_without_the_other 'all_train.txt: missing, though there is all_val.txt' --data-dir sep
rm model/spiece.model
script 2
refused a_missing_tokenizer 'spiece.model'
run launch -n 2 "$build/examples/t5_wikihow" --help
check help_is_printed_once [ "$(grep -c '^usage: t5_wikihow' out)" -eq 1 ]

tally
