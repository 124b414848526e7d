# Reads text, a document a line; writes CSV with the columns headline and text for seq2seq: each document
# in pieces of up to 60 words (headline), and the same without about a fifth of the words (text), from
# which a model has to restore it (token deletion: Lewis et al. 2020, BART); "restore: " before it tells it
# from other tasks. Pieces of fewer than 8 words are left. Which words go is the same in every awk and at
# every call: Park and Miller's generator.
function quoted(s) {
    gsub(/"/, "\"\"", s)
    return "\"" s "\""
}
BEGIN {
    seed = 1
    print "headline,text"
}
{
    for (first = 1; first <= NF && NF - first + 1 >= 8; first += 60) {
        whole = ""
        kept = "restore:"
        for (i = first; i <= NF && i < first + 60; i++) {
            whole = whole (i > first ? " " : "") $i
            seed = (seed * 16807) % 2147483647
            if (seed % 5) kept = kept " " $i
        }
        print quoted(whole) "," quoted(kept)
    }
}
