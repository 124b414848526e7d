# usage: awk -v copies=N -f tools/demo_bert_pairs.awk FILE.csv: reads headline,title,text and writes
# pairs of a synopsis and a description, each synopsis N times with its own description ("yes") and N
# times with that of another package ("no"), which is another one each time. Only the first 100
# characters of a description are kept.
function quoted(text) {
    gsub(/"/, "\"\"", text)
    return "\"" text "\""
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
# A row with line ends in quotes is several lines. Its quotes are in pairs only at its end.
{
    row = row == "" ? $0 : row "\n" $0
    copy = row
    if (gsub(/"/, "", copy) % 2)
        next
    if (lines++ > 0 && split_row(row) == 3) {
        synopsis[rows + 0] = fields[1]
        description[rows + 0] = substr(fields[3], 1, 100)
        rows++
    }
    row = ""
}
END {
    print "sentence1,sentence2,label"
    for (k = 0; k < copies; k++)
        for (i = 0; i < rows; i++) {
            other = (i + 1 + (k * 7919 + i * 31) % (rows - 1)) % rows
            print quoted(synopsis[i]) "," quoted(description[i]) ",yes"
            print quoted(synopsis[i]) "," quoted(description[other]) ",no"
        }
}
