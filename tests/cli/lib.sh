# Shared by the scripts in this folder. Each begins with `. "$(dirname "$0")/lib.sh"`, which makes
# a folder for the script, $dir, and changes to it. Each ends with `tally`.
#   $fsdp, $build       the program (the testing one if FSDP_DEVICE is fake or cuda) and its build folder (FSDP_BUILD, or build)
#   $root               the repository, with $golden and $fixtures of its tests
#   $rc                 the exit code of the last command; its output is in $dir/out and $dir/err
build=${FSDP_BUILD:-build}
case $build in /*) ;; *) build=$(pwd)/$build ;; esac
fsdp=$build/fsdp
# Only the testing build has the fake device and the emulator of CUDA.
case ${FSDP_DEVICE:-} in fake | cuda*) [ ! -e "$build/fsdp-testing" ] || fsdp=$build/fsdp-testing ;; esac
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
golden=$root/tests/golden fixtures=$root/tests/fixtures
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
# fontconfig, which `fsdp plot` uses, keeps memory that LeakSanitizer reports as leaks.
echo leak:libfontconfig >.lsan.supp
LSAN_OPTIONS=suppressions=$dir/.lsan.supp:print_suppressions=0
export LSAN_OPTIONS
# `fsdp launch` must not read the user's own default_config.yaml of Accelerate.
[ -n "${HF_HUB_CACHE:-}" ] || [ -z "${HF_HOME:-}" ] || export HF_HUB_CACHE="$HF_HOME/hub"
export HF_HOME="$dir/hf"
passed=0 failed=0 skipped=0 rc=0

# excerpt FILE: prints its first and last lines, if it exists
excerpt() {
    { head -n 6 "$dir/$1"; tail -n +7 "$dir/$1" | tail -n 6; } 2>/dev/null |
        cut -c 1-300 | sed "s/^/    $1: /"
}
ok() { passed=$((passed + 1)); echo "ok $1"; }
# bad NAME REASON
bad() {
    failed=$((failed + 1))
    echo "FAIL $1: $2"
    for file in out err m.jsonl; do excerpt $file; done
}
# skip NAME REASON
skip() { skipped=$((skipped + 1)); echo "skip $1: $2"; }
lacks() { "$fsdp" --version | grep -q "^ *$1 *not found when built"; }
# needs LIBRARY...: skips this whole script if the build lacks one of them
needs() {
    for library; do
        lacks "$library" || continue
        skip "$(basename "$0" .sh)" "built without $library"
        tally
        exit
    done
}
# check NAME COMMAND...: the command must succeed
check() {
    name=$1
    shift
    if "$@"; then ok "$name"; else bad "$name" "exit code $rc, not: $*"; fi
}
# expect NAME RC [TEXT [FILE]]: checks the exit code, and that TEXT (extended regular expression)
# is on stderr or in FILE (out)
expect() {
    if [ "$rc" -ne "$2" ]; then bad "$1" "exit code $rc, not $2"
    elif [ -n "${3:-}" ] && ! grep -Eq -- "$3" "$dir/${4:-err}"; then bad "$1" "no '$3' in ${4:-err}"
    else ok "$1"; fi
}
# capture COMMAND...: sets $rc and saves the output; no command here takes two minutes
capture() {
    timeout -s KILL 120 "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
# run ARGUMENTS...: runs fsdp
run() { capture "$fsdp" "$@"; }
# fails_on_a_full_disk NAME ARGUMENTS...: runs fsdp with its output on a full device
fails_on_a_full_disk() {
    name=$1
    shift
    timeout -s KILL 120 "$fsdp" "$@" >/dev/full 2>"$dir/err"
    rc=$?
    : >"$dir/out"
    expect "$name" 1 'No space left on device|standard output'
}
shows() { grep -Eq -- "$1" "$dir/out"; }
says() { grep -Eq -- "$1" "$dir/err"; }
# tiny_t5 DIR D_MODEL D_KV HEADS D_FF LAYERS VOCABULARY [MORE]: writes DIR/config.json of such a
# T5, with LAYERS encoder and LAYERS decoder layers and MORE (", KEY: VALUE...") at the end
tiny_t5() {
    mkdir -p "$1"
    cat >"$1/config.json" <<JSON
{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": true,
 "d_model": $2, "d_kv": $3, "num_heads": $4, "d_ff": $5, "num_layers": $6, "num_decoder_layers": $6,
 "vocab_size": $7, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20,
 "dropout_rate": 0.1, "layer_norm_epsilon": 1e-6, "initializer_factor": 1.0,
 "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0${8:-}}
JSON
}
# tiny_llama DIR, tiny_bert DIR: write DIR/config.json of such a model with 2 layers of width 21
# and a vocabulary of 67
tiny_llama() {
    mkdir -p "$1"
    cat >"$1/config.json" <<JSON
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 67, "hidden_size": 21,
 "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
 "head_dim": 6, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
 "hidden_act": "silu", "initializer_range": 0.02, "tie_word_embeddings": false, "bos_token_id": 1,
 "eos_token_id": 2}
JSON
}
tiny_bert() {
    mkdir -p "$1"
    cat >"$1/config.json" <<JSON
{"model_type": "bert", "architectures": ["BertForSequenceClassification"], "vocab_size": 67,
 "hidden_size": 21, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 3,
 "max_position_embeddings": 40, "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
 "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.2,
 "pad_token_id": 0, "id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 0, "yes": 1}}
JSON
}
# id_rows N: prints N lines of token ids and labels below 67, of many lengths
id_rows() {
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) {
        printf "{\"input_ids\": [%d", 2 + i % 65
        for (k = 1; k < 3 + i * 7 % 19; k++) printf ", %d", 2 + (i * 31 + k * k * 7) % 65
        printf "], \"labels\": ["
        for (k = 0; k < 1 + i * 5 % 7; k++) printf "%d, ", 2 + (i + k * 3) % 65
        print "1]}" } }'
}
# number KEY [N]: prints the n-th value of that key in the JSON in out
number() {
    tr ',{' '\n\n' <"$dir/out" | sed -n 's/.*"'"$1"'": \([-0-9.e+]*\).*/\1/p' | sed -n "${2:-1}p"
}
# Under sanitizers, limits on time and memory do not apply.
sanitized() { grep -Eq '__(asan|tsan)_init' "$fsdp"; }
tally() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}
