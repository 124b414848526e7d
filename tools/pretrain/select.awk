# What becomes of the packages: lines of SHA-1 of the name, name, synopsis, text (tabs between them,
# \001 for line ends), in the order of the SHA-1, LC_ALL=C. Writes text, pairs and left_out (files
# named by -v); counts go to stdout.
#
# Left out is every package whose SHA-1 begins with a byte below 0x20; these come first, so what they
# say is known when the others come. Of another package a paragraph is dropped that
#   - is the same as one of theirs, or
#   - has a run of `run` words in common with one of theirs,
# letters' case and everything but letters and digits aside, and its pair if the synopsis, up to a
# bracket or dash, is that of one of them.
# Pairs are chosen as the rows of data/debian were; see its README.md.

function characters(s) {
    if (s ~ /[\200-\377]/) gsub(/[\200-\277]/, "", s)
    return length(s)
}
# The first n characters of s.
function opening(s, n,    bytes, more) {
    bytes = n
    while (bytes < length(s) && (more = n - characters(substr(s, 1, bytes))) > 0) bytes += more
    while (substr(s, bytes + 1, 1) ~ /^[\200-\277]/) bytes++
    return substr(s, 1, bytes)
}
function words_of(s) {
    s = tolower(s)
    gsub(/\302[\200-\277]|\342[\200\201][\200-\277]/, " ", s) # U+0080-00BF, U+2000-207F
    gsub(/[^a-z0-9\200-\377]+/, " ", s)
    gsub(/^ | $/, "", s)
    return s
}
# "parser for X - development files" and "parser for X (common files)" are both about "parser for X"
function subject(synopsis) {
    sub(/( --? | \().*/, "", synopsis)
    return words_of(synopsis)
}
# runs(WORDS, LEARN): remember the runs of so many words, or tell whether one of them is known
function runs(words, learn,    word, n, i, first, key) {
    n = split(words, word, " ")
    for (first = 1; first + run - 1 <= n; first++) {
        key = word[first]
        for (i = 1; i < run; i++) key = key " " word[first + i]
        if (learn) known_run[key] = 1
        else if (key in known_run) return 1
    }
    return 0
}
function learn_left_out(synopsis, text,    part, n, i, words) {
    left_subject[subject(synopsis)] = 1
    n = split(text, part, /\001\001+/)
    for (i = 1; i <= n; i++) {
        words = words_of(part[i])
        left_paragraph[words] = 1
        runs(words, 1)
    }
}
# `text` without what left-out packages say as well
function without_leaks(text,    part, n, i, words, kept) {
    n = split(text, part, /\001\001+/)
    kept = ""
    for (i = 1; i <= n; i++) {
        words = words_of(part[i])
        if (words == "") continue
        if ((words in left_paragraph) || runs(words, 0)) { leaks++; continue }
        kept = kept (kept == "" ? "" : "\001\001") part[i]
    }
    return kept
}
function field(s) {
    gsub(/\001/, "\n", s)
    if (s !~ /[",\n]/) return s
    gsub(/"/, "\"\"", s)
    return "\"" s "\""
}
function row(synopsis, name, text) { return field(synopsis) "," field(name) "," field(text) }

# May the pair stand? Once for each opening of a text and each synopsis.
function is_new(synopsis, text,    key, headline) {
    key = tolower(opening(text, 100))
    headline = tolower(synopsis)
    if ((key in seen_opening) || (headline in seen_synopsis)) return 0
    seen_opening[key] = seen_synopsis[headline] = 1
    return 1
}
function write_pair(name, synopsis, text, kept) {
    if (subject(synopsis) in left_subject) { same_subject++; return }
    if (kept != text) {
        if (characters(kept) < 200 || (tolower(opening(kept, 100)) in seen_opening && \
            opening(kept, 100) != opening(text, 100))) { emptied++; return }
        shortened++
    }
    pair_count++
    print row(synopsis, name, kept) > pairs
}
# A document a line: of paragraphs that are the same but for numbers, the first one only.
function write_document(text,    part, n, i, key, document) {
    n = split(text, part, /\001\001+/)
    document = ""
    for (i = 1; i <= n; i++) {
        key = words_of(part[i])
        gsub(/[0-9]+/, "0", key)
        if (key in seen_paragraph) { repeats++; continue }
        seen_paragraph[key] = 1
        document = document " " part[i]
    }
    gsub(/[\001 ]+/, " ", document)
    gsub(/^ | $/, "", document)
    if (characters(document) < shortest) { short_documents++; return }
    documents++
    document_characters += characters(document)
    print document > texts
}

BEGIN {
    FS = "\t"
    run = 8
    shortest = 60
    print "headline,title,text" > pairs
    print "headline,title,text" > left_out
    printf "" > texts
}
{
    name = $2; synopsis = $3; text = $4
    is_left = $1 < "20"
    usable = tolower(synopsis "\n" opening(text, 200)) !~ /transitional|dummy|meta-?package|debug symbols/
    chosen = usable && characters(text) >= 200 && is_new(synopsis, text)
    chosen_count += chosen
    packages++
}
is_left {
    left_count++
    learn_left_out(synopsis, text)
    if (chosen) { left_pairs++; print row(synopsis, name, text) > left_out }
    next
}
!usable { unusable++; next }
{
    kept = without_leaks(text)
    if (chosen) write_pair(name, synopsis, text, kept)
    write_document(kept)
}
END {
    print "packages " packages + 0
    print "left out by the SHA-1 of their name " left_count + 0
    print "of these with a row in left_out.csv " left_pairs + 0
    print "of the others transitional, dummy, metapackages, debug symbols " unusable + 0
    print "paragraphs dropped that a left-out package has too " leaks + 0
    print "paragraphs dropped from text.txt that stand there already " repeats + 0
    print "documents not written, under " shortest " characters then " short_documents + 0
    print "documents in text.txt " documents + 0
    print "characters in text.txt " document_characters + 0
    print "pairs chosen, left-out ones included " chosen_count + 0
    print "pairs not written, about the subject of a left-out one " same_subject + 0
    print "pairs not written, under 200 characters or not new without dropped paragraphs " emptied + 0
    print "pairs written with fewer paragraphs " shortened + 0
    print "pairs in pairs.csv " pair_count + 0
}
