# Part of tools/gpu_check.sh: training steps, measured beside PyTorch's.

chosen_shapes() {
    echo "$shapes" | while read -r line; do
        case " ${GPU_CHECK_SHAPES:-${line%% *}} " in *" ${line%% *} "*) echo "$line" ;; esac
    done
}
# watch NAME: writes the card's clock, temperature and power every second, until unwatch
watch() {
    watcher=
    [ "$rehearse" = 1 ] && return
    nvidia-smi -i "$CUDA_VISIBLE_DEVICES" --format=csv -l 1 \
        --query-gpu=timestamp,clocks.sm,temperature.gpu,power.draw,memory.used >"$logs/$1-clocks.csv" 2>&1 &
    watcher=$!
}
unwatch() { [ -z "$watcher" ] || kill "$watcher" 2>/dev/null; }

# bench_figures BAR AIM MIB: from the JSON line in $line
bench_figures() {
    value() { echo "$line" | number "$1"; }
    step_ms=$(calc %.2f "$(value step_s) * 1000")
    figure step_ms "$step_ms"
    figure bar_ms "$1"
    figure aim_ms "$2"
    # On paper, an H100 multiplies at 989 TFLOP/s in bf16.
    figure of_989_tflops "$(calc %.3f "$(value step_gflop) / ($(value step_s) * 989000)")"
    for key in tok_per_s peak_allocated_mib peak_reserved_mib peak_host_mib first_step_after_s \
        first_loss last_loss; do
        figure $key "$(value $key)"
    done
    figure grad_norm "$(value grad_norm)"
    summary="$step_ms ms a step"
    [ -n "$(value grad_norm)" ] && [ -n "$(value last_loss)" ] ||
        fail "the loss or the norm of the gradients is not a number"
    [ "$1" = 0 ] || holds "$step_ms <= $1" || add_why "over the bar of $1 ms"
    [ "$3" = 0 ] || holds "$(value peak_allocated_mib) <= $3" || add_why "over the bar of $3 MiB"
    holds "$(value first_step_after_s) <= 3" || add_why "the first step ended after more than 3 s"
}
bench_shape() { # NAME FOLDER ROWS TOKENS TARGETS DROPOUT BAR AIM MIB [RECIPE of float8]
    begin "bench $1${10:+ ${10}}" 45
    target= float8=${10:+--float8-recipe ${10}}
    [ "$5" = 0 ] || target="--target $5"
    # shellcheck disable=SC2086
    limited 45 "bench-$1${10:+-${10}}.log" "$fsdp" bench train --shape "$2" --ranks 1 --dtype bf16 --batch "$3" \
        --seq "$4" $target $float8 --dropout "$6" --steps $bench_steps --json
    if judge "$1"; then
        line=$(grep '"step_s"' "$log" | tail -n 1)
        bench_figures "$7" "$8" "$9"
    fi
    finish
}
# Real rows have many lengths. The tutorial's script pads each to 512 and 150 tokens. Products and
# kernels that were not used before take more time, so the first sixth of the steps is reported apart.
bench_rows() {
    begin rows 45
    warm_up=$((2 * bench_steps))
    limited 45 rows.log "$fsdp" train --model "$rows_model" --from-config --data "$(rows)" \
        --batch-size 16 --max-steps $((6 * warm_up)) --param-dtype bf16 --dropout 0.1 \
        --max-grad-norm 1 --lr 0.0001 --no-save-model --metrics "$logs/rows.jsonl"
    if judge rows; then
        grep '"kind": "step"' "$logs/rows.jsonl" |
            sed 's/.*"seconds": \([0-9.e+-]*\).*/\1/' >"$out/rows.seconds"
        seconds=$(sed "1,${warm_up}d" "$out/rows.seconds" | awk '{ s += $1 } END { printf "%.6f", s / NR }')
        first=$(sed "1d;${warm_up}q" "$out/rows.seconds" | awk '{ s += $1 } END { printf "%.6f", s / NR }')
        figure samples_per_s "$(calc %.1f "16 / $seconds")"
        figure step_ms "$(calc %.2f "$seconds * 1000")"
        figure first_steps_ms "$(calc %.2f "$first * 1000")"
        summary="$(calc %.1f "16 / $seconds") samples/s of t5-base, 16 Debian descriptions a step"
    fi
    finish
}
part_bench() {
    if [ ! -x "$fsdp" ]; then
        begin bench 1
        has "$fsdp"
        finish
        return
    fi
    watch bench
    chosen_shapes >"$out/shapes"
    while read -r line; do
        # shellcheck disable=SC2086
        bench_shape $line </dev/null
    done <"$out/shapes"
    case " ${GPU_CHECK_SHAPES:-t5-base} " in *" t5-base "*) bench_rows ;; esac
    # The same steps of Llama with linear layers in float8. They have no bars.
    for recipe in ${GPU_CHECK_FLOAT8:-tensorwise}; do
        while read -r name folder rows tokens targets dropout _; do
            case $name in llama*)
                bench_shape "$name" "$folder" "$rows" "$tokens" "$targets" "$dropout" 0 0 0 "$recipe" </dev/null
                ;;
            esac
        done <"$out/shapes"
    done
    unwatch
}

# Which kernels two of the shapes run, and how long each takes: logs/kernels-*.txt.
part_kernels() {
    begin kernels 40
    chosen_shapes | grep -E '^(t5-base|llama-3.2-1b) ' >"$out/shapes"
    if [ ! -e "$kernels_library" ]; then
        skip "there is no $kernels_library: build makes it where CUDA has CUPTI"
    elif has "$fsdp"; then
        while read -r name folder rows tokens targets dropout _; do
            target=
            [ "$targets" = 0 ] || target="--target $targets"
            # shellcheck disable=SC2086
            CUDA_INJECTION64_PATH=$(realpath "$kernels_library") KERNELS_OUT=$logs/kernels-$name.txt \
                LD_LIBRARY_PATH=$cuda/lib64:$cuda/extras/CUPTI/lib64:${LD_LIBRARY_PATH:-} \
                limited 20 "kernels-$name.log" "$fsdp" bench train --shape "$folder" --ranks 1 --dtype bf16 \
                --batch "$rows" --seq "$tokens" $target --dropout "$dropout" --steps 8 --json </dev/null
            judge "$name" && summary="$summary${summary:+; }$name: $(head -n 1 "$logs/kernels-$name.txt")"
        done <"$out/shapes"
        figure_text last_300_ms "$summary"
    fi
    finish
}

# ours PART KEY: prints that figure of our result
ours() { grep "\"part\": \"$1\"" "$out/gpu_check.jsonl" | number "$2"; }
torch_figures() { # NAME; from the JSON line in $line
    theirs=$(echo "$line" | number step_s)
    if [ -z "$theirs" ]; then
        fail "$(echo "$line" | sed 's/.*"error": //')"
        return
    fi
    figure step_ms "$(calc %.2f "$theirs * 1000")"
    for key in peak_allocated_mib peak_reserved_mib first_step_after_s start_s first_loss; do
        figure $key "$(echo "$line" | number $key)"
    done
    own_ms=$(ours "bench $1" step_ms)
    own_mib=$(ours "bench $1" peak_allocated_mib)
    mib=$(echo "$line" | number peak_allocated_mib)
    [ -z "$own_ms" ] || figure times_ours "$(calc %.2f "$theirs * 1000 / $own_ms")"
    [ -z "$own_mib" ] || [ -z "$mib" ] ||
        figure our_part_of_its_memory "$(calc %.3f "$own_mib / $mib")"
    samples=$(ours rows samples_per_s)
    [ "$1" != t5-base ] || [ -z "$samples" ] ||
        figure our_real_rows_times_its_padded_rows "$(calc %.2f "$samples * $theirs / 16")"
    summary="$(calc %.2f "$theirs * 1000") ms a step"
}
# torch_lines HOW SECONDS [FLAG]: runs PyTorch on all shapes; each gives a result
torch_lines() {
    begin "torch $1" "$2"
    chosen_shapes >"$out/shapes"
    work=$(awk '{ printf "%s:%s:%s:%s ", $2, $3, $4, $5 }' "$out/shapes")
    pretend=
    [ "$rehearse" = 0 ] || pretend=--pretend
    watch "torch-$1"
    # shellcheck disable=SC2086
    START=$(date +%s.%N) limited "$2" "torch-$1.log" "$python" tools/bench_gpu.py $pretend ${3:-} \
        --steps $bench_steps $work
    unwatch
    judge "$1"
    summary="FSDP2, $(grep -c '"step_s"' "$log") of $(grep -c . "$out/shapes") shapes"
    finish
    lines=$(grep '^{' "$log")
    n=0
    while read -r name _; do
        n=$((n + 1))
        line=$(echo "$lines" | sed -n "${n}p")
        [ -n "$line" ] || continue
        begin "torch $1 $name" 1
        torch_figures "$name"
        finish
    done <"$out/shapes"
}
part_torch() {
    begin torch 30
    [ "$rehearse" = 1 ] || limited 30 import.log "$python" -c 'import torch, transformers'
    if [ "$rehearse" = 0 ] && [ "$rc" -ne 0 ]; then
        skip "$python has no torch and transformers"
        finish
        return
    fi
    torch_lines eager 110
    [ "${GPU_CHECK_COMPILED:-0}" = 0 ] || torch_lines compiled 240 --compile
}
