#!/bin/sh
# usage: tools/plan_states.sh [BUILD]: print the table of docs/plan.md that shows what narrow
# optimizer states and weights, activation checkpointing and LoRA save, for three sizes of models on
# 1, 2 and 8 ranks. Each figure is from a plan (`fsdp plan --json`), so no weights are needed.
cd "$(dirname "$0")/.." || exit 2
fsdp=${1:-build}/fsdp

# row NAME FLAG...: print the bytes at the peak of one rank, in GiB, by purpose
row() {
    name=$1
    shift
    printf '| %s | %s | `%s` |' "$model" "$ranks" "${name:-as given}"
    "$fsdp" plan --model "tests/fixtures/plan/$model" --world-size "$ranks" --batch-size 1 \
        --max-seq-length 2048 --bf16 --json "$@" | awk '
        { sub(/.*"peak": \{/, ""); sub(/\}.*/, ""); n = split($0, part, /[,:] */)
          for (i = 2; i <= n; i += 2) { gsub(/[" ]/, "", part[i - 1]); bytes[part[i - 1]] = part[i] }
          split("param grad optim activation allocated", key, " ")
          for (k = 1; k <= 5; k++) printf " %.1f |", bytes[key[k]] / 1073741824
          print "" }'
}

echo '| model | ranks | added to `--bf16` | param | grad | optim | activation | in all, GiB |'
echo '|---|---|---|---|---|---|---|---|'
for model in llama3-1b llama3-8b llama3-70b; do
    for ranks in 1 2 8; do
        row ''
        row --activation-checkpointing --activation-checkpointing
        set -- --activation-checkpointing
        row '--optim-state-dtype bf16' "$@" --optim-state-dtype bf16 --bf16-stochastic-round
        row '--optim adamw_8bit' "$@" --optim adamw_8bit
        row '--optim adamw_8bit --master-dtype bf16' "$@" --optim adamw_8bit --master-dtype bf16 \
            --bf16-stochastic-round
        row '--optim muon' "$@" --optim muon
        row '--optim adafactor' "$@" --optim adafactor
        row '--lora-r 16' "$@" --lora-r 16
    done
done
