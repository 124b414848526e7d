# usage: awk -v size=N -f tools/demo_bert_vocab.awk TEXT: writes a vocab.txt of WordPiece for BERT:
# the special tokens, all characters, the most frequent words, and the most frequent pieces of four
# characters of the other words.
function add(piece) {
    if (!(piece in known)) {
        known[piece] = 1
        print piece
        n++
    }
}
# Print up to `most` of the pieces of counts[] with the highest counts, at least `least`.
function add_frequent(counts, most, least, piece, top, c, limit) {
    limit = n + most
    top = 0
    for (piece in counts)
        if (counts[piece] > top)
            top = counts[piece]
    for (c = top < 4096 ? top : 4096; c >= least && n < limit; c--)
        for (piece in counts)
            if ((counts[piece] == c || (c == 4096 && counts[piece] > c)) && n < limit)
                add(piece)
}
{
    text = tolower($0)
    gsub(/[^a-z0-9]+/, " ", text)
    m = split(text, of_line, " ")
    for (i = 1; i <= m; i++)
        words[of_line[i]]++
}
END {
    split("[PAD] [UNK] [CLS] [SEP] [MASK]", special, " ")
    for (i = 1; i <= 5; i++)
        add(special[i])
    for (i = 33; i < 127; i++) {
        c = sprintf("%c", i)
        if (c !~ /[A-Z]/) {
            add(c)
            add("##" c)
        }
    }
    add_frequent(words, size * 3 / 4, 3)
    for (word in words)
        if (!(word in known))
            for (i = 1; i <= length(word); i += 4)
                pieces[(i > 1 ? "##" : "") substr(word, i, 4)] += words[word]
    add_frequent(pieces, size - n, 2)
}
