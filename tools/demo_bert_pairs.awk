# usage: awk -v copies=N [-v easy=1] -f tools/demo_bert_pairs.awk VOCAB FILE.csv: reads
# headline,title,text and writes pairs with the label "yes" or "no".
#
# With copies=0, each package gives two pairs: its synopsis with the beginning of its description
# ("yes"), and with that of another package ("no"). With N copies, for training, each package gives N
# pairs of each label. Half of them are easier: do these two words occur in this text of eight words
# of the vocabulary? With easy=1, half of them are easier still: does this word occur in these three?
# A model with random weights learns from them to compare words, and then from the synopses.
function quoted(text) {
    gsub(/"/, "\"\"", text)
    return "\"" text "\""
}
# A random number from 0 to n - 1, the same with every awk (Park and Miller's generator).
function draw(n) {
    seed = seed * 16807 % 2147483647
    return seed % n
}
# Split `text`, which is one whole row, into fields[].
function split_row(text, n, i, c, field, inside) {
    n = 0
    field = ""
    inside = 0
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (inside && c == "\"" && substr(text, i + 1, 1) == "\"") {
            field = field "\""
            i++
        } else if (c == "\"")
            inside = !inside
        else if (c == "," && !inside) {
            fields[++n] = field
            field = ""
        } else
            field = field (c == "\n" ? " " : c)
    }
    fields[++n] = field
    return n
}
# The words of a text that are in the vocabulary, without the most frequent ones, in word[].
function known_words(text, m, i, all, n) {
    text = tolower(text)
    gsub(/[^a-z0-9]+/, " ", text)
    m = split(text, all, " ")
    n = 0
    for (i = 1; i <= m; i++)
        if (all[i] in vocabulary)
            word[n++] = all[i]
    return n
}
# n words of word[0 .. m), from a random one on.
function some(n, m, i, first, result) {
    first = m > n ? draw(m - n + 1) : 0
    for (i = first; i < first + n && i < m; i++)
        result = result (i > first ? " " : "") word[i]
    return result
}
function one_of(text, m, all) {
    m = split(text, all, " ")
    return m ? all[1 + draw(m)] : ""
}
# The beginning of a description or, with easy=1, about 16 words of it.
function begins(text) {
    return easy ? part(text) : substr(text, 1, 100)
}
function part(text, m, i, first, all, result) {
    m = split(text, all, " ")
    first = 1 + draw(m > 20 ? 20 : m > 0 ? m : 1)
    for (i = first; i <= m && i < first + 16; i++)
        result = result (i > first ? " " : "") all[i]
    return result
}
function print_pair(a, b, label) {
    if (a != "" && b != "")
        print quoted(a) "," quoted(b) "," label
}
# The words of `size` from package i, and `n` of them or of package `other`.
function print_words(i, other, size, n, text, a, b, tries) {
    text = some(size, known_words(description[i]))
    a = one_of(text) (n > 1 ? " " one_of(text) : "")
    known = known_words(description[other])
    do {
        b = known ? word[draw(known)] : ""
    } while (b != "" && index(" " text " ", " " b " ") && ++tries < 20)
    if (tries == 20 || text == "")
        return
    print_pair(a, text, "yes")
    print_pair(b (n > 1 ? " " word[draw(known)] : ""), text, "no")
}
FILENAME == ARGV[1] {
    if (FNR > 30 && length($0) > 2)
        vocabulary[$0] = 1
    next
}
# A row with line ends in quotes is several lines. Its quotes are in pairs only at its end.
{
    row = row == "" ? $0 : row "\n" $0
    copy = row
    if (gsub(/"/, "", copy) % 2)
        next
    if (lines++ > 0 && split_row(row) == 3) {
        synopsis[rows + 0] = fields[1]
        description[rows + 0] = substr(fields[3], 1, 400)
        rows++
    }
    row = ""
}
END {
    seed = 1
    print "sentence1,sentence2,label"
    for (k = 0; k < copies || k == 0; k++)
        for (i = 0; i < rows; i++) {
            other = (i + 1 + (k * 7919 + i * 31) % (rows - 1)) % rows
            kind = !copies ? 3 : easy ? k % 4 : 2 + k % 2
            if (kind < 2)
                print_words(i, other, 3, 1)
            else if (kind == 2)
                print_words(i, other, 8, 2)
            else {
                print_pair(synopsis[i], begins(description[i]), "yes")
                print_pair(synopsis[i], begins(description[other]), "no")
            }
        }
}
