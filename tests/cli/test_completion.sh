#!/bin/sh
# Completion scripts and pages of the manual: they have every option of every --help, and bash
# completes with them.
. "$(dirname "$0")/lib.sh"

for shell in bash zsh fish; do
    run completion $shell
    expect "a_script_for_$shell" 0
    cp "$dir/out" "$dir/fsdp.$shell"
done
run completion tcsh
expect no_script_for_other_shells 2 'tcsh.*bash, zsh and fish'
run completion
expect a_shell_must_be_named 2
fails_on_a_full_disk a_full_disk_is_an_error completion bash

SOURCE_DATE_EPOCH=1700000000 run help --man-pages man
expect writes_pages 0
run help train --man-pages man
expect pages_of_one_command_are_printed 2 'pages of all commands'
run help nonsense --man
expect no_page_of_an_unknown_command 2 "unknown command 'nonsense'"
run help train nonsense --man
expect no_page_of_an_unknown_subcommand 2 "unknown command 'train nonsense'"
run help train nonsense
expect no_help_about_an_unknown_word 2 "^fsdp train: --help 'nonsense': no option has this word"
run help checkpoint nonsense
expect no_help_of_an_unknown_subcommand 2 "unknown command 'checkpoint nonsense'"
run help train lora
expect help_about_a_word 0 '^adapter \(LoRA\)' out
check and_only_about_it sh -c "! grep -q -e '--epochs' '$dir/out'"
run --help checkpoint convert all
expect help_of_a_subcommand_with_all_options 0 '^usage: fsdp checkpoint convert' out
run help checkpoint convert
expect help_of_a_subcommand 0 '^usage: fsdp checkpoint convert' out
SOURCE_DATE_EPOCH=1700000000 run help checkpoint convert --man
expect prints_a_page 0
check the_printed_page_is_the_written_one cmp -s "$dir/out" "$dir/man/fsdp-checkpoint-convert.1"
check the_date_is_that_of_the_sources grep -q '^\.TH FSDP\\-TRAIN 1 2023-11-14 ' "$dir/man/fsdp-train.1"
mkdir "$dir/unwritable" && : >"$dir/unwritable/file"
run help --man-pages "$dir/unwritable/file"
expect no_pages_in_a_file 1

LC_ALL=C
export LC_ALL
# names_of FILE: the options in a text of --help, one a line, sorted: --name, --no-name, -n
names_of() {
    # Behind "examples:" are options of other programs.
    sed '/^examples\{0,1\}:/,$d' "$1" | awk '
        /^  -/ { line = $0; sub(/   .*/, "", line); print line; next }
        { text = text " " $0 }
        END { while (match(text, /\[also[^]]*\]/)) { print substr(text, RSTART + 5, RLENGTH - 6); text = substr(text, RSTART + RLENGTH) } }
    ' | tr ', ' '\n\n' | expanded
}
# Commands and subcommands, from the lists in the help texts.
commands() {
    "$fsdp" help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | while read -r command; do
        echo "$command"
        "$fsdp" "$command" --help | sed -n '/^\(commands\|.*KIND is\):/,/^$/s/^  \([a-z0-9-]*\) .*/'"$command"' \1/p'
    done
    printf 'config convert\nconfig to-fsdp2\nconfig update\nconfig explain\n'
}
commands >"$dir/commands"
check commands_and_subcommands_are_found grep -qx 'checkpoint convert' "$dir/commands"
check every_command_has_a_page test "$(wc -l <"$dir/commands")" -eq "$(($(ls "$dir/man" | wc -l) - 1))"

cat >"$dir/complete.bash" <<'END'
. ./fsdp.bash
# complete_words WORD...: prints what completes the last word
complete_words() {
    COMP_WORDS=(fsdp "$@") COMP_CWORD=$#
    _fsdp
    printf '%s\n' "${COMPREPLY[@]}"
}
END
cat >"$dir/all.bash" <<'END'
. ./complete.bash
while read -r command; do
    COMP_WORDS=(fsdp $command -) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _fsdp
    printf '%s\n' "${COMPREPLY[@]}" | sort -u >"completed.${command// /-}"
done <commands
END
check bash_reads_the_script bash "$dir/all.bash"
# expanded: --[no-]name becomes --name and --no-name
expanded() { sed -n -e 's/^--\[no-\]\(.*\)/--\1\n--no-\1/p' -e '/^--\[/!s/^-/-/p' | sort -u; }
sed -n "s/^ *'[*]\\(-[^=[]*\\).*/\\1/p" "$dir/fsdp.zsh" | sort -u >"$dir/in_zsh"
sed -n 's/^complete -c fsdp -n .* -\([sl]\) \([^ ]*\) .* -d .*/\1\2/p' "$dir/fsdp.fish" |
    sed -e 's/^l/--/' -e 's/^s/-/' | sort -u >"$dir/in_fish"
total=0
while read -r command; do
    page=$(echo "$command" | tr ' ' -)
    "$fsdp" $command --help all >"$dir/help"
    "$fsdp" $command --help >"$dir/first"
    [ "$(wc -l <"$dir/first")" -le 120 ] || echo "$command: the first page has more than 120 lines" >>"$dir/missing"
    ! cmp -s "$dir/first" "$dir/help" && ! grep -q 'help all  *all [0-9]* options$' "$dir/first" &&
        echo "$command: the first page does not say how to see all" >>"$dir/missing"
    names_of "$dir/help" >"$dir/names"
    total=$((total + $(wc -l <"$dir/names")))
    # roff writes a dash as \-
    sed -e 's/\\-/-/g' -e 's/\\f[BIR]//g' "$dir/man/fsdp-$page.1" | tr ', ' '\n\n' | expanded >"$dir/in_page"
    for place in in_page "completed.$page" in_zsh in_fish; do
        comm -23 "$dir/names" "$dir/$place" | sed "s/^/$command: not $place: /" >>"$dir/missing"
    done
    test -s "$dir/help" || echo "$command has no help" >>"$dir/missing"
done <"$dir/commands"
touch "$dir/missing"
cp "$dir/missing" "$dir/err"
check every_option_is_in_page_and_scripts test ! -s "$dir/missing"
check and_that_was_compared test "$total" -gt 500

# completes WORDS EXPECTED: EXPECTED is all that completes WORDS; an empty last word is written _
completes() {
    echo "completes: $1" >"$dir/err"
    # shellcheck disable=SC2086
    set -- "$(printf '%s ' $1 | sed 's/_ $//')" "$2" "$(echo "$1" | grep -c ' _$')"
    found=$(bash -c '. ./complete.bash; words=($1); [ "$2" = 0 ] || words+=(""); complete_words "${words[@]}"' - "$1" "$3" | tr '\n' ' ')
    echo "gives: $found" >>"$dir/err"
    check "completes_$(echo "$1" | tr ' ' _)" test "${found% }" = "$2"
}
mkdir "$dir/folder.d" && : >"$dir/rows.csv"
completes tra train
completes 'checkpoint _' 'inspect verify diff convert merge-weights gather merge-adapter init-adapter'
completes 'train --task cau' causal-lm
completes 'train --task=cau' --task=causal-lm
completes 'train --task = cau' causal-lm
completes 'train --param_dtype bf' bfloat16
completes 'train --gradient_acc' '--gradient_accumulation_steps --gradient_accumulation_mode'
completes 'launch --num_pro' --num_processes
completes 'launch --num_processes 2 --fsdp_sharding_strategy HYBRID_SHARD_Z' HYBRID_SHARD_ZERO2
completes 'train --device _' 'auto cpu cuda'
completes 'train --help _' 'all model data adapter lora peft weights bits qlora bitsandbytes training optimizer learning rate sharding numbers output checkpoints'
completes 'launch --help ho' hosts
completes 'launch -n 2 train --help lo' lora
completes 'verify --help _' all
completes 'train --help --warmup-r' --warmup-ratio
completes 'train --data rows' rows.csv
completes 'train --output folder' folder.d
completes 'train --output rows' ''
completes 'train --bf16 --lr 3 --task mas' masked-lm
completes 'launch --bind nu' numa
completes 'launch -n 2 train --task mas' masked-lm
completes 'launch --tee 3 checkpoint conv' convert
completes 'help checkpoint conv' convert
completes 'completion _' 'bash zsh fish'
completes 'plot row' rows.csv
completes 'config expl' explain

# Each shell offers the same words after --help, and --help knows each of them.
sed -n "s/^        help | h) kind=words words='\(.*\)' ;;/\1/p" "$dir/fsdp.bash" | sort >"$dir/topics_bash"
sed -n "s/^        '[*]--help=.*:(\\(all.*\\))' .*/\\1/p" "$dir/fsdp.zsh" | sort >"$dir/topics_zsh"
sed -n "s/^complete -c fsdp -n .* -l help -x -a '\\(all[^']*\\)' .*/\\1/p" "$dir/fsdp.fish" | sort >"$dir/topics_fish"
# bench and checkpoint without a subcommand have no options.
check each_command_has_words_after_help [ "$(wc -l <"$dir/topics_bash")" -eq "$(($(wc -l <"$dir/commands") - 2))" ]
check zsh_offers_the_same_words_after_help cmp -s "$dir/topics_bash" "$dir/topics_zsh"
check and_so_does_fish cmp -s "$dir/topics_bash" "$dir/topics_fish"
for command in train plan tokenize evaluate launch generate classify 'bench train'; do
    # shellcheck disable=SC2086
    for word in $(bash -c '. ./complete.bash; complete_words $1 --help ""' - "$command"); do
        "$fsdp" $command --help "$word" >/dev/null 2>&1 || echo "$command --help $word"
    done
done >"$dir/err"
check help_knows_each_of_these_words test ! -s "$dir/err"

# Where other shells and checkers of pages are installed.
for shell in zsh fish; do
    if command -v $shell >/dev/null; then
        check "${shell}_reads_its_script" $shell -n "$dir/fsdp.$shell"
    else
        skip "${shell}_reads_its_script" "no $shell here"
    fi
done
if command -v fish >/dev/null; then
    capture fish -c 'source ./fsdp.fish; complete -C "fsdp launch -n 2 train --task cau"'
    check fish_completes test "$(cut -f 1 "$dir/out")" = causal-lm
fi
if command -v mandoc >/dev/null; then
    capture mandoc -Tlint "$dir"/man/*.1
    expect pages_are_without_faults 0
else
    skip pages_are_without_faults "no mandoc here"
fi

tally
