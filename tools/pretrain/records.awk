# Debian's Translation-en list, one package a line: name, synopsis and text, with tabs between them
# and \001 for the text's line ends. Control characters but line feeds are blanks already, and
# LC_ALL is C. The text is what data/debian has: wrapped lines joined, " ." an empty line, lines of
# lists kept. Of a package that is listed twice the first record is taken. What is no record is
# counted; the counts are the last line, which begins with a tab.
#   -v longest=BYTES    records whose text is longer are left out

function end_record() {
    if (!in_record) return
    records++
    if (name !~ /^[A-Za-z0-9][A-Za-z0-9+.-]*$/ || synopsis == "") malformed++
    else if (too_long) longer++
    else if (not_utf8(synopsis text)) encodings++
    else if (name in seen) twice++
    else {
        seen[name] = 1
        gsub(/^[\001 ]+|[\001 ]+$/, "", text)
        print name "\t" synopsis "\t" text
    }
    start_record()
}
function start_record() {
    in_record = in_description = joins = too_long = 0
    name = synopsis = text = ""
}
# Sequences that are well formed become a letter; bytes above ASCII that are left then are not.
function not_utf8(s) {
    if (s !~ /[\200-\377]/) return 0
    gsub(/[\302-\337][\200-\277]/, "x", s)
    gsub(/\340[\240-\277][\200-\277]|\355[\200-\237][\200-\277]/, "x", s)
    gsub(/[\341-\354\356\357][\200-\277][\200-\277]/, "x", s)
    gsub(/\360[\220-\277][\200-\277][\200-\277]|\364[\200-\217][\200-\277][\200-\277]/, "x", s)
    gsub(/[\361-\363][\200-\277][\200-\277][\200-\277]/, "x", s)
    return s ~ /[\200-\377]/
}
function add_line(line) {
    if (too_long || length(text) + length(line) > longest) { too_long = 1; return }
    line = substr(line, 2)
    sub(/ +$/, "", line)
    if (line ~ /^ *\.$/) { text = text "\001"; joins = 0 }
    else if (line ~ /^ / || line ~ /^[*+o-] /) { text = text "\001" line; joins = 0 }
    else { text = text (joins ? " " : "\001") line; joins = 1 }
}
# value(): of the field in this line
function value(s) { sub(/^[^:]*: */, "", s); sub(/ +$/, "", s); return s }

BEGIN { start_record() }
/^ *$/ { end_record(); next }
/^ / { if (in_description) add_line($0); next }
/^Package:/ { end_record(); name = value($0) }
{ in_record = 1; in_description = 0 }
/^Description-en:/ { synopsis = value($0); text = ""; joins = 0; in_description = 1 }
END {
    end_record()
    print "\t" records + 0 "\t" malformed + 0 "\t" longer + 0 "\t" encodings + 0 "\t" twice + 0
}
