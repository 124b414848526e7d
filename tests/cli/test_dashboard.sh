#!/bin/sh
# `fsdp dashboard` and --dashboard of `fsdp train`: who is let in, what is answered, what a request
# cannot do, and that the page of a run ends with it. tools/check_dashboard.sh looks at the page in a
# browser.
# usage: FSDP_BUILD=build tests/cli/test_dashboard.sh
. "$(dirname "$0")/train.sh"
needs libmicrohttpd

# ask REQUEST: sends a request to $port, whose lines are separated by "|", and saves the answer in
# $dir/out. bash can open connections.
ask() {
    timeout 20 bash -c 'exec 3<>/dev/tcp/127.0.0.1/$0 && printf "%s\r\n\r\n" "$1" | sed "s/|/\r\n/g" >&3 && cat <&3' \
        "$port" "$1|Connection: close" >"$dir/out" 2>"$dir/err"
    rc=$?
}
get() { ask "GET $1 HTTP/1.1|Host: 127.0.0.1:$port"; }
answers() { # NAME CODE [TEXT]: the status, and a text in headers or body
    if ! head -n 1 out | grep -q "^HTTP/1.1 $2 "; then bad "$1" "not $2: $(head -n 1 out)"
    elif [ -n "${3:-}" ] && ! grep -aEq -- "$3" out; then bad "$1" "no '$3'"
    else ok "$1"; fi
}
# address FILE: sets $port and $token from the address in FILE, which appears in a while
address() {
    port='' token=''
    for _ in $(seq 100); do
        found=$(sed -n 's|.*http://127.0.0.1:\([0-9]*\)/\([0-9a-f]*\)/.*|\1 \2|p' "$1" 2>/dev/null | head -n 1)
        [ -z "$found" ] || { port=${found% *} token=${found#* }; return; }
        sleep 0.05
    done
}
ends() { # PID: true if the process ends in a while
    for _ in $(seq 100); do
        kill -0 "$1" 2>/dev/null || return 0
        sleep 0.05
    done
    false
}

# --- a folder with runs, of which one has a name that a page should not trust ---
mkdir runs
train 2 --max-steps 4 --metrics 'runs/<script>alert(1)<script>.jsonl' \
    --save-steps 2 --no-save-model --checkpoint-dir runs/saved --validation-data validation.jsonl
check the_run_succeeds test $rc -eq 0
check each_rank_has_a_file test -s 'runs/<script>alert(1)<script>.ranks/1.jsonl' -a -s 'runs/<script>alert(1)<script>.ranks/run.json'
echo 'last words' >runs/rank.log
echo secret >secret.log
ln -s ../secret.log runs/link.log

"$fsdp" dashboard runs --port 0 --address-only >page.address 2>page.err &
server=$!
address page.address
check the_address_is_printed test -n "$port" -a ${#token} -eq 32
get "/$token/"
answers the_page_is_served 200 '<title>fsdp dashboard</title>'
check the_policy_allows_nothing_inline grep -aq "^Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';" out
for header in 'X-Content-Type-Options: nosniff' 'Referrer-Policy: no-referrer' 'Cache-Control: no-store' 'X-Frame-Options: DENY'; do
    check "header_${header%%:*}" grep -aq "^$header" out
done
for file in page.js page.css charts.js slow.js findings.js; do
    get "/$token/$file"
    answers "serves_$file" 200 '^Content-Type: text/(javascript|css)'
done
for _ in $(seq 60); do
    get "/$token/runs?since=0"
    ! grep -q '"step":4' out || grep -q '"verdict":"unchecked"' out || break
    sleep 0.05
done
answers the_runs_are_json 200 '^Content-Type: application/json'
check the_curves_are_there grep -q '"train/loss":{"step":\[1,2,3,4\]' out
check the_hostile_name_is_escaped grep -q '"name":"\\u003cscript\\u003ealert(1)\\u003cscript\\u003e"' out
check the_checkpoint_is_verified grep -q '"path":"saved/checkpoint-4".*"verdict":"good"' out
check both_ranks_are_counted grep -q '"ranks":\[\[0,3,.*\[1,3,' out
check the_whole_time_is_answered grep -Eq '"total_s":[0-9]*\.?[0-9]*[1-9]' out
check a_link_is_no_log sh -c "grep -q 'rank.log' out && ! grep -q 'link.log' out"
run_id=$(sed -n 's/.*"runs":\[{"id":\([0-9]*\).*/\1/p' out)
log_id=$(sed -n 's/.*"logs":\[{"id":\([0-9]*\).*/\1/p' out)
get "/$token/run?id=$run_id"
answers a_run_has_ranks_and_units 200 '"units":\[\{"name":"root","gathers":[1-9]'
get "/$token/log?id=$log_id"
answers the_log_is_shown 200 'last words'

# --- what is refused ---
get /
answers no_token_no_page 403 'the address needs the token'
get "/$(echo "$token" | tr 0-9a-f 1-9a-f0)/"
answers a_wrong_token_gets_nothing 403
get "/$(echo "$token" | cut -c 1-31)/"
answers half_a_token_gets_nothing 403
ask "GET /$token/runs HTTP/1.1|Host: evil.example"
answers another_host_is_refused 403 'answers to 127.0.0.1'
ask "GET /$token/runs HTTP/1.1|Host: localhost:8080"
answers a_tunnel_may_have_another_port 200
for method in POST PUT DELETE PATCH OPTIONS; do
    ask "$method /$token/runs HTTP/1.1|Host: 127.0.0.1|Content-Length: 3||a=1"
    answers "${method}_is_not_allowed" 405 '^Allow: GET, HEAD'
done
ask "HEAD /$token/runs HTTP/1.1|Host: 127.0.0.1"
answers head_is_answered 200 '^Content-Length: [1-9]'
check head_has_no_body sh -c "! grep -q train/loss out"
for path in ../secret.log ..%2fsecret.log %2e%2e/secret.log rank.log 'log?id=../../secret.log' 'log?id=99' log 'run?id=x' 'run?id=-1' index.html; do
    get "/$token/$path"
    answers "nothing_at_$path" 404
done
ask "GET /$token/$(head -c 60000 /dev/zero | tr '\0' a) HTTP/1.1|Host: 127.0.0.1"
check a_long_request_is_refused sh -c 'head -n 1 out | grep -Eq "^HTTP/1.1 4(14|31|13|04)" || [ ! -s out ]'

# --- tabs that come and go ---
for _ in 1 2 3 4 5 6; do # connections that say nothing, and that are cut in the middle
    timeout 1 bash -c 'exec 3<>/dev/tcp/127.0.0.1/$0 && printf "GET /" >&3 && sleep 0.2' "$port" &
done
get "/$token/runs"
answers a_tab_works_while_others_are_silent 200
wait_for_tabs() { for job in $(jobs -p); do [ "$job" = "$server" ] || wait "$job"; done; }
wait_for_tabs 2>/dev/null

# --- while files change ---
printf '{"kind": "step", "step": 5, "epo' >>'runs/<script>alert(1)<script>.jsonl'
mkdir runs/later
echo '{"kind": "step", "step": 9, "loss": 1.5}' >runs/later/metrics.jsonl
for _ in $(seq 100); do
    get "/$token/runs?since=0"
    grep -q '"name":"later"' out && grep -q '"step":9' out && break
    sleep 0.05
done
check a_new_run_appears grep -q '"name":"later"' out
check half_a_line_is_not_counted grep -q '"bad_lines":0' out
rm -rf runs/later
kill -0 $server && ok it_is_still_there || bad it_is_still_there gone
kill -INT $server
wait $server
rc=$?
check ctrl_c_ends_it test $rc -eq 0
check it_says_nothing_else test ! -s page.err

# --- why a run is slow, from files to the words of the page ---
# put_run NAME SECONDS TOKENS BATCH VALIDATIONS SAVES: writes the files of a run of 40 steps and one
# rank, whose validations and saves take 3 s each. Each run spends 5 s on loading.
put_run() {
    mkdir -p "slow/$1/metrics.ranks"
    seq 40 | sed "s/.*/{\"kind\": \"step\", \"step\": &, \"loss\": 2, \"tokens\": $3, \"seconds\": $2}/" >"slow/$1/metrics.jsonl"
    seq 40 | head -n "$5" | sed 's/.*/{"kind": "validation", "step": 40, "loss": 2, "seconds": 3}/' >>"slow/$1/metrics.jsonl"
    seq 40 | head -n "$6" | sed 's/.*/{"kind": "checkpoint", "step": 40, "seconds": 3, "call_seconds": 3}/' >>"slow/$1/metrics.jsonl"
    echo "{\"config\": {\"batch-size\": \"$4\", \"evaluation-steps\": \"0\"}}" >"slow/$1/metrics.ranks/run.json"
    {
        echo '{"kind": "start", "time": 1000, "world_size": 1, "rank": 0, "threads": 1, "device": "cpu"}'
        seq 40 | awk -v s="$2" '{ printf "{\"kind\": \"rank\", \"time\": %f, \"state\": \"training\", \"step\": %d, \"steps\": 1, \"seconds\": %s, \"cpu_s\": %s}\n", 1005 + $1 * s, $1, s, s }'
        awk -v s="$2" -v n=$(($5 + $6)) 'BEGIN { printf "{\"kind\": \"end\", \"time\": %f, \"state\": \"ended\", \"step\": 40}\n", 1005 + 40 * s + 3 * n }'
    } >"slow/$1/metrics.ranks/0.jsonl"
}
put_run all_well 2 400 4 0 0
put_run like_it 2 400 4 0 0
put_run like_it_too 2 400 4 1 1
put_run one_row 1.5 100 1 0 0
put_run validates 2 400 4 20 0
put_run saves 2 400 4 0 30
# The shell may read the file before the command empties it.
rm page.address
"$fsdp" dashboard slow --port 0 --address-only >page.address 2>page.err &
server=$!
address page.address
for _ in $(seq 100); do
    get "/$token/runs?since=0"
    [ "$(grep -o '"read":1,' out | wc -l)" -eq 6 ] && [ "$(grep -o '"state":"ended"' out | wc -l)" -eq 6 ] && break
    sleep 0.05
done
kill -INT $server
wait $server
check the_whole_times_are_those_of_the_ranks test "$(grep -o '"total_s":[0-9.]*' out | sort | tr '\n' ' ')" = \
    '"total_s":145 "total_s":175 "total_s":65 "total_s":85 "total_s":85 "total_s":91 '
node=$(command -v node || command -v nodejs)
if [ -z "$node" ]; then
    skip findings_of_files "no Node.js here (apt-get install nodejs)"
else
    tr -d '\r' <out | sed -n 's/^{/{/p' >answer
    "$node" "$root/tests/dashboard/findings.js" "$root" answer >findings
    says_of() { check "$1" grep -Eq -- "$2" findings; }
    says_of a_small_batch_is_the_reason 'Slow: .one_row. makes 61\.54 tokens/s .*188\.2 tokens/s.* a step has only 100 tokens \(all_well: 400\), because --batch-size is 1 \(all_well: 4\)'
    says_of validations_are_the_reason 'Slow: .validates. .*60\.0 s: 20 validations take 41 % of its time \(all_well: 0 validations, 0 %\)'
    says_of checkpoints_are_the_reason 'Slow: .saves. .*90\.0 s: saving 30 checkpoints takes 51 % of its time'
    check the_others_are_not_slow test "$(grep -c '^Slow' findings)" -eq 3
fi

# --- words of the command ---
run dashboard
expect a_folder_is_needed 2 'DIR'
run dashboard nowhere
expect a_missing_folder_is_named 1 'nowhere: No such file'
run dashboard ids.jsonl
expect a_file_is_refused 1 'ids.jsonl: is a file; name the folder'
run dashboard runs --host 0.0.0.0
expect only_loopback 2 '--host 0.0.0.0: .*ssh -L'
"$fsdp" dashboard runs --port 0 --address-only --until-stdin-closes <page.err >page.address &
server=$!
wait $server
check it_ends_with_its_input test $? -eq 0

# --- --dashboard of train ---
rm -rf o long
mkdir long
"$fsdp" launch -n 2 train --model tiny --from-config --data ids.jsonl --output o --no-save-model --epochs 1000000 \
    --batch-size 4 --num-workers 0 --metrics long/m.jsonl --dashboard --dashboard-port 0 >train.out 2>train.err &
training=$!
address train.out
if [ -z "$port" ]; then bad train_prints_the_address "$(cat train.err)"; else ok train_prints_the_address; fi
for _ in $(seq 100); do
    get "/$token/runs?since=0"
    grep -q '"state":"training"' out && grep -q '"train/loss":{"step":\[1' out && break
    sleep 0.05
done
answers the_run_is_shown_while_it_goes_on 200 '"state":"training"'
kill -INT $training
wait $training 2>/dev/null
for _ in $(seq 60); do
    get "/$token/runs"
    [ $rc -eq 0 ] || break
    sleep 0.05
done
check the_page_ends_with_the_run test $rc -ne 0
train 1 --max-steps 2 --no-rank-metrics
check ranks_can_be_silent test $rc -eq 0 -a ! -e m.ranks
rm -rf o
run train --model tiny --from-config --data ids.jsonl --output o --max-steps 2 --batch-size 4 --num-workers 0 --dashboard \
    --dashboard-stays --dashboard-port 0
expect a_page_may_stay 0
child=$(sed -n "s/.*stays; 'kill \([0-9]*\)' ends it.*/\1/p" out)
address out
get "/$token/runs?since=0"
answers the_page_stays_after_the_run 200 '"file":"metrics.jsonl"'
kill "$child"
check kill_ends_it ends "$child"
run train --model tiny --from-config --data ids.jsonl --output o2 --max-steps 2 --dashboard-port 8000
check a_port_needs_a_dashboard says 'dashboard-port.*needs --dashboard'
run train --model tiny --from-config --data ids.jsonl --output o3 --max-steps 2 --dashboard --metrics /dev/null
expect a_device_is_no_file 1 '--dashboard: --metrics /dev/null is not a regular file'
tally
