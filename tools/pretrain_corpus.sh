#!/bin/sh
# usage: tools/pretrain_corpus.sh [-l LIST] [-m MIRROR] [-s SUITE] [OUT]
# The texts for pretraining a small T5: the English descriptions of the packages of Debian main,
# written to the folder OUT (build/pretrain-corpus):
#   text.txt      for span corruption: a line is a document, which is a package's description
#   pairs.csv     headline,title,text: synopsis, package, description, like data/debian
#   left_out.csv  the same columns for the packages that are in neither, for checking
#   counts.txt    how many packages were used, and why others were not
# The list comes from the mirror that apt uses, and is kept in OUT/apt. apt's own lists are
# neither read nor changed, and no privileges are needed.
#   -l LIST    use this Translation-en list (plain text) instead
#   -m MIRROR  e.g. http://deb.debian.org/debian
#   -s SUITE   e.g. bookworm; the default is that of the system
# Needs apt (unless -l), awk, sha1sum. The same list gives the same files, byte for byte.
here=$(cd "$(dirname "$0")" && pwd)
LC_ALL=C
export LC_ALL

fail() { echo "pretrain_corpus: $*" >&2; exit 1; }

# --- the list ---

# apt with lists, cache and sources of its own
own_apt() {
    apt-get "$@" -q -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache" \
        -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=- \
        -o Acquire::Languages=en -o Acquire::IndexTargets::deb::Packages::DefaultEnabled=false
}
system_suite() {
    [ -r /etc/os-release ] || fail "no /etc/os-release, so the suite is unknown: give -s SUITE"
    # shellcheck disable=SC1091
    (. /etc/os-release && [ "$ID" = debian ] && printf '%s\n' "$VERSION_CODENAME") | grep . ||
        fail "/etc/os-release names no released Debian: give -s SUITE and -m MIRROR"
}
# Where the system gets SUITE's main from. apt prints it without network access.
system_mirrors() {
    apt-get update --print-uris -o Dir::State::Lists="$apt/none" 2>/dev/null |
        sed -n "s|^'\(.*\)/dists/$suite/main/.*|\1|p" | sort -u
}
# fetch_from MIRROR: sets $list
fetch_from() {
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -r $keyring ] || fail "$keyring is missing: install debian-archive-keyring, or give -l LIST"
    echo "deb [signed-by=$keyring] $1 $suite main" >"$apt/sources.list"
    own_apt update >"$apt/log" 2>&1 || return 1
    fetched=$(find "$apt/lists" -name '*_i18n_Translation-en*' | sort | head -n 1)
    [ -n "$fetched" ] || { echo "$1 has no Translation-en list of $suite main" >>"$apt/log"; return 1; }
    /usr/lib/apt/apt-helper cat-file "$fetched" >"$list" 2>>"$apt/log"
}
fetch() {
    command -v apt-get >/dev/null || fail "no apt-get here: give -l LIST"
    apt=$(pwd)/apt
    rm -rf "$apt"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/none/partial" ||
        fail "cannot make $apt"
    list=$apt/Translation-en
    suite=${suite:-$(system_suite)} || exit 1
    mirrors=${mirror:-$(system_mirrors)}
    [ -n "$mirrors" ] || fail "apt's sources have no main of suite $suite: give -m MIRROR or -s SUITE"
    for m in $mirrors; do
        fetch_from "$m" && { echo "list: $m $suite main"; return; }
        echo "pretrain_corpus: $m $suite: no list came:" >&2
        tail -n 5 "$apt/log" >&2
    done
    fail "no mirror gave the Translation-en list of $suite main; give -m MIRROR or -l LIST"
}

# --- files ---

# Prints the SHA-1 of each name on stdin, in the same order. The names are written to files, so
# sha1sum runs once, not once per package.
sha1_of_names() {
    mkdir names || return 1
    awk '{ printf "%s", $0 >("names/" NR); close("names/" NR); print "names/" NR }' | xargs sha1sum |
        cut -d ' ' -f 1
}
# Control characters become blanks, so tab and \001 are free, and CRLF becomes LF.
parse() {
    tr '\000-\011\013-\037\177' '[ *]' <"$list" | awk -v longest=262144 -f "$here/pretrain/records.awk" \
        >parsed || fail "$list cannot be parsed"
    grep -v '^	' parsed >records || fail "$list holds no package with an English description"
    # shellcheck disable=SC2046
    set -- $(tail -n 1 parsed)
    printf 'records in the list %s\nrecords without a name or an English synopsis %s\n' "$1" "$2" >counts
    printf 'records with a text of more than 256 KiB %s\nrecords that are not UTF-8 %s\n' "$3" "$4" >>counts
    printf 'further records of a package %s\n' "$5" >>counts
}
select_texts() {
    cut -f 1 records | sha1_of_names >hashes
    [ "$(wc -l <hashes)" -eq "$(wc -l <records)" ] || fail "sha1sum failed"
    paste hashes records | sort >packages || fail "sorting the packages failed"
    awk -v texts=text.txt -v pairs=pairs.csv -v left_out=left_out.csv -f "$here/pretrain/select.awk" \
        packages >>counts || fail "writing text.txt, pairs.csv and left_out.csv failed"
    sed 's/^\(.*\) \([0-9]*\)$/\2\t\1/' counts >counts.txt
}

list='' mirror='' suite=''
while getopts l:m:s: option; do
    case $option in
    l) list=$OPTARG ;;
    m) mirror=$OPTARG ;;
    s) suite=$OPTARG ;;
    *) fail "usage: tools/pretrain_corpus.sh [-l LIST] [-m MIRROR] [-s SUITE] [OUT]" ;;
    esac
done
shift $((OPTIND - 1))
[ $# -le 1 ] || fail "usage: tools/pretrain_corpus.sh [-l LIST] [-m MIRROR] [-s SUITE] [OUT]"
out=${1:-build/pretrain-corpus}
case $list in
'' | /*) ;;
*) list=$(pwd)/$list ;;
esac
[ -z "$list" ] || [ -r "$list" ] || fail "$list cannot be read"
mkdir -p "$out" || fail "cannot make $out"
cd "$out" || fail "cannot enter $out"
[ -n "$list" ] || fetch
work=$(mktemp -d ./new.XXXXXX) || fail "cannot write to $out"
trap 'cd .. && rm -rf "${work#./}"' EXIT
trap 'exit 1' INT TERM
cd "$work" || exit 1
parse
select_texts
mv text.txt pairs.csv left_out.csv counts.txt .. || fail "cannot write to $out"
cat ../counts.txt
