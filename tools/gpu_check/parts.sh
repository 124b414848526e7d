# Part of tools/gpu_check.sh: the build, and what must be right.

# Only code for this card is compiled, because nvcc takes most of the time.
architecture() {
    capability=$(nvidia-smi -i "$CUDA_VISIBLE_DEVICES" --query-gpu=compute_cap \
        --format=csv,noheader 2>/dev/null | grep '^[0-9]*\.[0-9]$' | head -n 1 | tr -d .)
    [ "${capability:-90}" != 90 ] || capability=90a
    echo "-gencode=arch=compute_$capability,code=sm_$capability"
}
# make_arguments BUILD: prints them, one a line
make_arguments() {
    printf '%s\n' BUILD="$1" CUDA_TESTS=card OPT=-O2 CUDA_HOME="$cuda" ${DEPS_DIR:+DEPS_DIR="$DEPS_DIR"} \
        "$1/fsdp" "$1/tests/cuda/tests" "$1/tests/cuda/tests-alone"
}
# The program that compares instructions with their meaning. make builds it for the emulator only.
instructions=tests/cuda/programs/instructions
build_instructions() {
    [ -e $instructions.cu ] || return
    mkdir -p "$build/tests/cuda/programs"
    limited 120 build-instructions.log "$nvcc" -std=c++17 -O3 "$(architecture)" -I. -Iinclude \
        -o "$build/$instructions" $instructions.cu
}
# The library that lists kernels is built if CUDA has CUPTI.
kernels_library=$build/libkernels.so
build_kernels_library() {
    for folder in "$cuda" "$cuda/extras/CUPTI"; do
        [ ! -e "$folder/include/cupti.h" ] ||
            limited 20 build-kernels.log "${CC:-gcc}" -O2 -fPIC -shared -I"$cuda/include" \
                -I"$folder/include" -o "$kernels_library" tools/gpu_check/kernels.c \
                -L"$folder/lib64" -lcupti -lpthread
    done
}
part_build() {
    begin build 120
    # shellcheck disable=SC2046
    if [ "$rehearse" = 1 ]; then
        limited 60 build.log make -n CUDA_ARCHS="$(architecture)" $(make_arguments build-gpu)
        summary="what would be run"
    else
        summary="for $(architecture | sed 's/.*code=//')"
        # Its message says what is missing and how to get it.
        limited 20 deps.log make check-deps CUDA_HOME="$cuda" ${DEPS_DIR:+DEPS_DIR="$DEPS_DIR"}
        if [ -z "$nvcc" ]; then
            fail "there is no nvcc (CUDA_HOME)"
        elif ! judge "make check-deps"; then
            :
        elif ! grep -q 'built with device cuda' "$log"; then
            fail "$(grep '^cuda:' "$log")"
        else
            build_kernels_library
            build_instructions &
            limited 120 build.log make -j"$cores" CUDA_ARCHS="$(architecture)" \
                $(make_arguments "$build")
            wait $!
        fi
    fi
    if [ "$status" = passed ] && ! judge make; then
        add_why "$(grep -iE 'error[ :]|undefined reference' "$log" | head -n 3)"
    fi
    # The libraries that are loaded at run time.
    if [ "$rehearse" = 0 ] && [ "$status" = passed ]; then
        limited 20 env.log "$fsdp" env
        figure_text cublaslt "$(sed -n 's/^ *cublasLt *//p' "$log")"
        grep -q '^ *cublasLt *[0-9]' "$log" || fail "fsdp env: $(grep cublasLt "$log")"
    fi
    finish
}

# test_files: prints the names of the files of conformance tests
test_files() {
    # shellcheck disable=SC2086
    if [ -n "${GPU_CHECK_FILES:-}" ]; then printf '%s\n' $GPU_CHECK_FILES
    else "$tests" --list | cut -f 1 | sort -u | sed 's|.*/||; s|\.c$||'; fi
}
# count_tests: adds the counts in $log, which a program of tests has written
count_tests() {
    # shellcheck disable=SC2046
    set -- $(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1 | tr -cd '0-9 ')
    passed=$((passed + ${1:-0})) failed=$((failed + ${2:-0})) skipped=$((skipped + ${3:-0}))
}
# at_a_time: prints how many commands run at a time: as many as there are cores, but at most eight
at_a_time() { echo $((cores < 8 ? cores : 8)); }
# conformed FILE: runs the tests of a file, and leaves the exit code in a file
conformed() {
    limited 40 "conformance-$1.log" "$tests" --file "$1"
    echo $rc >"$log.rc"
}
part_conformance() {
    begin conformance 60
    passed=0 failed=0 skipped=0
    if has "$tests"; then
        n=0
        for file in $(test_files); do
            conformed "$file" &
            n=$((n + 1))
            [ $((n % $(at_a_time))) -ne 0 ] || wait
        done
        wait
        for file in $(test_files); do
            log=$logs/conformance-$file.log most=40
            rc=$(cat "$log.rc")
            count_tests
            if [ "$rc" -eq 1 ]; then fail "$file: $(grep '^FAIL' "$log" | head -n 3)"
            else judge "$file"; fi
        done
        if [ -e $instructions.cu ]; then
            limited 40 instructions.log "$build/$instructions"
            passed=$((passed + $(grep -c '^ok ' "$log")))
            failed=$((failed + $(grep -c '^FAIL ' "$log")))
            judge instructions
        fi
        [ "$passed" -gt 0 ] || [ "$status" != passed ] ||
            fail "no test ran: $(grep -h '^skip' "$log" | head -n 1)"
    fi
    figure passed $passed
    figure failed $failed
    figure skipped $skipped
    summary="$passed passed, $failed failed, $skipped skipped"
    finish
}

# count_quantities LOG...: adds the counts of lines of `fsdp verify --json`: of bf16, and all others
count_quantities() {
    for kind in ok failed 'not compared'; do
        key=$(echo "$kind" | tr ' ' _)
        all=$(grep -h "^{.*\"outcome\": \"$kind\"" "$@" | grep -c .)
        bf16=$(grep -h "^{.*\"outcome\": \"$kind\"" "$@" | grep -c '"quantity": "bf16')
        figure "f32_$key" $((all - bf16))
        figure "bf16_$key" "$bf16"
    done
}
verify_case() { # FOLDER RANKS
    name=$(basename "$1")
    limited 25 "verify-$name-$2.log" "$fsdp" launch -n "$2" verify --json "$1"
    echo $rc >"$log.rc"
}
judge_case() { # FOLDER RANKS
    name=$(basename "$1") log=$logs/verify-$(basename "$1")-$2.log most=25
    [ -e "$log" ] || return
    rc=$(cat "$log.rc")
    first=$(grep '"outcome": "failed"' "$log" | head -n 1 | sed 's/.*"quantity": //')
    if [ "$rc" = 1 ] && [ -n "$first" ]; then
        fail "$name, $2 ranks: $(grep -c '"outcome": "failed"' "$log") differ, first $first"
    else
        judge "$name, $2 ranks"
    fi
}
part_verify() {
    begin verify 60
    if has "$fsdp"; then
        n=0
        # Two ranks compare what PyTorch's two ranks wrote. Four folders at a time.
        for case in ${GPU_CHECK_CASES:-"$golden"/*/}; do
            verify_case "$case" 1 &
            [ "$rehearse" = 1 ] || ! ls "$case"/trajectory_*_w2.json >/dev/null 2>&1 ||
                verify_case "$case" 2 &
            n=$((n + 1))
            [ $((n % 4)) -ne 0 ] || wait
        done
        wait
        for case in ${GPU_CHECK_CASES:-"$golden"/*/}; do
            judge_case "$case" 1
            judge_case "$case" 2
        done
        count_quantities "$logs"/verify-*.log
        summary=$(echo "$figures" | tr -d '"')
    fi
    finish
}

# rows: prints the path of a file of token ids. The rehearsal's models have few.
rows() {
    [ "$rehearse" = 1 ] || { echo data/debian/tokens.jsonl; return; }
    awk 'BEGIN { for (i = 0; i < 48; i++) {
        printf "{\"input_ids\": [%d", 2 + i % 65
        for (k = 1; k < 3 + i * 7 % 19; k++) printf ", %d", 2 + (i * 31 + k * k * 7) % 65
        printf "], \"labels\": ["
        for (k = 0; k < 1 + i * 5 % 7; k++) printf "%d, ", 2 + (i + k * 3) % 65
        print "1]}" } }' >"$out/rows.jsonl"
    echo "$out/rows.jsonl"
}
# trained NAME DEVICE RANKS DTYPE STEPS: trains with sixteen rows a step in four micro-batches, and
# writes steps, losses and the norms of the gradients to NAME.losses
STEP='"step", "step": \([0-9]*\),.*"loss": \([^,]*\),.*"grad_norm": \([^,]*\),'
trained() {
    # shellcheck disable=SC2086
    FSDP_DEVICE=$2 limited 60 "$1.log" "$fsdp" launch -n "$3" train --model $model --data "$rows" \
        --batch-size 4 --gradient-accumulation-steps $((4 / $3)) --max-steps "$5" \
        --param-dtype "$4" --dropout 0.1 --lr 0.001 --max-grad-norm 1 --no-save-model \
        --metrics "$logs/$1.jsonl"
    sed -n "s/.*$STEP.*/\\1 \\2 \\3/p" "$logs/$1.jsonl" >"$logs/$1.losses" 2>/dev/null
    judge "$1"
}
# same_losses A B: fails, with the first difference, if they differ
same_losses() {
    cmp -s "$logs/$1.losses" "$logs/$2.losses" && return
    fail "$1 and $2 differ: $(diff "$logs/$1.losses" "$logs/$2.losses" |
        awk '/^</ && !l { l = $0 } /^>/ && !r { r = $0 } END { print "step, loss, norm", l, r }')"
}
part_ranks() {
    begin ranks 45
    if has "$fsdp"; then
        rows=$(rows)
        steps=6
        [ "$rehearse" != 1 ] || steps=2
        for dtype in float32 bfloat16; do
            trained "$dtype-1" "$device" 1 $dtype $steps || continue
            figure_text "last_loss_$dtype" "$(tail -n 1 "$logs/$dtype-1.losses" | cut -d ' ' -f 2)"
            for ranks in 2 4; do
                trained "$dtype-$ranks" "$device" $ranks $dtype $steps &&
                    same_losses "$dtype-1" "$dtype-$ranks"
            done
        done
        summary="1, 2 and 4 ranks, $steps steps"
    fi
    finish
}

# distance A B: prints the root of the mean square of the differences of two runs' losses
distance() {
    awk 'NR == FNR { loss[$1] = $2; next }
        $1 in loss { sum += ($2 - loss[$1]) ^ 2; n++ }
        END { printf "%.6g", n ? sqrt(sum / n) : 1e9 }' "$logs/$1.losses" "$logs/$2.losses"
}
# trained_with NAME DEVICE RANKS FLAGS: trains two steps of a tiny model with these flags, and writes
# losses and norms as trained() does
trained_with() {
    # shellcheck disable=SC2086
    FSDP_DEVICE=$2 limited 30 "$1.log" "$fsdp" launch -n "$3" train --model $golden/llama2/model \
        --data "$out/options.rows.jsonl" --batch-size 2 --gradient-accumulation-steps $((2 / $3)) \
        --max-steps 2 --lr 0.003 --max-grad-norm 1 --no-save-model --metrics "$logs/$1.jsonl" $4
    sed -n "s/.*$STEP.*/\\1 \\2 \\3/p" "$logs/$1.jsonl" >"$logs/$1.losses" 2>/dev/null
}
# Options with kernels of their own: optimizers, states of few bits, weights in NF4, float8.
part_options() {
    begin options 45
    if has "$fsdp"; then
        awk 'BEGIN { for (i = 0; i < 12; i++) { printf "{\"input_ids\": [%d", 3 + i
            for (k = 1; k < 9; k++) printf ", %d", 3 + (i * 31 + k * k * 7) % 80
            print "]}" } }' >"$out/options.rows.jsonl"
        n=0
        while read -r flags; do
            n=$((n + 1))
            trained_with options-$n-cpu cpu 1 "$flags" &
            trained_with options-$n-1 "$device" 1 "$flags" &
            trained_with options-$n-2 "$device" 2 "$flags" &
            wait
            for run in cpu 1 2; do
                [ "$(grep -c . "$logs/options-$n-$run.losses" 2>/dev/null)" = 2 ] ||
                    fail "$flags: $run: $(tail -n 1 "$logs/options-$n-$run.log")"
            done
            same_losses options-$n-1 options-$n-2
            far=$(distance options-$n-cpu options-$n-1)
            holds "$far <= 0.02" || fail "$flags: $far from the losses of the CPU"
        done <<END
--optimizer schedule_free_adamw
--optimizer adamw_8bit
--optimizer muon
--bf16 --master-dtype bfloat16 --optimizer-state-dtype bfloat16 --bf16-stochastic-round
--load-in-4bit --bnb-4bit-use-double-quant --lora-r 4 --lora-target-modules all-linear
--bf16 --float8-recipe tensorwise --float8-enable-fsdp-all-gather
--bf16 --float8-recipe rowwise
END
        figure sets_of_options $n
        summary="$n sets of options on 1 and 2 ranks"
    fi
    finish
}

# has_steps RUN...: notes the runs that have not made all steps
has_steps() {
    for run; do
        n=$(grep -c . "$logs/$run.losses" 2>/dev/null)
        [ "${n:-0}" -eq $curve_steps ] || late "$run: ${n:-0} of $curve_steps steps"
    done
}
part_curve() {
    begin curve 60
    if has "$fsdp"; then
        rows=$(rows)
        {
            trained cpu-f32 cpu 1 float32 $curve_steps
            trained cpu-bf16 cpu 1 bfloat16 $curve_steps
        } &
        trained card-f32 "$device" 1 float32 $curve_steps
        trained card-bf16 "$device" 1 bfloat16 $curve_steps
        wait $!
        has_steps cpu-f32 cpu-bf16 card-f32 card-bf16
        spread=$(distance cpu-f32 cpu-bf16)
        f32=$(distance cpu-f32 card-f32)
        bf16=$(distance cpu-f32 card-bf16)
        figure steps $curve_steps
        figure cpu_bf16_distance "$spread"
        figure f32_distance "$f32"
        figure bf16_distance "$bf16"
        # Rounding in bf16 is as good as random, so another run of it is as far away, more or less.
        holds "$bf16 <= 2 * $spread" || fail "bf16: more than twice the distance of the CPU's bf16"
        holds "$f32 <= 0.2 * $spread + 1e-5" || fail "f32: more than a fifth of it"
        summary="from the CPU's f32 losses: f32 $f32, bf16 $bf16 (the CPU's bf16: $spread)"
    fi
    finish
}

# sanitized TOOL FILE: leaves the exit code in a file. Every tensor is an allocation of its own, if
# there is a program for that.
sanitized() {
    program=$tests-alone
    [ -x "$program" ] || program=$tests
    limited 55 "$1-$2.log" "$sanitizer" --tool "$1" --error-exitcode 99 "$program" --file "$2"
    echo $rc >"$log.rc"
}
# tool_files TOOL: memcheck looks at every file; the other tools, which take longer, at those whose
# kernels have shared memory or partial sums
tool_files() {
    case $1 in
    memcheck) test_files ;;
    *) test_files | grep -E "^(${GPU_CHECK_FILES:+.*|}test_norm|test_loss|test_reduce|test_embedding|test_attention|test_narrow_states|test_nf4|test_float8)$" ;;
    esac
}
# sanitize_all TOOL: runs several files of tests at a time
sanitize_all() {
    clean=0 n=0
    for file in $(tool_files "$1"); do
        sanitized "$1" "$file" &
        n=$((n + 1))
        [ $((n % $(at_a_time))) -ne 0 ] || wait
    done
    wait
    for file in $(tool_files "$1"); do
        log=$logs/$1-$file.log
        rc=$(cat "$log.rc") most=55
        if [ "$rc" = 99 ]; then
            fail "$1, $file: $(grep -E '^=+ [A-Z]' "$log" | sed 's/^=* //' | sed -n '2p;$p')"
        elif judge "$1, $file"; then
            clean=$((clean + 1))
        fi
    done
    figure "$1_files" $n
    figure "$1_clean" $clean
    summary="$summary${summary:+, }$1 $clean of $n"
}
part_sanitizer() {
    begin sanitizer 120
    sanitizer=$(command -v compute-sanitizer || ls "$cuda"/bin/compute-sanitizer 2>/dev/null)
    if [ "$rehearse" = 1 ]; then
        sanitizer=$out/compute-sanitizer
        printf '#!/bin/sh\nshift 4\nexec "$@"\n' >"$sanitizer"
        chmod +x "$sanitizer"
    fi
    if [ -z "$sanitizer" ]; then
        skip "there is no compute-sanitizer"
    elif has "$tests"; then
        for tool in memcheck racecheck initcheck synccheck; do sanitize_all $tool; done
    fi
    finish
}
