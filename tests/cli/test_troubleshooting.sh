#!/bin/sh
# docs/troubleshooting.md: each message that it explains is still in the sources, as the heading
# quotes it, and is what the command below the heading prints. Links lead to headings.
. "$(dirname "$0")/lib.sh"
page=$root/docs/troubleshooting.md

# The sources as one text in which a string is whole: the compiler joins "a" "b", also with a format
# of <inttypes.h> between them.
find "$root/src" -name '*.c' -o -name '*.h' -o -name '*.inc' | sort | xargs cat | tr '\n' ' ' |
    sed -e 's/" *"//g' -e "s/\\\\\"/\"/g" >"$dir/sources"
# A line for each heading that quotes a message: the message, a tab, what is printed below it.
awk '
    /^### `/ { message = $0; sub(/^### `/, "", message); sub(/`( \(of .*\))?$/, "", message); printed = ""; next }
    /^#/ { message = "" }
    message != "" && /^    [^ $]/ { print message "\t" $0 }
' "$page" >"$dir/printed"
# Those of the system and of libraries are not in the sources.
grep '^### .*`$' "$page" | sed 's/^### `\(.*\)`$/\1/' >"$dir/own"
grep '^### ' "$page" | sed -e 's/^### `//' -e 's/`[^`]*$//' >"$dir/messages"
while read -r message; do
    id=$(echo "$message" | tr -cs 'a-zA-Z0-9' _)
    ! grep -qxF -e "$message" "$dir/own" ||
        check "the_sources_have_$id" grep -qF -e "$message" "$dir/sources"
    awk -F '\t' -v message="$message" '$1 == message && index($2, message) { found = 1 } END { exit !found }' \
        "$dir/printed" && ok "the_page_shows_$id" || bad "the_page_shows_$id" "no line below the heading has it"
done <"$dir/messages"
check messages_were_compared test "$(wc -l <"$dir/own")" -gt 30

# Anchors within the page, and files that it names.
sed -n 's/^##* //p' "$page" | tr 'A-Z' 'a-z' | sed -e 's/[^a-z0-9 _-]//g' -e 's/ /-/g' >"$dir/anchors"
for anchor in $(grep -o '](#[^)]*)' "$page" | sed 's/](#\(.*\))/\1/'); do
    check "a_heading_for_$anchor" grep -qx -e "$anchor" "$dir/anchors"
done
for file in $(grep -o '](\([a-z/-]*\.md\)' "$page" | sed 's/](//' | sort -u); do
    check "there_is_$file" test -e "$root/docs/$file"
done
# One that is printed, for the rest.
run train --model "$root/models/t5-debian-mini" --data "$root/data/debian/train.csv" --sharding-stratgy FULL_SHARD
sed -n 's/^    \(fsdp train: unknown option .*\)/\1/p' "$page" >"$dir/expected"
head -n 1 "$dir/err" >"$dir/found"
check the_first_message_is_printed cmp "$dir/expected" "$dir/found"

tally
