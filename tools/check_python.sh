#!/bin/sh
# usage: tools/check_python.sh BUILD PYTHON [DATA] [FILTER]: runs the checks against PyTorch, Hugging
# Face and other packages, tools/check_*.py, with PYTHON, which has PyTorch. A line for each says
# that it passed, failed, or was skipped and why; its output is in BUILD/check-python/NAME.log. The
# exit code is not 0 if one failed. `make check-python` builds what they need, and calls this.
#
# DATA is a folder with tokenizers/, vectors/, text/ and mrpc/, which some checks need, because these
# files are not in the repository. FILTER is a substring of a check's name. A script that is not
# listed below is run without arguments. CHECK_COUNT is the number of random cases of the longest ones.
build=$1 python=$2 data=$3 filter=$4
"$python" -c 'import torch' 2>/dev/null || {
    echo "check-python: no PyTorch in $python; name a virtual environment that has it: VENV=DIR" >&2
    exit 1
}
logs=$build/check-python
mkdir -p "$logs"
passed=0 failed=0 skipped=0
skip() { skipped=$((skipped + 1)); echo "skip $1: $2"; }

# run NAME ARGUMENTS...: runs tools/check_NAME.py
run() {
    name=$1
    shift
    log=$logs/$name.log
    start=$(date +%s)
    PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 timeout "${CHECK_TIMEOUT:-3600}" "$python" "tools/check_$name.py" "$@" >"$log" 2>&1
    rc=$?
    seconds=$(($(date +%s) - start))
    missing=$(sed -n "s/^ModuleNotFoundError: No module named '\([^']*\)'.*/\1/p" "$log" | tail -n 1)
    if [ $rc -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok $name ($seconds s): $(tail -n 1 "$log")"
    elif [ $rc -eq 77 ]; then
        skip "$name" "$(tail -n 1 "$log")"
    elif [ -n "$missing" ] && [ ! -e "tools/$missing.py" ]; then
        skip "$name" "no Python package $missing"
    else
        failed=$((failed + 1))
        [ $rc -ne 124 ] || echo "not ended after ${CHECK_TIMEOUT:-3600} s" >>"$log"
        echo "FAIL $name ($seconds s), exit code $rc; the end of $log:"
        tail -n 15 "$log" | sed 's/^/    /'
    fi
}
# with_data NAME FOLDER ARGUMENTS...: the same, if DATA has the folder
with_data() {
    name=$1 folder=$2
    shift 2
    if [ -n "$data" ] && [ -d "$data/$folder" ]; then run "$name" "$@"; else
        skip "$name" "needs files that are not in the repository: DATA=DIR with $folder/"
    fi
}

for script in tools/check_*.py; do
    name=${script#tools/check_}
    name=${name%.py}
    case $name in *"$filter"*) ;; *) continue ;; esac
    case $name in
    accelerate | bitsandbytes | dcp | float8 | hf | peft | tensorboard) run "$name" --fsdp "$build/fsdp" ;;
    arrow) run arrow --rows "$build/tools/arrow_rows" ;;
    chat) run chat --build "$build" --count "${CHECK_COUNT:-4000}" ${CHECK_TEMPLATES:+--templates "$CHECK_TEMPLATES"} ;;
    formats)
        # The other fixtures are odd on purpose: files that are refused here, and that Python reads.
        run formats tests/golden tests/fixtures/accelerate tests/fixtures/dcp/boxes tests/fixtures/dcp/empty \
            tests/fixtures/dcp/hand tests/fixtures/dcp/objects --fsdp "$build/fsdp" ;;
    llama_job) run llama_job --build "$build" --text data/debian/train.csv ;; # its tokens are bytes of any text
    nlp_example) with_data nlp_example mrpc --build "$build" --train "$data/mrpc/train.csv" --validation "$data/mrpc/dev.csv" ;;
    token_models)
        if [ -d "$data/tokenizers" ]; then run token_models --build "$build" --data "$data/tokenizers"
        else run token_models --build "$build"; fi ;;
    tokenize) with_data tokenize text "$build/fsdp" "$data/tokenizers/gpt2" "$data/text/tinyshakespeare.txt" ;;
    tokenizers) with_data tokenizers vectors --program "$build/bench/tokenizer" --strings "${CHECK_COUNT:-4000}" "$data" ;;
    *) run "$name" ;;
    esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
