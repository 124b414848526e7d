#!/bin/sh
# tools/pretrain_corpus.sh on small Translation lists, without network and apt: the texts, what is
# left out and why, and malformed lists.
# usage: FSDP_BUILD=build tests/cli/test_pretrain_corpus.sh
. "$(dirname "$0")/lib.sh"
LC_ALL=C
export LC_ALL
tool=$root/tools/pretrain_corpus.sh
corpus() { capture sh "$tool" -l "$dir/list" "$dir/corpus"; }
# count NUMBER TEXT: checks a line of counts.txt
count() { grep -q "^$1	$2" "$dir/corpus/counts.txt"; }
holds() { grep -q -- "$2" "$dir/corpus/$1"; }
lacks() { ! holds "$@"; }

# The SHA-1 of garden36 begins with 00, of garden564 with 1f, of garden99 with 20, of kept-* with
# higher digits.
# Long enough that a text with one of these has 200 characters. They share no sequence of words.
theirs='was made in the hope that someone may at last write down what grows where, when it was sown, who waters it, how tall it shall become one day and which of the beds is to be dug over'
words='aims at people who write letters to their neighbours every morning and who want each of them checked, counted, sorted by the day on which it arrived and printed on paper of any size'
cat >"$dir/list" <<END
Package: garden36
Description-md5: 0
Description-en: parser for gardens - library
 The garden parser reads plans of gardens with its very own grammar. It
 $theirs.
 .
 A sentence that a dozen packages of this source say.

Package: kept-dev
Description-md5: 0
Description-en: parser for GARDENS (development files)
 The headers one needs $words, though the subject is that of another package.

Package: kept-b
Description-md5: 0
Description-en: counts "letters", quickly
 Letter counter ONE $words.
 It goes on in
 the next line:
  * first point,
    with a second line
  * second point
 .
 A SENTENCE, that a dozen packages of this source say!
 .
 Yet the GARDEN parser — reads plans of gardens, with its very own keyboard.
 .
 Shared by two that stay, in release 12 of the letters.

Package: garden99
Description-md5: 0
Description-en: sorts letters
 Sorter of letters, which $words.
 .
 Shared by two that stay, in release 7 of the letters.

Package: kept-same-opening
Description-md5: 0
Description-en: sorts letters too
 Sorter of letters, WHICH $words. It differs late.

Package: kept-short
Description-md5: 0
Description-en: has a short text
 A text which is too short for a pair, yet long enough to be read.

Package: kept-transition
Description-md5: 0
Description-en: letters
 This is a transitional package, which $words. It can be removed safely.

Package: kept-wide
Description-md5: 0
Description-en: letters of an alphabet
 ähnliche Wörter: éééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé
 éééééééééééééééééééééééééééééééééééééééééééééééééééééééé.
END
corpus
expect a_list_becomes_a_corpus 0 '8	packages' out
cat >"$dir/text.want" <<END
Sorter of letters, which $words. Shared by two that stay, in release 7 of the letters.
END
holds_line() { grep -qxF -- "$2" "$dir/corpus/$1"; }
check a_document_is_a_line holds_line text.txt "$(cat "$dir/text.want")"
check lists_stay_readable holds_line text.txt \
    "Letter counter ONE $words. It goes on in the next line: * first point, with a second line * second point"
check marks_of_paragraphs_are_gone lacks text.txt ' \. '
check a_paragraph_of_a_left_out_package_is_dropped lacks text.txt 'dozen packages'
check so_is_one_with_eight_words_of_it lacks text.txt 'keyboard'
check paragraphs_that_differ_in_numbers_are_kept_once test "$(grep -c 'Shared by two' "$dir/corpus/text.txt")" -eq 1
check short_texts_are_documents holds text.txt 'too short for a pair'
check but_no_pairs lacks pairs.csv 'too short for a pair'
check transitional_packages_are_in_neither lacks pairs.csv kept-transition
check nor_is_their_text lacks text.txt 'removed safely'
check characters_are_counted_and_not_bytes lacks pairs.csv kept-wide
check the_left_out_package_is_in_no_text lacks text.txt 'plans of gardens'
check nor_in_a_pair lacks pairs.csv garden36
check one_of_the_same_subject_is_no_pair lacks pairs.csv kept-dev
check texts_with_the_same_opening_are_one_pair \
    test "$(grep -c 'orter of letters' "$dir/corpus/pairs.csv")" -eq 1
check the_left_out_row_is_kept_for_checking holds left_out.csv '^parser for gardens - library,garden36,'
cat >"$dir/pair.want" <<END
headline,title,text
sorts letters,garden99,"Sorter of letters, which $words.

Shared by two that stay, in release 7 of the letters."
"counts ""letters"", quickly",kept-b,"Letter counter ONE $words. It goes on in the next line:
 * first point,
   with a second line
 * second point

Shared by two that stay, in release 12 of the letters."
END
check pairs_are_as_the_shipped_rows cmp "$dir/corpus/pairs.csv" "$dir/pair.want"
check dropped_pairs_are_counted count 1 'pairs not written, about the subject'

cp -r "$dir/corpus" "$dir/first"
awk 'BEGIN { RS = ""; ORS = "\n\n" } { record[NR] = $0 } END { for (i = NR; i > 0; i--) print record[i] }' \
    "$dir/list" >"$dir/turned" && mv "$dir/turned" "$dir/list"
corpus
check the_order_of_the_list_does_not_matter diff -r "$dir/first" "$dir/corpus"
sed 's/$/\r/' "$dir/list" >"$dir/crlf" && mv "$dir/crlf" "$dir/list"
corpus
check crlf_is_read_alike diff -r "$dir/first" "$dir/corpus"
check nothing_else_is_left_behind test "$(ls "$dir/corpus" | tr '\n' ' ')" = 'counts.txt left_out.csv pairs.csv text.txt '

# --- which packages are left out: by the SHA-1 of the name alone ---
# The second field of each row; a row ends where its quotes are even.
cat "$root/data/debian/train.csv" "$root/data/debian/validation.csv" "$root/data/debian/test.csv" | awk '
    { row = row $0 "\n"; quotes = gsub(/"/, "&", row) }
    quotes % 2 { next }
    { sub(/^("([^"]|"")*"|[^",]*),/, "", row); sub(/,.*/, "", row); if (row != "title") print row; row = "" }' |
    sort -u >"$dir/shipped"
# Each package has its own text, so only the name can be the reason.
awk '{ print "Package: " $0 "\nDescription-en: synopsis of " $0
       print " The text of number " $0 " is different from that of any other one in this list.\n" }' \
    "$dir/shipped" >"$dir/list"
shipped=$(wc -l <"$dir/shipped")
check names_of_shipped_rows_are_known test "$shipped" -eq 3000
corpus
check every_package_of_a_shipped_row_is_left_out count "$shipped" 'left out by the SHA-1'
check so_that_nothing_is_written test ! -s "$dir/corpus/text.txt"
names='garden36 garden564 garden99 kept-b'
for name in $names; do
    printf 'Package: %s\nDescription-en: %s\n There %s is and no one else, and %s %s %s has come to stay.\n\n' $name $name $name $name $name $name
done >"$dir/list"
corpus
check a_byte_below_0x20_is_left_out lacks text.txt "There garden\(36\|564\) "
check a_byte_of_0x20_is_not holds text.txt garden99

# --- malformed lists ---
{
    printf 'Description-en: nameless\n The nameless text is long enough to be seen if it were read by mistake.\n\n'
    printf 'Package: kept-no-description\n\n'
    printf 'Package: kept-empty\nDescription-en:\n A text without a synopsis, which is long enough to be written down.\n\n'
    printf 'Package: ../../kept-path\nDescription-en: a path\n The path text is long enough to be seen if it were read by mistake.\n\n'
    printf 'Package: kept-latin\nDescription-en: caf\351\n The latin text is long enough to be seen if it were read by mistake.\n\n'
    printf 'Package: kept-cut\nDescription-en: cut\n The cut text is long enough to be seen if it were read by mistake \342\202\n\n'
    printf 'Package: kept-surrogate\nDescription-en: s\n The surrogate text is long enough to be seen if it were read \355\240\200\n\n'
    printf 'Package: kept-huge\nDescription-en: huge\n '
    head -c 3000000 /dev/zero | tr '\0' x
    printf '\n\nPackage: kept-lines\nDescription-en: many lines\n'
    yes ' The line text is long enough to be seen if it were read.' | head -n 20000
    printf '\n text of no field, before any package, is ignored because it belongs to no package\n\n'
    printf 'Package: kept-control\nDescription-en: controls\n Text\twith\001 control\033[1m characters\000 in it, which must become blanks all.\n\n'
    printf 'Package: kept-control\nDescription-en: again\n The second record of a package is not what is taken, wherever it is.\n\n'
    printf 'Package: kept-joined\nDescription-en: first\n The first text ends where the next package begins, without an empty line.\n'
    printf 'Package: kept-after\nDescription-en: next\n The next text ends with the file, in the middle of what may be a line'
} >"$dir/list"
corpus
expect a_bad_list_is_read 0
check only_whole_records_are_packages count 3 packages
check records_without_name_or_synopsis_are_counted count 4 'records without'
check those_that_are_not_utf8_too count 3 'records that are not UTF-8'
check and_those_that_are_too_long count 2 'records with a text of more'
check and_further_ones_of_a_package count 1 'further records'
check control_characters_are_blanks holds_line text.txt 'Text with control [1m characters in it, which must become blanks all.'
check records_need_no_empty_line holds_line text.txt 'The first text ends where the next package begins, without an empty line.'
check nor_a_line_end_at_the_end holds_line text.txt 'The next text ends with the file, in the middle of what may be a line'
check nothing_else_is_written test "$(wc -l <"$dir/corpus/text.txt")" -eq 3

: >"$dir/list"
corpus
expect an_empty_list_is_refused 1 'list holds no package with an English description'
printf '<html>404</html>\n' >"$dir/list"
corpus
expect so_is_another_file 1 'list holds no package with an English description'
capture sh "$tool" -l "$dir/none" "$dir/corpus"
expect a_missing_list_is_named 1 "$dir/none cannot be read"
capture sh "$tool" -x
expect unknown_options_show_the_usage 1 'usage: tools/pretrain_corpus.sh'
tally
