/* The first launcher of a job, to which the other launchers connect.
 *
 * Note [Rounds of a job]. The first launcher gathers hosts. It waits until the least number of
 * hosts has joined. Then it waits for more, until there are as many as --nnodes allows, or until no
 * host has joined for last_call_timeout (--rdzv-conf). Then a round begins. The first launcher
 * sends each host its index and the number of ranks of each host (START), and starts mpirun.
 * mpirun's launch agent asks for a daemon on each other host (AGENT), and the launcher of that host
 * starts the daemon (DAEMON). A round ends when neither ranks nor daemons are running on any host
 * (IDLE).
 *
 * If a rank fails, a host is lost, or a launcher gets a signal, all launchers end their ranks
 * (STOP). When no rank is running on any host (QUIET), they end the daemons (KILL). The daemons
 * must not end earlier, because mpirun would then kill ranks that are still saving a checkpoint.
 * After a failure, if restarts are left, hosts are gathered again. */
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/hosts/heartbeat.h"
#include "src/hosts/job.h"
#include "src/hosts/local.h"
#include "src/hosts/members.h"
#include "src/launch/exit_code.h"

/* The output of MPI is shown after this delay. If the round ends before then because a rank failed,
 * only that failure is shown. */
static const double OUTPUT_DELAY_S = 1.0;
static const double DAEMONS_S = 5.0; /* time from the end of mpirun until daemons are killed */
/* A batch system sends a signal to all hosts, so each host may report it. A signal that another
 * host reports within this time after the first signal does not count as a second signal. */
static const double SAME_SIGNAL_S = 2.0;
static const double HELD_S = 15.0; /* how long a JOIN may wait for a free node rank */

enum {
    MOST_OUTPUT = 65536,
    MANY_HOSTS = 128 /* with more hosts, raise the limit of open files. Ranks inherit the limit, so
                        do not change it for smaller jobs */
};

typedef enum stage {
    STAGE_GATHERING,
    STAGE_RUNNING,
    STAGE_STOPPING, /* ranks are ending */
    STAGE_KILLING,  /* daemons are ending */
    STAGE_ENDED
} stage;

typedef struct first {
    fsdp_hosts_job *job;
    fsdp_local local;
    int listener;
    fsdp_members members;
    stage stage;
    double gathering_s, last_join_s; /* when gathering began, and when the last host joined */
    double kill_s;                   /* time at which daemons are killed; INFINITY: not yet */
    int round, restarts;  /* round: number of the next round. restarts: number of restarts after
                             failures so far */
    int n_hosts, n_ranks; /* in this round */
    int signal_number;    /* the signal that ends the job; 0: none */
    const fsdp_member *signalled; /* the host that got the signal; the pointer is only compared,
                                     never dereferenced */
    double signalled_s;           /* time at which the signal came */
    bool mpi_failed; /* `cause` only says that mpirun or a daemon failed: show `output`, too */
    bool pointless, grows; /* pointless: a restart would fail, too; grows: the round ends so that a
                              new host can take part */
    char cause[2600];      /* why the round ends; "": no failure */
    int ends;              /* bits of fsdp_hosts_ends: how ranks ended after the stop */
    char how[2600];        /* describes the first failure of a rank after the stop; "": no
                              rank has failed */
    fsdp_str output;       /* output of MPI that was not shown yet */
    double output_s;       /* when the first byte of `output` came */
    int exit_code;
} first;

static void handle_message(first *f, fsdp_member *from, const fsdp_hosts_message *m);
static void lose(first *f, fsdp_member *m, const char *why);

/* ---- sending ---- */

static void send_to(first *f, fsdp_member *m, const fsdp_hosts_message *message)
{
    if (m->is_first || m->gone || m->link.stage != FSDP_LINK_OPEN)
        return;
    if (fsdp_link_send(&m->link, message) != FSDP_OK)
        lose(f, m, fsdp_last_error());
}

static void send_numbers(first *f, fsdp_member *m, fsdp_hosts_kind kind, const int32_t *ints, int n)
{
    const fsdp_hosts_message message = {.kind = kind, .ints = ints, .n_ints = n};
    send_to(f, m, &message);
}

/* Send a message with one text. It has one integer, *number, unless `number` is NULL. */
static void send_text(first *f, fsdp_member *m, fsdp_hosts_kind kind, const int32_t *number,
                      const char *text)
{
    const char *texts[] = {text};
    const fsdp_hosts_message message = {
        .kind = kind, .ints = number, .n_ints = number ? 1 : 0, .texts = texts, .n_texts = 1};
    send_to(f, m, &message);
}

/* ---- what MPI prints ---- */

static void show_output(first *f)
{
    if (f->output.len)
        fprintf(stderr, "%s", f->output.data);
    fsdp_str_fini(&f->output);
}

static void keep_output(first *f, const fsdp_member *from, const char *text)
{
    if (!f->output.len)
        f->output_s = fsdp_clock_s();
    if (f->output.len > MOST_OUTPUT)
        show_output(f);
    if (!from->is_first)
        fsdp_str_printf(&f->output, "fsdp launch: MPI on host %s: ", from->host);
    fsdp_str_append(&f->output, text, strlen(text));
    if (f->output.failed)
        show_output(f);
}

/* ---- ending a round ---- */

static void stop_all(first *f, int signal_number)
{
    const int32_t ints[] = {f->local.shape.round, signal_number};
    for (size_t i = 0; i < f->members.count; i++)
        if (f->members.list[i]->index > 0)
            send_numbers(f, f->members.list[i], FSDP_HOSTS_STOP, ints, 2);
    if (signal_number == SIGKILL)
        fsdp_local_kill(&f->local);
    else
        fsdp_local_stop(&f->local, signal_number);
}

static void kill_all(first *f)
{
    const int32_t round = f->local.shape.round;
    f->stage = STAGE_KILLING;
    f->kill_s = (double)INFINITY;
    for (size_t i = 0; i < f->members.count; i++)
        if (f->members.list[i]->index > 0)
            send_numbers(f, f->members.list[i], FSDP_HOSTS_KILL, &round, 1);
    fsdp_local_kill(&f->local);
}

/* End the round because of `cause`, unless it is ending already. */
static void end_round(first *f, int signal_number, const char *cause)
{
    if (f->stage != STAGE_RUNNING)
        return;
    f->stage = STAGE_STOPPING;
    snprintf(f->cause, sizeof f->cause, "%s", cause);
    if (!f->mpi_failed)
        fprintf(stderr, "fsdp launch: %s\n", f->cause);
    stop_all(f, signal_number);
}

static void rank_failed(first *f, const fsdp_hosts_message *m)
{
    if (m->ints[0] != f->local.shape.round)
        return;
    const bool explains =
        f->mpi_failed && (f->stage == STAGE_STOPPING || f->stage == STAGE_KILLING);
    if (f->stage == STAGE_RUNNING || explains) {
        f->mpi_failed = false;
        f->pointless = m->ints[2] != 0;
    }
    if (explains) {
        snprintf(f->cause, sizeof f->cause, "%s", m->texts[0]);
        fprintf(stderr, "fsdp launch: %s\n", f->cause);
    }
    end_round(f, 0, m->texts[0]);
}

static void signalled(first *f, const fsdp_member *from, int number)
{
    char text[512];
    /* A batch system signals all hosts. So ignore the same signal of another host. */
    if (f->signal_number && from != f->signalled && fsdp_clock_s() - f->signalled_s < SAME_SIGNAL_S)
        return;
    if (f->signal_number && f->stage == STAGE_GATHERING)
        return; /* there are no ranks to kill, and advance_gathering() ends the job */
    if (f->signal_number && f->stage != STAGE_ENDED) {
        stop_all(f, SIGKILL);
        kill_all(f);
        return;
    }
    f->signal_number = number;
    f->signalled = from;
    f->signalled_s = fsdp_clock_s();
    snprintf(text, sizeof text, "host %s got signal %d (%s)", from->host, number,
             strsignal(number));
    if (f->stage == STAGE_RUNNING) {
        fprintf(stderr, "fsdp launch: ending %d ranks (a second signal kills)\n", f->n_ranks);
        end_round(f, number, text);
    } else if (f->stage == STAGE_GATHERING) {
        snprintf(f->cause, sizeof f->cause, "%s", text);
    }
}

static void mpirun_ended(first *f, int exit_code)
{
    char text[256];
    f->kill_s = fsdp_clock_s() + DAEMONS_S;
    if (exit_code == 0 || f->stage != STAGE_RUNNING)
        return;
    snprintf(text, sizeof text, "%s ended with exit code %d", f->job->mpi.name, exit_code);
    f->mpi_failed = true;
    end_round(f, 0, text);
}

/* MPI's daemon on another host has ended. If it failed, end the round, because mpirun may not
 * notice that a daemon could not start. */
static void daemon_ended(first *f, const fsdp_member *from, int exit_code)
{
    char text[512];
    fsdp_local_answer_agent(&f->local, from->label, exit_code);
    if (exit_code == 0 || f->stage != STAGE_RUNNING)
        return;
    snprintf(text, sizeof text, "host %s: the daemon of %s ended with exit code %d", from->host,
             f->job->mpi.name, exit_code);
    f->mpi_failed = true;
    end_round(f, 0, text);
}

/* Handle the loss of a launcher, which has closed its connection or does not answer. */
static void lose(first *f, fsdp_member *m, const char *why)
{
    char text[1200];
    if (m->gone)
        return;
    const bool joined = m->joined;
    m->gone = true;
    m->joined = false;
    if (!joined)
        return;
    if (!m->quiet)
        f->ends |= FSDP_ENDS_OTHER;
    snprintf(text, sizeof text, "host %s is lost: %s", m->host, why);
    if (f->stage == STAGE_RUNNING && m->index >= 0)
        end_round(f, 0, text);
    else
        fprintf(stderr, "fsdp launch: %s\n", text);
}

/* ---- joining ---- */

static void welcome(first *f, fsdp_member *m)
{
    char text[600];
    f->last_join_s = fsdp_clock_s();
    fprintf(stderr, "fsdp launch: host %s (%s) has joined: %d of %d hosts\n", m->host, m->link.peer,
            fsdp_members_joined(&f->members), f->job->config->most_nodes);
    send_text(f, m, FSDP_HOSTS_WELCOME, NULL, f->job->host);
    if (f->stage != STAGE_RUNNING)
        return;
    /* As with torchrun, the job continues from its last checkpoint with one host more. */
    snprintf(text, sizeof text, "host %s joins: starting again with %d hosts", m->host,
             fsdp_members_joined(&f->members));
    f->grows = true;
    end_round(f, SIGTERM, text);
}

static void refuse(first *f, fsdp_member *m, const char *reason, int word)
{
    const int32_t index = word;
    fprintf(stderr, "fsdp launch: host %s (%s) is refused: %s\n", m->host, m->link.peer, reason);
    send_text(f, m, FSDP_HOSTS_REFUSED, &index, reason);
    fsdp_link_drain(&m->link, 0.2);
    m->gone = true;
}

static void try_join(first *f, fsdp_member *m, const fsdp_hosts_message *join)
{
    char reason[512];
    int word;
    const fsdp_join_answer answer =
        fsdp_members_join(&f->members, f->job, m, join, reason, sizeof reason, &word);
    const bool may_wait =
        f->job->config->max_restarts > 0 && fsdp_clock_s() - m->link.opened_s < HELD_S;
    if (answer == FSDP_JOIN_ACCEPTED)
        welcome(f, m);
    else if (answer == FSDP_JOIN_REFUSED || !may_wait)
        refuse(f, m, reason, word);
}

/* Try again to accept each JOIN that has to wait (fsdp_member.held). */
static void try_held(first *f)
{
    for (size_t i = 0; i < f->members.count; i++) {
        fsdp_member *m = f->members.list[i];
        if (!m->held.kind || m->gone)
            continue;
        try_join(f, m, &m->held);
        if (m->joined)
            fsdp_hosts_message_fini(&m->held);
    }
}

/* Copy a message, so that it can be kept longer than the original. */
static fsdp_status copy_message(const fsdp_hosts_message *m, fsdp_hosts_message *copy)
{
    fsdp_str bytes = {0};
    fsdp_hosts_encode(m, &bytes);
    fsdp_status status =
        bytes.failed ? fsdp_error_nomem() : fsdp_hosts_decode(bytes.data, bytes.len, copy);
    fsdp_str_fini(&bytes);
    return status;
}

static void asks_to_join(first *f, fsdp_member *m, const fsdp_hosts_message *join)
{
    try_join(f, m, join);
    if (!m->joined && !m->gone && copy_message(join, &m->held) != FSDP_OK)
        lose(f, m, fsdp_last_error());
}

/* ---- starting a round ---- */

/* Send every other host the START message: round, restarts, its index, MASTER_PORT, the number of
 * ranks of each host, and the run id. Also set f->n_ranks. */
static fsdp_status send_places(first *f, int master_port)
{
    int32_t *ints = fsdp_calloc((size_t)f->n_hosts + 4, sizeof *ints);
    if (!ints)
        return FSDP_ERR_NOMEM;
    f->n_ranks = 0;
    for (int i = 0; i < f->n_hosts; i++) {
        ints[4 + i] = fsdp_members_at(&f->members, i)->n_ranks;
        f->n_ranks += ints[4 + i];
    }
    const char *texts[] = {f->job->launch->run_id};
    ints[0] = f->round;
    ints[1] = f->restarts;
    ints[3] = master_port;
    for (int i = 1; i < f->n_hosts; i++) {
        fsdp_member *m = fsdp_members_at(&f->members, i);
        const fsdp_hosts_message start = {.kind = FSDP_HOSTS_START,
                                          .ints = ints,
                                          .n_ints = 4 + f->n_hosts,
                                          .texts = texts,
                                          .n_texts = 1};
        ints[2] = i;
        if (m)
            send_to(f, m, &start);
    }
    fsdp_free(ints);
    return FSDP_OK;
}

/* Start mpirun. Its launch agent is this program. On each host, the ranks that mpirun starts run
 * `fsdp launch-rank`. The launcher of the host has put the path of `fsdp` into the environment. */
static fsdp_status run_mpirun(first *f, const char *const *names, int *ranks)
{
    static const char *const command[] = {"/bin/sh", "-c", "exec \"$FSDP_LAUNCH_EXE\" launch-rank"};
    const double shutdown_s = f->job->launch->shutdown_timeout_s;
    char agent[64], address[128] = "";
    char **words;
    size_t n_words;
    for (int i = 0; i < f->n_hosts; i++)
        ranks[i] = fsdp_members_at(&f->members, i)->n_ranks;
    if (f->n_hosts > 1)
        fsdp_link_own_address(&fsdp_members_at(&f->members, 1)->link, address, sizeof address);
    snprintf(agent, sizeof agent, "/proc/%d/exe -x", (int)getpid());
    const fsdp_mpi_hosts hosts = {.count = f->n_hosts,
                                  .ranks = ranks,
                                  .names = names,
                                  .agent = agent,
                                  /* Hydra accepts no IPv6 address here. If it gets no address, it
                                   * finds one by the host's name. */
                                  .address = *address && !strchr(address, ':') ? address : NULL,
                                  .kill_timeout_s = isnan(shutdown_s) ? 2 : shutdown_s + 1};
    FSDP_TRY(
        fsdp_mpi_command(&f->job->mpi, &hosts, command, FSDP_LENGTH(command), &words, &n_words));
    fsdp_status status = fsdp_local_start(&f->local, f->job->mpi.starter, words);
    fsdp_names_free(words, n_words);
    return status;
}

static fsdp_status start_mpirun(first *f)
{
    const char **names = fsdp_calloc((size_t)f->n_hosts, sizeof *names);
    int *ranks = fsdp_calloc((size_t)f->n_hosts, sizeof *ranks);
    fsdp_status status = names && ranks ? FSDP_OK : FSDP_ERR_NOMEM;
    for (int i = 0; status == FSDP_OK && i < f->n_hosts; i++)
        names[i] = fsdp_members_at(&f->members, i)->label;
    if (status == FSDP_OK)
        status = run_mpirun(f, names, ranks);
    fsdp_free(names);
    fsdp_free(ranks);
    return status;
}

static void show_hosts(const first *f)
{
    fprintf(stderr, "fsdp launch: %d rank%s on %d host%s by %s:", f->n_ranks,
            f->n_ranks == 1 ? "" : "s", f->n_hosts, f->n_hosts == 1 ? "" : "s", f->job->mpi.name);
    for (int i = 0; i < f->n_hosts; i++) {
        const fsdp_member *m = fsdp_members_at(&f->members, i);
        fprintf(stderr, "%s %s (%d)", i ? "," : "", m->host, m->n_ranks);
    }
    fputc('\n', stderr);
}

static fsdp_status begin_round(first *f)
{
    int port;
    FSDP_TRY(fsdp_free_port(&port));
    f->n_hosts = fsdp_members_number(&f->members);
    f->stage = STAGE_RUNNING;
    f->kill_s = (double)INFINITY;
    f->cause[0] = f->how[0] = 0;
    f->ends = 0;
    f->mpi_failed = f->pointless = f->grows = false;
    for (size_t i = 0; i < f->members.count; i++)
        f->members.list[i]->quiet = f->members.list[i]->idle = false;
    FSDP_TRY(send_places(f, port));
    const fsdp_hosts_shape shape = {.round = f->round,
                                    .restarts = f->restarts,
                                    .n_hosts = f->n_hosts,
                                    .world_size = f->n_ranks,
                                    .n_local = f->job->launch->n_ranks,
                                    .master_port = port};
    fsdp_local_begin(&f->local, &shape);
    f->round++;
    if (f->stage != STAGE_RUNNING) {
        /* A host was lost while START was sent. The STOP that was then sent named the previous
         * round, so send STOP again for this round. */
        stop_all(f, 0);
        return FSDP_OK;
    }
    show_hosts(f);
    return start_mpirun(f);
}

/* ---- the end of the job ---- */

static void finish(first *f, int exit_code, const char *text)
{
    const int32_t code = exit_code;
    f->exit_code = exit_code;
    f->stage = STAGE_ENDED;
    for (size_t i = 0; i < f->members.count; i++) {
        fsdp_member *m = f->members.list[i];
        if (m->joined)
            send_text(f, m, FSDP_HOSTS_FINISH, &code, text);
    }
    for (size_t i = 0; i < f->members.count; i++)
        if (!f->members.list[i]->is_first && f->members.list[i]->joined)
            fsdp_link_drain(&f->members.list[i]->link, 1.0);
}

static void gather(first *f)
{
    f->stage = STAGE_GATHERING;
    f->gathering_s = f->last_join_s = fsdp_clock_s();
    const int missing = f->job->config->least_nodes - fsdp_members_joined(&f->members);
    if (missing > 0)
        fprintf(stderr, "fsdp launch: waiting at %s:%d for %d more host%s\n", f->job->endpoint.host,
                f->job->endpoint.port, missing, missing == 1 ? "" : "s");
}

/* End the job after a signal, with the exit code that a launcher of one host returns (judge() in
 * src/launch/supervisor.c). */
static void finish_after_signal(first *f)
{
    if (f->ends == FSDP_ENDS_FAILED) {
        fprintf(stderr, "fsdp launch: %s\n", f->how);
        finish(f, FSDP_EXIT_FAILURE, f->how);
    } else if (f->ends == 0 && f->signal_number == SIGUSR1 && f->job->launch->is_subcommand) {
        finish(f, FSDP_EXIT_OK, f->cause);
    } else {
        finish(f, fsdp_exit_of_signal(f->signal_number), f->cause);
    }
}

/* Called when the round has ended on all hosts. Gather hosts for another round, or end the job. */
static void round_ended(first *f)
{
    const int most = f->job->config->max_restarts;
    if (!*f->cause || f->mpi_failed || f->grows)
        show_output(f);
    else
        fsdp_str_fini(&f->output); /* only mpirun's messages about ranks that were ended */
    if (*f->cause && f->mpi_failed)
        fprintf(stderr, "fsdp launch: %s\n", f->cause);
    if (f->signal_number) {
        finish_after_signal(f);
    } else if (!*f->cause) {
        finish(f, FSDP_EXIT_OK, "");
    } else if (f->grows) {
        gather(f);
    } else if (f->pointless || f->restarts == most) {
        finish(f, FSDP_EXIT_FAILURE, f->cause);
    } else {
        f->restarts++;
        fprintf(stderr, "fsdp launch: starting all ranks again (restart %d of %d)\n", f->restarts,
                most);
        gather(f);
    }
}

/* Print which hosts have joined, and end the job. */
static void too_few_hosts(first *f)
{
    fsdp_str text = {0};
    fsdp_str_printf(&text,
                    "%d of at least %d hosts came within %.0f s (--rdzv-conf "
                    "join_timeout=S):",
                    fsdp_members_joined(&f->members), f->job->config->least_nodes,
                    f->job->config->join_timeout_s);
    for (size_t i = 0; i < f->members.count; i++)
        if (f->members.list[i]->joined)
            fsdp_str_printf(&text, " %s", f->members.list[i]->host);
    fprintf(stderr, "fsdp launch: %s\n", text.failed ? "not all hosts came" : text.data);
    finish(f, FSDP_EXIT_FAILURE, text.failed ? "not all hosts came" : text.data);
    fsdp_str_fini(&text);
}

/* ---- messages and time ---- */

static void give_daemon(first *f, const fsdp_hosts_message *m)
{
    for (size_t i = 0; i < f->members.count; i++) {
        fsdp_member *member = f->members.list[i];
        if (member->gone || member->index < 1 || strcmp(member->label, m->texts[0]) != 0)
            continue;
        const fsdp_hosts_message start = {
            .kind = FSDP_HOSTS_DAEMON, .texts = m->texts + 1, .n_texts = m->n_texts - 1};
        send_to(f, member, &start);
        return;
    }
    fsdp_local_answer_agent(&f->local, m->texts[0], FSDP_EXIT_FAILURE);
}

/* Handle the message that all ranks of a host have ended. */
static void member_is_quiet(first *f, fsdp_member *from, const fsdp_hosts_message *m)
{
    from->quiet = true;
    f->ends |= m->ints[1];
    if (*m->texts[0] && !*f->how)
        snprintf(f->how, sizeof f->how, "host %s: %s", from->host, m->texts[0]);
}

static void handle_message(first *f, fsdp_member *from, const fsdp_hosts_message *m)
{
    if (!from->joined && m->kind != FSDP_HOSTS_JOIN) {
        if (m->kind != FSDP_HOSTS_PING)
            from->gone = true;
        return;
    }
    const bool of_round = m->n_ints && m->ints[0] == f->local.shape.round && from->index >= 0;
    if (m->kind == FSDP_HOSTS_JOIN && !from->joined && !from->held.kind)
        asks_to_join(f, from, m);
    else if (m->kind == FSDP_HOSTS_OUTPUT)
        keep_output(f, from, m->texts[0]);
    else if (m->kind == FSDP_HOSTS_FAILED)
        rank_failed(f, m);
    else if (m->kind == FSDP_HOSTS_SIGNALLED)
        signalled(f, from, m->ints[0] > 0 && m->ints[0] < 64 ? m->ints[0] : SIGTERM);
    else if (m->kind == FSDP_HOSTS_DAEMON_ENDED && from->is_first)
        mpirun_ended(f, m->ints[1]);
    else if (m->kind == FSDP_HOSTS_DAEMON_ENDED)
        daemon_ended(f, from, m->ints[1]);
    else if (m->kind == FSDP_HOSTS_AGENT && from->is_first)
        give_daemon(f, m);
    else if (m->kind == FSDP_HOSTS_QUIET && of_round)
        member_is_quiet(f, from, m);
    else if (m->kind == FSDP_HOSTS_IDLE && of_round)
        from->idle = from->quiet = true;
}

static void report(void *arg, const fsdp_hosts_message *message)
{
    first *f = arg;
    handle_message(f, f->members.list[0], message);
}

static void read_member(first *f, fsdp_member *m)
{
    bool taken = true;
    fsdp_status status = fsdp_link_pump(&m->link);
    while (status == FSDP_OK && taken && !m->gone) {
        fsdp_hosts_message message;
        status = fsdp_link_take(&m->link, &message, &taken);
        if (status == FSDP_OK && taken) {
            handle_message(f, m, &message);
            fsdp_hosts_message_fini(&message);
        }
    }
    if (status != FSDP_OK && m->link.stage == FSDP_LINK_PROOF && status == FSDP_ERR_FORMAT)
        fprintf(stderr, "fsdp launch: refused: %s\n", fsdp_last_error());
    if (status != FSDP_OK)
        lose(f, m, m->joined ? "its fsdp launch has ended or was killed" : fsdp_last_error());
}

/* Send a sign of life to each other launcher. Treat a launcher that was silent for FSDP_LOST_S as
 * lost. */
static void beat(first *f)
{
    char text[80];
    for (size_t i = 0; i < f->members.count; i++) {
        fsdp_member *m = f->members.list[i];
        if (m->is_first || m->gone)
            continue;
        const double silent_s = fsdp_clock_s() - m->link.heard_s;
        if (fsdp_link_ping(&m->link) != FSDP_OK)
            lose(f, m, fsdp_last_error());
        if (silent_s < FSDP_LOST_S || !m->joined)
            continue;
        snprintf(text, sizeof text,
                 "it has not answered for %.0f s (stopped, or cut off from the network)", silent_s);
        lose(f, m, text);
    }
}

/* Return true if all members of this round are idle or, if `idle` is false, quiet. */
static bool all_are(const first *f, bool idle)
{
    for (size_t i = 0; i < f->members.count; i++) {
        const fsdp_member *m = f->members.list[i];
        if (!m->gone && m->index >= 0 && !(idle ? m->idle : m->quiet))
            return false;
    }
    return true;
}

static fsdp_status advance_gathering(first *f)
{
    const fsdp_launch_config *c = f->job->config;
    const int n = fsdp_members_joined(&f->members);
    const double now = fsdp_clock_s();
    if (f->signal_number)
        finish(f, fsdp_exit_of_signal(f->signal_number), f->cause);
    else if (n >= c->most_nodes || (n >= c->least_nodes && now - f->last_join_s > c->last_call_s))
        return begin_round(f);
    else if (n < c->least_nodes && now - f->gathering_s > c->join_timeout_s)
        too_few_hosts(f);
    return FSDP_OK;
}

static fsdp_status advance(first *f)
{
    const double now = fsdp_clock_s();
    if (f->output.len && !*f->cause && now - f->output_s > OUTPUT_DELAY_S)
        show_output(f);
    if (f->stage == STAGE_GATHERING)
        return advance_gathering(f);
    if (f->stage == STAGE_STOPPING && all_are(f, false))
        kill_all(f);
    if (f->stage == STAGE_RUNNING && now > f->kill_s)
        kill_all(f);
    if (f->stage != STAGE_ENDED && all_are(f, true))
        round_ended(f);
    return FSDP_OK;
}

/* ---- the loop ---- */

/* Wait up to 100 ms for events of this host, of the socket to which launchers connect, and of the
 * connections. Then handle the events. */
static fsdp_status wait_and_handle(first *f)
{
    const size_t n_local = fsdp_local_polled_count(&f->local), n_members = f->members.count;
    struct pollfd *polled = fsdp_calloc(n_local + 1 + n_members, sizeof *polled);
    if (!polled)
        return FSDP_ERR_NOMEM;
    const size_t at = fsdp_local_polled(&f->local, polled, n_local);
    polled[at] = (struct pollfd){.fd = f->listener, .events = POLLIN};
    for (size_t i = 0; i < n_members; i++) {
        const fsdp_link *link = &f->members.list[i]->link;
        polled[at + 1 + i] = (struct pollfd){.fd = link->fd, .events = fsdp_link_events(link)};
    }
    poll(polled, (nfds_t)(at + 1 + n_members), 100);
    fsdp_local_handle(&f->local);
    for (size_t i = 0; i < n_members; i++)
        if (polled[at + 1 + i].revents && !f->members.list[i]->gone)
            read_member(f, f->members.list[i]);
    if (polled[at].revents)
        fsdp_members_accept(&f->members, f->listener, f->job);
    fsdp_free(polled);
    return FSDP_OK;
}

/* If this launcher made the secret, print the line that users must type on the other hosts. */
static void show_secret(const fsdp_hosts_job *job)
{
    if (job->made_secret)
        fprintf(stderr,
                "fsdp launch: on each other host, put this word in front of the same command%s:\n"
                "    " FSDP_JOB_SECRET_ENV "=%s\n",
                job->config->has_node_rank ? " with its own --node-rank" : "", job->secret_text);
}

/* Raise the limit of open files as far as the system allows, because each connection needs one. */
static void allow_many_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static fsdp_status run(first *f)
{
    if (f->job->config->most_nodes > MANY_HOSTS)
        allow_many_files();
    FSDP_TRY(fsdp_members_init(&f->members, f->job));
    FSDP_TRY(fsdp_local_open(&f->local));
    show_secret(f->job);
    gather(f);
    while (f->stage != STAGE_ENDED) {
        FSDP_TRY(wait_and_handle(f));
        beat(f);
        try_held(f);
        fsdp_members_sweep(&f->members);
        FSDP_TRY(advance(f));
    }
    return FSDP_OK;
}

fsdp_status fsdp_hosts_run_first(fsdp_hosts_job *job, int listener, int *exit_code)
{
    first f = {.job = job,
               .listener = listener,
               .kill_s = (double)INFINITY,
               .local = {.launch = job->launch, .mpi = &job->mpi, .host = job->host}};
    f.local.report = report;
    f.local.arg = &f;
    fsdp_status status = run(&f);
    if (status != FSDP_OK) {
        char text[1024];
        snprintf(text, sizeof text, "host %s: %s", job->host, fsdp_last_error());
        finish(&f, FSDP_EXIT_FAILURE, text);
        status = fsdp_error(status, "%s", text);
    }
    show_output(&f);
    fsdp_local_close(&f.local);
    fsdp_members_fini(&f.members);
    close(listener);
    if (status == FSDP_OK)
        *exit_code = f.exit_code;
    return status;
}
