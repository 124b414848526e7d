/* A launcher that is not the first one of its job. It joins the first launcher, starts MPI's daemon
 * when the first launcher asks for it, and ends its ranks when the first launcher says so or is
 * lost. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/hosts/heartbeat.h"
#include "src/hosts/job.h"
#include "src/hosts/link.h"
#include "src/hosts/local.h"
#include "src/launch/exit_code.h"

static const double RETRY_S = 0.25;

typedef struct other {
    fsdp_hosts_job *job;
    fsdp_local local;
    fsdp_link link;
    bool joined;  /* JOIN was sent over this link */
    bool welcome; /* the first launcher has accepted this launcher */
    bool ended;   /* the job has ended, and exit_code is set */
    bool again;   /* the connection ended before the first launcher answered: connect again */
    bool lost;    /* the first launcher is lost; this host is ending its ranks */
    int exit_code;
    char first[FSDP_HOST_NAME]; /* name of the first host; "": unknown */
    char why[512];              /* how the first launcher was lost */
} other;

static const char *first_name(const other *o)
{
    return *o->first ? o->first : o->job->endpoint.host;
}

static void end_job(other *o, int exit_code)
{
    o->ended = true;
    o->exit_code = exit_code;
}

/* ---- to the first launcher ---- */

static void lose_first(other *o, const char *why);

static void send_message(other *o, const fsdp_hosts_message *message)
{
    if (o->link.fd >= 0 && o->link.stage == FSDP_LINK_OPEN && !o->lost &&
        fsdp_link_send(&o->link, message) != FSDP_OK)
        lose_first(o, fsdp_last_error());
}

/* Handle the loss of the first launcher, whose connection has ended or which does not answer.
 * Without the first launcher, this host cannot continue, so its ranks are ended. */
static void lose_first(other *o, const char *why)
{
    if (o->lost)
        return;
    o->lost = true;
    snprintf(o->why, sizeof o->why, "%s", why);
    fsdp_link_close(&o->link);
    fprintf(stderr, "fsdp launch: the first host, %s, is lost: %s; ending the ranks of this host\n",
            first_name(o), o->why);
    if (o->local.in_round)
        fsdp_local_stop(&o->local, 0);
}

/* Handle a message about what happens on this host. */
static void report(void *arg, const fsdp_hosts_message *m)
{
    other *o = arg;
    if (m->kind == FSDP_HOSTS_SIGNALLED && (!o->local.in_round || o->lost)) {
        end_job(o, fsdp_exit_of_signal(m->ints[0]));
    } else if (o->lost && m->kind == FSDP_HOSTS_QUIET) {
        fsdp_local_kill(&o->local);
    } else if (m->kind == FSDP_HOSTS_SIGNALLED) {
        fprintf(stderr,
                "fsdp launch: %s: asking the first host, %s, to end the job (a second "
                "signal kills)\n",
                strsignal(m->ints[0]), first_name(o));
        send_message(o, m);
    } else if (m->kind != FSDP_HOSTS_AGENT) { /* agents run on the first host only */
        send_message(o, m);
    }
}

static fsdp_status join(other *o)
{
    const fsdp_hosts_job *job = o->job;
    const fsdp_launch_config *c = job->config;
    const int node_rank = c->has_node_rank && !c->rdzv_endpoint ? c->node_rank : -1;
    const int32_t ints[] = {node_rank, job->launch->n_ranks, c->least_nodes, c->most_nodes,
                            c->max_restarts};
    const char **texts = fsdp_calloc(4 + job->n_words, sizeof *texts);
    if (!texts)
        return FSDP_ERR_NOMEM;
    texts[0] = FSDP_VERSION;
    texts[1] = job->host;
    texts[2] = job->launch->run_id;
    texts[3] = job->mpi.name;
    for (size_t i = 0; i < job->n_words; i++)
        texts[4 + i] = job->words[i].digest;
    const fsdp_hosts_message message = {.kind = FSDP_HOSTS_JOIN,
                                        .ints = ints,
                                        .n_ints = (int)FSDP_LENGTH(ints),
                                        .texts = texts,
                                        .n_texts = (int)(4 + job->n_words)};
    fsdp_status status = fsdp_link_send(&o->link, &message);
    fsdp_free(texts);
    o->joined = status == FSDP_OK;
    return status;
}

/* ---- from the first launcher ---- */

static void begin_round(other *o, const fsdp_hosts_message *m)
{
    fsdp_hosts_shape shape = {.round = m->ints[0],
                              .restarts = m->ints[1],
                              .group_rank = m->ints[2],
                              .n_hosts = m->n_ints - 4,
                              .master_port = m->ints[3],
                              .n_local = o->job->launch->n_ranks};
    for (int i = 0; i < shape.n_hosts; i++) {
        shape.first_rank += i < shape.group_rank ? m->ints[4 + i] : 0;
        shape.world_size += m->ints[4 + i];
    }
    fprintf(stderr, "fsdp launch: host %d of %d, ranks %d to %d of %d, by %s\n", shape.group_rank,
            shape.n_hosts, shape.first_rank, shape.first_rank + shape.n_local - 1, shape.world_size,
            o->job->mpi.name);
    fsdp_local_begin(&o->local, &shape);
}

/* Start MPI's daemon with the arguments that the first launcher sent. */
static void start_daemon(other *o, const fsdp_hosts_message *m)
{
    char **words = fsdp_calloc((size_t)m->n_texts + 1, sizeof *words);
    fsdp_status status = words ? fsdp_mpi_check_daemon(&o->job->mpi, m->texts[0]) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && !o->local.in_round)
        status = fsdp_error(FSDP_ERR_INVALID, "there is no round");
    if (status == FSDP_OK) {
        memcpy(words, m->texts, (size_t)m->n_texts * sizeof *words);
        status = fsdp_local_start(&o->local, o->job->mpi.daemon, words);
    }
    fsdp_free(words);
    if (status == FSDP_OK)
        return;
    char text[1024];
    snprintf(text, sizeof text, "host %s: %s", o->job->host, fsdp_last_error());
    const char *texts[] = {text};
    const fsdp_hosts_message failed = {.kind = FSDP_HOSTS_FAILED,
                                       .ints = (const int32_t[]){o->local.shape.round, -1, 1},
                                       .n_ints = 3,
                                       .texts = texts,
                                       .n_texts = 1};
    send_message(o, &failed);
}

static void refused(other *o, const fsdp_hosts_message *m)
{
    const int index = m->ints[0];
    fprintf(stderr, "fsdp launch: %s: the first host, %s, refused this one: %s", o->link.peer,
            first_name(o), m->texts[0]);
    if (index >= 0 && (size_t)index < o->job->n_words)
        fprintf(stderr, "; here it is %s", o->job->words[index].shown);
    fputc('\n', stderr);
    end_job(o, FSDP_EXIT_FAILURE);
}

static void handle_message(other *o, const fsdp_hosts_message *m)
{
    const bool of_round = o->local.in_round && m->n_ints && m->ints[0] == o->local.shape.round;
    switch (m->kind) {
    case FSDP_HOSTS_WELCOME:
        snprintf(o->first, sizeof o->first, "%s", m->texts[0]);
        if (!o->welcome)
            fprintf(stderr, "fsdp launch: joined %s\n", o->first);
        o->welcome = true;
        break;
    case FSDP_HOSTS_REFUSED:
        refused(o, m);
        break;
    case FSDP_HOSTS_START:
        if (m->ints[2] >= 0 && m->ints[2] < m->n_ints - 4 && !o->local.in_round)
            begin_round(o, m);
        break;
    case FSDP_HOSTS_DAEMON:
        start_daemon(o, m);
        break;
    case FSDP_HOSTS_STOP:
        if (of_round && m->ints[1] == SIGKILL)
            fsdp_local_kill(&o->local);
        else if (of_round)
            fsdp_local_stop(&o->local, m->ints[1]);
        break;
    case FSDP_HOSTS_KILL:
        if (of_round)
            fsdp_local_kill(&o->local);
        break;
    case FSDP_HOSTS_FINISH:
        if (*m->texts[0])
            fprintf(stderr, "fsdp launch: %s\n", m->texts[0]);
        end_job(o, m->ints[0]);
        break;
    default: /* a sign of life */
        break;
    }
}

static fsdp_status pump_link(other *o)
{
    bool taken = true;
    FSDP_TRY(fsdp_link_pump(&o->link));
    if (o->link.stage == FSDP_LINK_OPEN && !o->joined)
        FSDP_TRY(join(o));
    while (taken && !o->ended) {
        fsdp_hosts_message m;
        FSDP_TRY(fsdp_link_take(&o->link, &m, &taken));
        if (!taken)
            break;
        handle_message(o, &m);
        fsdp_hosts_message_fini(&m);
        if (o->lost)
            return FSDP_OK;
    }
    return fsdp_link_ping(&o->link);
}

/* ---- the loop ---- */

/* Wait for something to happen on this host or on the link, and handle it. */
static fsdp_status wait_and_handle(other *o)
{
    const size_t most = fsdp_local_polled_count(&o->local) + 1;
    struct pollfd *polled = fsdp_calloc(most, sizeof *polled);
    if (!polled)
        return FSDP_ERR_NOMEM;
    size_t n = fsdp_local_polled(&o->local, polled, most);
    if (o->link.fd >= 0)
        polled[n++] = (struct pollfd){.fd = o->link.fd, .events = fsdp_link_events(&o->link)};
    poll(polled, (nfds_t)n, 100);
    fsdp_free(polled);
    fsdp_local_handle(&o->local);
    return FSDP_OK;
}

/* Return true if this launcher may continue after `status`, the result of its last use of the link.
 * Before the first launcher has welcomed it, every error except a closed connection is final: the
 * secret differs, or another program listens at the endpoint. */
static bool check_link(other *o, fsdp_status status)
{
    char text[64];
    if (o->lost || o->ended)
        return true;
    if (status == FSDP_OK) {
        const double silent_s = fsdp_clock_s() - o->link.heard_s;
        if (silent_s < FSDP_LOST_S)
            return true;
        snprintf(text, sizeof text, "it has not answered for %.0f s", silent_s);
        if (!o->welcome) {
            (void)fsdp_error(FSDP_ERR_COMM, "%s: %s", o->link.peer, text);
            return false;
        }
        lose_first(o, text);
        return true;
    }
    /* The first launcher closes connections if it gets too many at a time. It may also be starting
     * again. In both cases, connect again. */
    o->again = !o->welcome && status == FSDP_ERR_COMM;
    if (!o->welcome && !o->again)
        return false;
    if (!o->again)
        lose_first(o, fsdp_last_error());
    return true;
}

/* Take part in the job until it has ended, until the first launcher is lost and nothing is running
 * here any more, or until this launcher must connect again. */
static fsdp_status take_part(other *o)
{
    while (!o->ended && !o->again && !(o->lost && !o->local.in_round)) {
        FSDP_TRY(wait_and_handle(o));
        if (!o->lost && !o->ended) {
            const fsdp_status status = pump_link(o);
            if (!check_link(o, status))
                return status == FSDP_OK ? FSDP_ERR_COMM : status;
        }
    }
    return FSDP_OK;
}

/* Wait for RETRY_S, or until a signal arrives. */
static void wait_before_retry(other *o)
{
    struct pollfd signals = {.fd = o->local.signals, .events = POLLIN};
    poll(&signals, 1, (int)(RETRY_S * 1e3));
    fsdp_local_handle(&o->local);
}

/* Connect to the first launcher, which may not have started yet. Try until the time `end_s`. */
static fsdp_status connect_to_first(other *o, double end_s)
{
    const fsdp_hosts_job *job = o->job;
    bool announced = false;
    int fd = -1;
    while (!o->ended) {
        const double left_s = end_s - fsdp_clock_s();
        FSDP_TRY(fsdp_endpoint_connect(&job->endpoint, job->config->local_addr,
                                       left_s < 1 ? (left_s > 0 ? left_s : 0) : 1, &fd));
        if (fd >= 0)
            return fsdp_link_init(&o->link, fd, false, &job->secret);
        if (left_s <= 0)
            return fsdp_error(FSDP_ERR_COMM,
                              "the first host did not come within %.0f s (--rdzv-conf "
                              "join_timeout=S): %s",
                              job->config->join_timeout_s, fsdp_last_error());
        if (!announced)
            fprintf(stderr, "fsdp launch: waiting for the first host at %s:%d\n",
                    job->endpoint.host, job->endpoint.port);
        announced = true;
        wait_before_retry(o);
    }
    return FSDP_OK;
}

/* Return true if the first launcher was lost, but this one may join it again when it is back. */
static bool may_come_back(const other *o)
{
    return o->lost && !o->ended && o->job->config->max_restarts > 0;
}

static fsdp_status join_and_run(other *o)
{
    const double wait_s = o->job->config->join_timeout_s;
    double end_s = fsdp_clock_s() + wait_s;
    do {
        if (o->lost)
            end_s = fsdp_clock_s() + wait_s;
        if (o->again)
            wait_before_retry(o);
        fsdp_link_close(&o->link);
        o->lost = o->joined = o->welcome = o->again = false;
        FSDP_TRY(connect_to_first(o, end_s));
        if (o->ended)
            return FSDP_OK;
        FSDP_TRY(take_part(o));
        if (o->again && fsdp_clock_s() > end_s)
            return fsdp_error(FSDP_ERR_COMM, "the first host did not answer within %.0f s", wait_s);
    } while (o->again || may_come_back(o));
    if (o->lost && !o->ended)
        end_job(o, FSDP_EXIT_FAILURE);
    return FSDP_OK;
}

fsdp_status fsdp_hosts_run_other(fsdp_hosts_job *job, int *exit_code)
{
    other o = {.job = job,
               .link = {.fd = -1},
               .local = {.launch = job->launch, .mpi = &job->mpi, .host = job->host}};
    o.local.report = report;
    o.local.arg = &o;
    fsdp_status status = fsdp_local_open(&o.local);
    if (status == FSDP_OK)
        status = join_and_run(&o);
    fsdp_local_close(&o.local);
    if (o.link.fd >= 0)
        fsdp_link_drain(&o.link, 1.0);
    fsdp_link_close(&o.link);
    if (status == FSDP_OK)
        *exit_code = o.exit_code;
    return status;
}
