#!/bin/sh
# usage: tools/check_dashboard.sh OUT DIR...: opens the dashboard of DIR... in headless Chromium, and
# checks what a person would see: the page says something about each run, no script failed, and
# names of runs made no elements. Writes pictures to the folder OUT: light, dark, 1000 pixels
# wide, and on a phone. Says
# so and succeeds where there is no Chromium. FSDP_BUILD is the build folder ("build").
build=${FSDP_BUILD:-build}
out=${1:?usage: tools/check_dashboard.sh OUT DIR...}
shift
[ $# -gt 0 ] || { echo "usage: tools/check_dashboard.sh OUT DIR..." >&2; exit 2; }
browser=
for name in chromium chromium-browser google-chrome; do
    [ -n "$browser" ] || browser=$(command -v "$name")
done
[ -n "$browser" ] || { echo "skipped: no Chromium here (apt-get install chromium)"; exit 0; }
mkdir -p "$out" || exit 1
work=$(mktemp -d) || exit 1
mkfifo "$work/keep"
"$build/fsdp" dashboard --port 0 --address-only --until-stdin-closes "$@" <"$work/keep" >"$work/address" &
server=$!
exec 9>"$work/keep"
trap 'exec 9>&-; wait $server; rm -rf "$work"' EXIT
for i in 1 2 3 4 5 6 7 8 9 10; do
    [ -s "$work/address" ] && break
    sleep 0.2
done
address=$(cat "$work/address")
[ -n "$address" ] || { echo "check_dashboard: the dashboard printed no address" >&2; exit 1; }
sleep 2 # until all files are read
bad=0
say() { echo "check_dashboard: $*" >&2; bad=1; }
# browse ARGUMENTS...: a browser with a profile of its own
browse() {
    "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run \
        --user-data-dir="$work/profile" --virtual-time-budget=6000 "$@" "$address"
}
picture() { # NAME WIDTH HEIGHT ARGUMENTS...
    name=$1 size=$2,$3
    shift 3
    browse --window-size="$size" --screenshot="$out/$name.png" "$@" >"$work/log" 2>&1
    [ -s "$out/$name.png" ] || say "no picture $name.png: $(tail -n 3 "$work/log")"
}
picture light 1360 "${HEIGHT:-2300}" --blink-settings=preferredColorScheme=1
picture dark 1360 "${HEIGHT:-2300}" --blink-settings=preferredColorScheme=0
picture narrow 1000 "${HEIGHT:-2300}" --blink-settings=preferredColorScheme=1
picture phone 500 "${PHONE_HEIGHT:-4200}" --blink-settings=preferredColorScheme=1

browse --enable-logging=stderr --v=0 --dump-dom >"$work/page.html" 2>"$work/console"
grep -E 'CONSOLE.*(Error|Refused|error)' "$work/console" >&2 && say "the console of the browser has errors"
grep -q 'id="findings-list"><li' "$work/page.html" || say "the page has no findings"
grep -q '<path class="curve' "$work/page.html" || say "the page draws no curves"
[ "$(grep -o '<script' "$work/page.html" | wc -l)" -eq 4 ] || say "there are other scripts than those of the page"
grep -Eq '<(img|iframe|object|embed|link rel="(icon|pre)|form action)' "$work/page.html" && say "there are elements that the page did not make"
cp "$work/page.html" "$out/page.html"
[ $bad -eq 0 ] && echo "check_dashboard: good; pictures are in $out"
exit $bad
