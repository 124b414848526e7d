#!/bin/sh
# usage: tools/gpu_check.sh [--rehearse]: checks this library on an NVIDIA card and measures it
# there, in at most six minutes, on a machine with CUDA, gcc and make and nothing else
# (docs/cuda-check.md). Writes one JSON line for each result to gpu_check.jsonl in the folder
# GPU_CHECK_OUT (build-gpu/check), logs beside it, and a table at the end of the output. The exit code is 0 only if nothing failed and no part ran
# out of time.
#
# The most important parts come first. Each has a time limit, and a part after a failed one runs if
# it can:
#   build        the command and the tests, for this card only
#   conformance  each kernel on the card against the CPU's, and instructions against their meaning
#   verify       PyTorch's numbers in tests/golden, f32 and bf16
#   ranks        1, 2 and 4 ranks on the card: losses and norms are the same in every bit
#   options      two steps with each optimizer and dtype that has kernels of its own
#   bench        training steps of the shapes in tools/gpu_check/shapes, of T5 on real rows, and of
#                Llama in float8
#   torch        the same steps in PyTorch's FSDP2 (tools/bench_gpu.py)
#   kernels      which kernels two of the shapes run, and how long each takes
#   commands     train, resume, offload, profile and generate, as on the CPU
#   curve        50 steps of models/t5-debian-mini on the card and on the CPU
#   sanitizer    compute-sanitizer's four tools on the conformance tests
#
# From the environment: GPU_CHECK_PARTS to run, GPU_CHECK_SECONDS for all of them, GPU_CHECK_SHAPES,
# GPU_CHECK_FILES of tests, GPU_CHECK_CASES of tests/golden, GPU_CHECK_COMPILED=1 for compiled
# PyTorch, GPU_CHECK_FLOAT8 for the recipes of float8 that are measured with Llama (tensorwise);
# GPU_CHECK_OUT, BUILD, DEPS_DIR, PYTHON, CUDA_HOME.
#
# --rehearse, or REHEARSE=1, runs the same script on the emulated card of the tests, with the
# programs in BUILD (build), tiny shapes, and substitutes for compute-sanitizer and PyTorch.
# FSDP_DEVICE chooses another device.
rehearse=${REHEARSE:-0}
[ "${1:-}" != --rehearse ] || rehearse=1
cd "$(dirname "$0")/.." || exit 1
out=${GPU_CHECK_OUT:-build-gpu/check}
cuda=${CUDA_HOME:-/usr/local/cuda}
nvcc=$(ls "$cuda/bin/nvcc" 2>/dev/null || command -v nvcc)
[ -z "$nvcc" ] || [ -x "$cuda/bin/nvcc" ] || cuda=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
python=${PYTHON:-python3}
cores=$(nproc)
golden=tests/golden
# The shapes: name, folder, rows, tokens, target tokens, dropout, the bar and the aim in ms, and the
# bar for memory in MiB (0: none).
if [ "$rehearse" = 1 ]; then
    build=${BUILD:-build}
    fsdp=$build/fsdp-testing
    device=${FSDP_DEVICE:-cuda}
    model="$golden/t5_v1_0/model --from-config"
    rows_model=$golden/t5_v1_0/model
    curve_steps=4 bench_steps=4
    export EMU_DEVICES=1 # the emulator has two cards, of which this script uses one
    shapes="t5-base $golden/t5_v1_0/model 2 16 5 0.1 0 0 0
bert-base $golden/bert_tiny/model 2 8 0 0.1 0 0 0
gpt2 $golden/gpt2_tiny/model 2 8 0 0.1 0 0 0
llama $golden/llama3/model 2 12 0 0 0 0 0"
else
    build=${BUILD:-build-gpu}
    fsdp=$build/fsdp
    device=${FSDP_DEVICE:-cuda}
    model=models/t5-debian-mini
    folder=tools/gpu_check/shapes
    rows_model=$folder/t5-base
    curve_steps=50 bench_steps=12
    shapes="t5-base $folder/t5-base 16 512 150 0.1 31 27 0
bert-base $folder/bert-base 64 128 0 0.1 17 14 0
gpt2 $folder/gpt2 16 1024 0 0.1 44 36 0
llama-3.2-1b $folder/llama-3.2-1b 2 4096 0 0 160 150 32768
llama-8b-8-layers $folder/llama-8b-8-layers 2 4096 0 0 258 240 0"
fi
tests=$build/tests/cuda/tests
# All ranks share one card.
CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES%%,*}
FSDP_DEVICE=$device FSDP_TESTS=tests
export CUDA_VISIBLE_DEVICES FSDP_DEVICE FSDP_TESTS
. tools/gpu_check/results.sh
. tools/gpu_check/parts.sh
. tools/gpu_check/bench.sh
. tools/gpu_check/commands.sh

part_head() {
    begin head 10
    commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo "${GPU_CHECK_COMMIT:-unknown}")
    date=$(date -u +%Y-%m-%dT%H:%M:%SZ)
    figure_text date "$date"
    figure_text commit "$commit"
    if [ "$rehearse" = 1 ]; then
        card="emulated ($device)" driver=none
        figure rehearsal true
    else
        fields=name,driver_version,memory.total,power.limit,clocks.max.sm
        limited 10 nvidia-smi.log nvidia-smi -i "$CUDA_VISIBLE_DEVICES" --query-gpu=$fields \
            --format=csv,noheader
        judge nvidia-smi ||
            add_why "there must be a card here; --rehearse runs this on an emulated one"
        card=$(head -n 1 "$log" | cut -d , -f 1)
        driver=$(head -n 1 "$log" | cut -d , -s -f 2 | tr -d ' ')
        figure_text all "$(cat "$log")"
        figure_text cuda "$("$cuda"/bin/nvcc --version 2>/dev/null | grep release)"
    fi
    figure_text card "$card"
    figure_text driver "$driver"
    figure cores "$cores"
    summary="$card, driver $driver, commit $commit, $date, $cores cores"
    finish
}

part_head
[ "$status" = passed ] || exit 1
for name in ${GPU_CHECK_PARTS:-build conformance verify ranks options bench commands torch curve kernels sanitizer}; do
    case $name in
    build | conformance | verify | ranks | options | commands | curve | kernels | sanitizer | bench | torch) "part_$name" ;;
    *) begin "$name" 1; fail "no such part"; finish ;;
    esac
done

printf '\n%-20s %-8s %6s\n' part status seconds
cat "$out/table"
awk -f tools/gpu_check/table.awk "$out/gpu_check.jsonl"
bad=$(grep -cE '"status": "(failed|timeout)"' "$out/gpu_check.jsonl")
printf '\ngpu-check: %s results, %s failed or late, %s s; %s\n' \
    "$(grep -c . "$out/gpu_check.jsonl")" "$bad" "$(($(whole) - started))" "$out/gpu_check.jsonl"
[ "$bad" -eq 0 ]
