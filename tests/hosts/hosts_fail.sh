#!/bin/sh
# usage: FSDP_BUILD=build tests/hosts/hosts_fail.sh [COUNT [SEED [LAUNCHERS [KINDS]]]]
# Trains on two hosts (namespaces of this machine), and disturbs the training at a random instant,
# COUNT times (1) for each way to start it and each kind of disturbance:
#   LAUNCHERS  openmpi, mpich: mpirun of this MPI; launch: `fsdp launch --nnodes 2` with either MPI;
#              restart: the same with --max-restarts
#   KINDS      rank: a rank is killed; host: all processes of a host are killed; stop: a rank is
#              stopped; cable: the cable of a host is pulled; out: it is pulled for 2 s
# After each: the job has ended on both hosts within $HOSTS_FAIL_LIMIT_S (10) seconds, and a message
# names the rank or the host; no process is left; each checkpoint is complete and intact; a checkpoint
# that the run has reported exists; and a resumed run has the losses of a run without disturbance.
# With `restart`, and after `out`, the job itself goes on to its last step. On a machine that is busy with
# other work, set a longer limit. HOSTS_FAIL_KEEP=DIR keeps the files of jobs that failed the test.
# `make test-hosts` runs it with COUNT 1. Needs root; skipped with a reason without.
. "$(dirname "$0")/lib.sh"
count=${1:-1} rng=${2:-1} launchers=${3:-openmpi mpich launch restart} kinds=${4:-rank host stop cable out}
limit=${HOSTS_FAIL_LIMIT_S:-10}
begin hosts_fail
needs nettle MPI
hosts_up 2
FSDP_JOB_SECRET=the-secret-of-these-tests HOME=$dir
export FSDP_JOB_SECRET HOME

mkdir model
cat >model/config.json <<'END'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 67, "hidden_size": 64,
 "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 4, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
 "rope_theta": 10000.0, "hidden_act": "silu", "initializer_range": 0.02,
 "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2}
END
awk 'BEGIN { srand(7); for (i = 0; i < 64; i++) { printf "{\"input_ids\": ["
    for (k = 0; k < 12; k++) printf "%s%d", k ? ", " : "", 3 + int(60 * rand()); print "]}" } }' >ids.jsonl
# A job that is disturbed has more steps than it can take until it ends; one that goes on has `few`.
many=100000 few=400
export FSDP_THREADS_PER_RANK=1
flags="--model model --from-config --data ids.jsonl --batch-size 1 --learning-rate 1e-3
    --lr-scheduler-type constant --seed 3 --device cpu --logging-steps 1 --no-save-model"
saving="--output run/out --save-steps 20 --save-total-limit 3 --metrics run/m.jsonl"

# random N: sets $r to a number below N; the sequence follows from the seed
random() {
    rng=$(((rng * 1103515245 + 12345) % 2147483648))
    r=$((rng / 65536 % $1))
}
now_ms() { date +%s%3N; }
# loss_of STEP FILE
loss_of() { sed -n "s/.*\"step\": $1,.*\"loss\": \([^,}]*\).*/\1/p" "$2" | tail -n 1; }
last_step() { sed -n 's/.*"step": \([0-9]*\),.*"loss".*/\1/p' run/m.jsonl 2>/dev/null | tail -n 1; }
steps() { s=$(last_step); [ "${s:-0}" -ge "$1" ]; }
# complete: the checkpoints with their final names
complete() { ls run/out-checkpoints 2>/dev/null | grep -x 'checkpoint-[0-9]*'; }
newest() { complete | sed 's/.*-//' | sort -n | tail -n 1; }
has_ranks() { [ -n "$(the_ranks 1)" ] && [ -n "$(the_ranks 2)" ]; }
no_ranks() { [ -z "$(the_ranks 1)$(the_ranks 2)" ]; }
all_ended() { for f in $waited; do [ -e "$f" ] || return 1; done; }

# start LAUNCHER STEPS: starts the job. $waited are the files that its launchers make when they end.
start() {
    rm -rf run
    mkdir run
    job_steps=$2
    case $1 in
    openmpi | mpich)
        (mpirun_of "$1" 1 "$fsdp" train $flags $saving $async --max-steps "$2" >run/out1 2>run/err1; echo $? >run/rc1) &
        waited=run/rc1
        ;;
    *)
        for i in 1 2; do start_host $i "$1"; done
        waited="run/rc1 run/rc2"
        ;;
    esac
}
# start_host I LAUNCHER: starts `fsdp launch` on host I
start_host() {
    options=
    [ "$2" != restart ] || options="--max-restarts 3 --rdzv-conf join_timeout=60"
    resume=
    [ "$2" != restart ] || resume=--resume
    (on "$1" "$fsdp" launch --mpi "$mpi" --nnodes 2 --node-rank $(($1 - 1)) --master-addr "${host}1" $options -n 1 \
        train $flags $saving $async --max-steps "$job_steps" $resume >>"run/out$1" 2>>"run/err$1"; echo $? >"run/rc$1") &
}

# disturb KIND I: at host I. Sets $at_ms.
disturb() {
    case $1 in
    rank)
        wait_until 20 has_ranks
        at_ms=$(now_ms)
        kill -KILL $(the_ranks "$2")
        ;;
    host)
        at_ms=$(now_ms)
        "$hosts" kill "$2"
        ;;
    stop)
        at_ms=$(now_ms)
        kill -STOP $(the_ranks "$2")
        ;;
    cable)
        at_ms=$(now_ms)
        "$hosts" cut "$2"
        ;;
    out)
        at_ms=$(now_ms)
        "$hosts" cut "$2"
        sleep 2
        "$hosts" heal "$2"
        ;;
    esac
}

# is_named LAUNCHER KIND I: a message names the rank or the host, and none accuses the other host
is_named() {
    cat run/err? run/out? >run/err # mpiexec of MPICH writes to stdout
    other=$((3 - $3))
    case $1:$2:$3 in
    openmpi:host:1) return ;; # mpirun itself was killed
    mpich:host:*) return ;;   # mpiexec says "assert (!closed) failed", and kills the other rank at once
    esac
    grep -Eq "rank $(($3 - 1)) .*(on node $host$3|killed by signal 9|has not moved)|RUNNING AT $host$3|$host$3:$(($3 - 1)) |(host |host, )$host$3,? is lost|host $host$3 is down|its host $host$3|lost communication.*$host$3|Remote daemon:.*on node $host$3" run/err ||
        { [ "$2" = cable ] && grep -Eq "is lost|has not moved|is down" run/err; } || return 1
    [ "$2" = cable ] || ! grep -Eq "host $host$other is lost|rank $((other - 1)) .*has not moved|first host, $host$other, is lost" run/err
}

# are_intact: every checkpoint with its final name is complete
are_intact() {
    for d in $(complete); do
        "$fsdp" checkpoint verify "run/out-checkpoints/$d" >run/verify 2>&1 || { cat run/verify; return 1; }
    done
}
# resumes: a run on one host takes the newest checkpoint, and has the losses of the reference
resumes() {
    reported=$(sed -n 's/.*"kind": "checkpoint".*"step": \([0-9]*\).*/\1/p; s/.*"step": \([0-9]*\).*"kind": "checkpoint".*/\1/p' run/m.jsonl 2>/dev/null | sort -n | tail -n 1)
    from=$(newest)
    [ "${from:-0}" -ge "${reported:-0}" ] || { echo "checkpoint $reported is lost; the newest is ${from:-none}"; return 1; }
    timeout -s KILL 100 "$fsdp" launch -n 2 train $flags --output run/out --save-strategy no --metrics run/again.jsonl \
        --resume --max-steps $((${from:-0} + 3)) >run/again 2>&1 || { cat run/again; return 1; }
    [ -z "$from" ] || grep -q "checkpoint-$from" run/again || { echo "not resumed from $from"; cat run/again; return 1; }
    has_losses $((${from:-0} + 1)) $((${from:-0} + 3)) run/again.jsonl
}
# refer_to STEP: extends the reference, a run on one host without disturbance, to this step
refer_to() {
    [ "$1" -gt "$reference" ] || return 0
    reference=$(($1 + 100))
    capture "$fsdp" launch -n 2 train $flags --output run0 --save-steps 1000000 --resume --max-steps $reference --metrics reference.jsonl
    [ $rc -eq 0 ] || { cat err; return 1; }
}
reference=0
has_losses() { # FROM TO FILE
    refer_to "$2" || return
    for s in $(seq "$1" "$2"); do
        [ -n "$(loss_of "$s" "$3")" ] && [ "$(loss_of "$s" "$3")" = "$(loss_of "$s" reference.jsonl)" ] ||
            { echo "step $s has loss '$(loss_of "$s" "$3")', not '$(loss_of "$s" reference.jsonl)'"; return 1; }
    done
}

# fail_run WHAT: shows what is left and what was said, and ends the job
fail_run() {
    failed=$((failed + 1))
    echo "FAIL $title: $1"
    what_is_left | sed 's/^/    left: /'
    for f in run/err1 run/err2; do [ -e "$f" ] && tail -n 8 "$f" | cut -c 1-250 | sed "s,^,    $f: ,"; done
    [ -z "${HOSTS_FAIL_KEEP:-}" ] || { mkdir -p "$HOSTS_FAIL_KEEP"; cp -r run "$HOSTS_FAIL_KEEP/$(echo "$title" | tr ' ' _)"; }
}
# clean_up: between two jobs
clean_up() {
    for h in 1 2; do "$hosts" heal $h; "$hosts" kill $h; done
    wait
}

# try LAUNCHER KIND N
try() {
    random 2
    victim=$((r + 1))
    random 2
    mpi=$(set -- $mpis; [ $r -lt $# ] || r=0; shift $r; echo $1)
    random 2
    async=$([ $r = 0 ] || echo --async-save)
    random 3000
    instant=$r
    title="$1 $2 $3: $(case $1 in launch | restart) echo "$mpi, " ;; esac)host $victim, $instant ms${async:+, async}"
    goes_on=
    [ "$2" != out ] && [ "$1" != restart ] || goes_on=yes
    start "$1" "$([ -n "$goes_on" ] && echo $few || echo $many)"
    # A process that is stopped before it has joined the others is noticed by its launcher only, and
    # MPI itself notices no pulled cable. So these come when the training has begun.
    case $1:$2 in *:stop | openmpi:* | mpich:* | *:out) wait_until 60 steps 1 || { fail_run "it did not start"; clean_up; return; } ;; esac
    # A host that is lost before its launcher has come to the first one is only waited for.
    case $1 in launch | restart) wait_until 60 grep -q 'ranks on 2 hosts by' run/err1 || { fail_run "it did not start"; clean_up; return; } ;; esac
    sleep "$(printf '%d.%03d' $((instant / 1000)) $((instant % 1000)))"
    all_ended && { fail_run "it ended before"; clean_up; return; }
    disturb "$2" "$victim"
    if [ -n "$goes_on" ]; then go_on "$@"; else end "$@"; fi
    clean_up
}
go_on() {
    if [ "$1:$2" = restart:host ]; then
        wait_until 20 [ -e "run/rc$victim" ]
        rm -f "run/rc$victim"
        start_host "$victim" restart
    fi
    if [ "$1:$2" = restart:cable ]; then
        sleep 12
        "$hosts" heal "$victim"
    fi
    if ! wait_until 400 all_ended; then fail_run "it did not end"
    elif [ "$(cat run/rc?)" != "$(cat run/rc? | sed 's/.*/0/')" ]; then fail_run "exit codes $(cat run/rc? | tr '\n' ' ')"
    elif [ "$2" != out ] && ! is_named "$1" "$2" "$victim"; then fail_run "no message names host $victim"
    elif ! has_losses 1 $few run/m.jsonl >run/why; then fail_run "$(cat run/why)"
    elif ! are_intact >run/why; then fail_run "$(cat run/why)"
    elif ! wait_until "$limit" none_left; then fail_run "processes are left"
    else
        passed=$((passed + 1))
        echo "ok $title"
    fi
}
end() {
    took=
    if [ "$2" = cable ] && [ "$1" = openmpi -o "$1" = mpich ]; then
        # mpirun itself waits until the cable is plugged in again.
        wait_until 40 no_ranks && took=$(($(now_ms) - at_ms))
        "$hosts" heal "$victim"
        wait_until 40 none_left
        wait_until 5 all_ended
    else
        wait_until 40 none_left && took=$(($(now_ms) - at_ms))
        wait_until 5 all_ended
    fi
    if [ -z "$took" ]; then fail_run "processes are left"
    elif [ "$took" -gt $((limit * 1000 + 500)) ]; then fail_run "it took $took ms"
    elif ! none_left; then fail_run "processes are left after the cable is back"
    elif ! is_named "$1" "$2" "$victim"; then fail_run "no message names host $victim"
    elif grep -qx 0 run/rc?; then fail_run "it succeeded"
    elif ! are_intact >run/why; then fail_run "$(cat run/why)"
    elif ! resumes >run/why; then fail_run "$(cat run/why)"
    else
        passed=$((passed + 1))
        echo "ok $title: $took ms, last step $(last_step), resumed from $(newest)"
    fi
}

mpis=
for mpi in openmpi mpich; do has_mpi $mpi && mpis="$mpis $mpi"; done
[ -n "$mpis" ] || { skip hosts_fail "neither Open MPI nor MPICH is installed"; tally; exit; }
refer_to $few && ok reference || bad reference "see above"
for n in $(seq "$count"); do
    for launcher in $launchers; do
        case $launcher in openmpi | mpich) has_mpi "$launcher" || { skip "$launcher" "not installed"; continue; } ;; esac
        for kind in $kinds; do try "$launcher" "$kind" "$n"; done
    done
done
tally
