#!/bin/sh
# --report-to, --logging-dir, --with-tracking and --tracker-command of `fsdp train`, and `fsdp plot`
# of what they write. tools/check_tensorboard.py reads the event files with TensorBoard itself.
# usage: FSDP_BUILD=build tests/cli/test_tracking.sh
. "$(dirname "$0")/train.sh"

track() { # ARGUMENTS...: trains 3 steps on one rank, without --metrics
    rm -rf o
    run train --model tiny --from-config --data "${rows:-ids.jsonl}" --output o --max-steps 3 --batch-size 4 \
        --num-workers 0 "$@"
}
one() { set -- $1; [ $# -eq 1 ] && [ -e "$1" ]; } # GLOB: exactly one file has such a name

track --report_to all
check all_reports_succeed test $rc -eq 0
check the_folder_is_that_of_transformers one 'o/runs/*_*-*-*_*/events.out.tfevents.*'
check csv_is_in_it one 'o/runs/*/metrics.csv'
check json_lines_are_in_it one 'o/runs/*/metrics.jsonl'
check the_command_to_look_is_said shows '^to look at the run: tensorboard --logdir o/runs/'
check the_configuration_is_in_the_events grep -aq 'args/text_summary' o/runs/*/events*
check the_tags_are_those_of_transformers grep -aq 'train/learning_rate' o/runs/*/events*
check a_row_a_step test "$(grep -c '^step,' o/runs/*/metrics.csv)" -eq 3

track --report_to tensorboard --log-histograms 2
check histograms_of_each_unit_are_in_the_events [ "$(grep -aoE '(weights|gradients)/[a-z0-9._]*' o/runs/*/events* |
    sed 's/.*events[^:]*://' | sort | uniq -c | awk '{ print $1 }' | sort -u)" = 1 ]
check also_those_of_the_root grep -aq gradients/root o/runs/*/events*
cp o/model.safetensors with.safetensors
track --report_to tensorboard
check they_do_not_change_the_run cmp -s with.safetensors o/model.safetensors
check and_are_written_on_demand_only sh -c '! grep -aq weights/root o/runs/*/events*'
track --report_to csv --log-histograms 2
refused histograms_need_event_files '--log-histograms needs --report-to tensorboard'
track --report_to tensorboard,csv --logging_dir logs
check a_named_folder_is_used one 'logs/events.out.tfevents.*'
check only_what_is_named_is_written test ! -e logs/metrics.jsonl
cp logs/metrics.csv first.csv
track --report_to csv,json --logging_dir logs --seed 9
refused a_second_run_does_not_replace_the_rows_of_the_first \
    '--logging-dir: logs/metrics.csv has the rows of an earlier run: name another folder'
check they_are_as_they_were cmp -s first.csv logs/metrics.csv
track --report_to json --logging_dir logs --resume auto --save-steps 2
check a_run_that_continues_is_not_refused test $rc -eq 0
mv logs/metrics.csv logs/other.csv
track --report_to csv,json --logging_dir logs
refused nor_those_in_json_lines 'logs/metrics.jsonl has the rows of an earlier run'
check before_anything_is_written test ! -e logs/metrics.csv
track --report_to tensorboard --logging_dir logs
check event_files_are_added [ $rc -eq 0 -a "$(ls logs/events* | wc -l)" -eq 2 ]
FSDP_LAUNCH_ROUND=1 FSDP_LAUNCHER_PID=1
export FSDP_LAUNCH_ROUND FSDP_LAUNCHER_PID
track --report_to json --logging_dir logs
unset FSDP_LAUNCH_ROUND FSDP_LAUNCHER_PID
check a_run_that_is_restarted_writes_its_rows_again test $rc -eq 0
track --metrics m.jsonl
check new_rows_are_not_said_to_replace test $rc -eq 0 -a ! "$(grep earlier out)"
track --metrics m.jsonl
check a_named_file_is_replaced_and_it_is_said shows '^m.jsonl: its rows are those of an earlier run, and are'
rm -rf m.* logs
track --metrics m.jsonl --report_to json,csv --logging_dir logs
check metrics_takes_the_place_of_json_lines_and_it_is_said shows 'JSON lines of --report-to are in m.jsonl .--metrics.$'
check the_other_files_are_in_the_folder [ $rc -eq 0 -a "$(ls logs)" = metrics.csv ]
rm -rf m.* logs o-checkpoints
track --with_tracking --project_dir logs
check accelerates_words_mean_all test -e logs/metrics.csv -a -e logs/metrics.jsonl
rm -rf logs
track --with_tracking --log_with csv --project_dir logs
check log_with_chooses test -e logs/metrics.csv -a ! -e logs/metrics.jsonl
rm -rf logs
track --report_to none --logging_dir logs
expect none_writes_nothing 0 'logging-dir: needs --report-to'
check none_makes_no_folder test ! -e logs -a ! -e o/runs
TENSORBOARD_LOGGING_DIR=env_logs
export TENSORBOARD_LOGGING_DIR
track --report_to tensorboard
unset TENSORBOARD_LOGGING_DIR
check the_variable_of_transformers_counts one 'env_logs/events.out.tfevents.*'

# --- measures ---
printf 'text,label\na,0.5\nb,1.5\nc,2.5\n' >numbers.csv
mkdir bert
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' a b c >bert/vocab.txt
echo '{"model_type": "bert", "architectures": ["BertForSequenceClassification"], "vocab_size": 8, "hidden_size": 8,
    "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "max_position_embeddings": 8}' >bert/config.json
run train --model bert --from-config --data numbers.csv --validation-data numbers.csv --epochs 1 --no-save-model \
    --report-to csv --logging-dir logs
check csv_has_the_measures_of_a_regression \
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "mse") at = i } /^validation/ { found = $at != "" } END { exit !found }' \
    logs/metrics.csv
rm -rf logs

# --- arguments in any encoding ---
latin=$(printf 'caf\351')
cp ids.jsonl "$latin.jsonl"
rows=$latin.jsonl
track --run_name "$latin" --report_to tensorboard --tracker-command 'cat >rows.log'
check an_argument_that_is_not_utf8_is_reported test $rc -eq 0
check with_its_bytes_escaped grep -q '"run_name": *"caf..xE9"' rows.log
track --save-steps 2
check also_in_a_checkpoint test $rc -eq 0
rows=
rm -rf o-checkpoints

# --- outputs are checked before the model is read ---
: >a_file
early() { # NAME TEXT FLAGS...: the run is refused although the model does not exist
    name=$1 text=$2
    shift 2
    rm -rf o
    run train --model no_such_model --data ids.jsonl --output o "$@"
    refused "$name" "$text"
}
early a_folder_of_logs_is_no_file '--logging-dir: a_file: is a file' --report_to csv --logging_dir a_file
early nor_in_a_file '--logging-dir: a_file/b' --report_to csv --logging_dir a_file/b
early nor_where_nothing_can_be_written '--logging-dir: /proc/none' --report_to all --logging_dir /proc/none/b
early metrics_need_a_folder_that_can_be_made '--metrics: /proc/none: ' --metrics /proc/none/m.jsonl
early nor_is_a_file_a_folder '--metrics a_file/m.jsonl: Not a directory' --metrics a_file/m.jsonl
early and_are_no_folder '--metrics tmp: Is a directory' --metrics tmp
early a_profile_needs_a_folder '--profile: /proc/none: ' --profile /proc/none/p.json
early a_plot_too '--plot: /proc/none: ' --metrics m.jsonl --plot /proc/none/p.png
early a_folder_is_not_made_before_the_run "model 'no_such_model'" --metrics none/m.jsonl --profile none/p.json --plot none/p.png
early without_logs_the_model_is_missed "model 'no_such_model'" --logging_dir a_file
check no_probe_is_left test ! -e none -a -z "$(ls -a | grep -e probe -e '^m.jsonl$')"

# --- what is refused ---
track --report_to wandb
refused a_service_is_named_with_the_way_out '--report-to wandb: .*--tracker-command'
track --report_to tensorbord
refused a_wrong_name_gets_the_nearest 'tensorbord.*did you mean tensorboard'
track --report_to none,csv
refused none_with_others_is_a_contradiction 'none contradicts'

# --- a program ---
track --report_to wandb --run-name first --project words --tracker-command 'cat >lines'
check a_program_gets_the_rows test "$(grep -c '"kind": "step"' lines)" -eq 3
check it_gets_the_options_first sh -c 'head -n 1 lines | grep -q "\"run_name\": \"first\", \"project\": \"words\".*\"batch-size\": \"4\""'
check the_last_row_is_the_summary sh -c 'tail -n 1 lines | grep -q "\"kind\": \"summary\""'
track --tracker-command 'exit 3'
expect its_death_is_said_but_ends_nothing 0 'tracker-command: the program ended with exit code 3'
track --tracker-command 'no-such-program'
expect a_missing_program_is_said 0 'exit code 127'

# --- a resumed run ---
rm -rf p p-checkpoints
resumable() {
    run train --model tiny --from-config --data ids.jsonl --output p --batch-size 4 --num-workers 0 \
        --report_to all --save-steps 2 --max-steps "$@"
}
resumable 3 --logging_dir named
resumable 5 --logging_dir named --resume
check a_named_folder_has_each_step_once \
    test $rc -eq 0 -a "$(grep '^step,' named/metrics.csv | cut -d, -f2 | tr '\n' ' ')" = "1 2 3 4 5 "
rm -rf p p-checkpoints
resumable 5
check before_resuming test $rc -eq 0
resumable 7 --resume p-checkpoints/checkpoint-4 --overwrite-output
check resuming test $rc -eq 0
check it_goes_on_in_the_same_folder one 'p/runs/*'
check each_step_is_in_csv_once test "$(grep '^step,' p/runs/*/metrics.csv | cut -d, -f2 | tr '\n' ' ')" = "1 2 3 4 5 6 7 "
set -- p/runs/*/events*
check events_continue_in_a_second_file test $# -eq 2

# --- numbers ---
track --report_to all --logging_dir both
cp both/metrics.jsonl lines.jsonl
cp both/metrics.csv rows.csv
mkdir events_only
cp both/events* events_only
run compare lines.jsonl rows.csv both --same-losses
check csv_has_the_losses_of_json_lines shows '^lines and rows: the losses of all 3 common steps are the same in every bit$'
check a_folder_is_a_run shows '^lines and both: the losses of all 3 common steps are the same in every bit$'
run compare lines.jsonl events_only --same-losses
check event_files_too_as_float32 shows '^lines and events_only: .* all 3 common steps are the same in every bit, as float32$'
train_loss() { awk -v run="$1" '$2 == run && $4 == 3 { print $6 }' out; }
check their_end_is_read [ "$(train_loss lines)" = "$(train_loss events_only)" -a -n "$(train_loss lines | grep -x '[0-9.]*')" ]
check only_json_lines_have_the_memory_of_ranks [ "$(grep -c 'events_only' out)" -eq 2 ]
run compare rows.csv rows.csv
check without_memory_there_is_one_table test $rc -eq 0 -a "$(grep -c 'peak memory' out)" -eq 0
sed '3s/^\(step,[0-9]*,[0-9]*\),[^,]*/\1,9.5/' rows.csv >other.csv
run compare both/metrics.csv other.csv --same-losses
check another_loss_is_found test $rc -eq 1 -a "$(grep -c 'losses of 1 of 3 common steps differ, from step 2 on' out)" -eq 1
printf 'text,label\na,1\n' >data.csv
run compare data.csv
expect other_csv_files_are_named 1 'data.csv:1: not a CSV file of metrics'

# --- pictures ---
if lacks cairo; then
    skip a_picture_of_events "built without cairo"
else
    rm -f p/runs/*/metrics.jsonl
    run plot p tiny -o both.svg
    expect a_folder_without_events_is_refused 1 'no event files'
    track --report_to tensorboard
    run plot p o -o both.svg
    check runs_are_compared_from_their_event_files grep -q '<svg' both.svg
    run plot rows.csv both/metrics.csv -o csv.svg
    check csv_is_drawn_too grep -q '<svg' csv.svg
    run plot rows.csv -o rows.csv
    check a_file_of_rows_is_no_picture says 'rows.csv: that is the name of a metrics file'
    run plot p/runs/*/events* -o events.png
    check an_event_file_is_drawn sh -c 'head -c 8 events.png | grep -aq PNG'
fi
tally
