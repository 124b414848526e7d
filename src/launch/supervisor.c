/* Watches the ranks of one attempt. A single poll loop reads signals (from a signalfd) and the
 * ranks' output (from the pipes of fsdp_tee).
 *
 * Note [How a job ends]. A job succeeds if all ranks exit with 0. If a rank dies or fails, the
 * launcher posts an abort in the rendezvous (src/comm/rendezvous.h). Peers that wait for the rank
 * then get an error and exit by themselves. ABORT_GRACE_S after the abort, ranks that still run get
 * SIGTERM. After the shutdown timeout they get SIGKILL. A rank that never joined a group does not
 * see the abort, so it gets SIGTERM at once. Ranks may also post a failure: their own, or that of a
 * peer, for example if the peer is stopped. The launcher looks for such a failure every POLL_MS.
 *
 * If the launcher gets SIGINT, SIGTERM, SIGHUP, SIGQUIT or SIGUSR1, it passes the signal on to the
 * ranks. They then have the shutdown timeout to end their step and save a checkpoint. After this
 * time they get SIGTERM, and after another shutdown timeout SIGKILL. SIGTERM must not be sent
 * earlier, because ranks would treat it as a second signal. A second signal to the launcher kills
 * the ranks. If the launcher dies, the ranks die, too (PR_SET_PDEATHSIG). */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/comm/environment.h"
#include "src/launch/exit_code.h"
#include "src/launch/launch.h"

enum {
    POLL_MS = 100
};
static const double ABORT_GRACE_S = 2.0; /* from the abort to SIGTERM */
/* The default shutdown timeout after a signal is as long as that of torchrun, because ranks may
 * have to save something. */
static const double SHUTDOWN_AFTER_SIGNAL_S = 30.0;
static const double SHUTDOWN_AFTER_FAILURE_S = 2.0;

typedef enum stage {
    STAGE_RUNNING,
    STAGE_ASKED, /* an abort was posted or a signal was passed on */
    STAGE_TERMINATED,
    STAGE_KILLED
} stage;

typedef struct supervisor {
    const fsdp_launch *launch;
    fsdp_rendezvous *rendezvous;
    fsdp_rank_process *ranks; /* [n_ranks] */
    int n, running;
    /* [1 + 2 n + 1]: the signalfd, two pipes per rank, and the socket to this host's launcher */
    struct pollfd *polled;
    stage stage;
    double next_stage_s;   /* time (fsdp_clock_s()) at which the next stage begins */
    double most_stopped_s; /* for how long a rank may be stopped; INFINITY: without limit */
    int signal_passed_on;
    /* true: MPI's daemon or the launcher of this host has reported that the job failed
     * elsewhere. */
    bool ended_by_others;
    /* The first rank that failed without having been sent a signal by the launcher; -1: none. */
    int first_failed;
    char posted[128]; /* message of the abort that the launcher posted; "": none */
} supervisor;

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1};

static bool failed(const fsdp_rank_process *p)
{
    return p->ended && !(WIFEXITED(p->status) && WEXITSTATUS(p->status) == 0);
}

static void signal_all(supervisor *s, int number)
{
    for (int i = 0; i < s->n; i++) {
        if (s->ranks[i].ended)
            continue;
        s->ranks[i].was_signalled = true;
        fsdp_rank_signal(&s->ranks[i], number);
    }
}

/* Let stopped ranks continue, because a stopped process reacts neither to a signal nor to an
 * abort. */
static void continue_all(const supervisor *s)
{
    for (int i = 0; i < s->n; i++)
        fsdp_rank_signal(&s->ranks[i], SIGCONT);
}

/* Send SIGTERM to ranks that have not joined a group yet, because they do not see an abort. */
static void terminate_unjoined_ranks(supervisor *s)
{
    for (int i = 0; i < s->n; i++) {
        if (s->ranks[i].ended || fsdp_rendezvous_rank_state(s->rendezvous, i) != FSDP_RANK_STARTING)
            continue;
        s->ranks[i].was_signalled = true;
        fsdp_rank_signal(&s->ranks[i], SIGTERM);
    }
}

static void ask_to_end(supervisor *s, double grace_s)
{
    if (s->stage != STAGE_RUNNING)
        return;
    s->stage = STAGE_ASKED;
    s->next_stage_s = fsdp_clock_s() + grace_s;
    /* A rank that is stopped cannot end, so let all ranks continue. A stopped rank may even be the
     * cause of the failure, because a peer that waits for a stopped rank posts a failure. */
    continue_all(s);
}

static double shutdown_timeout_s(const supervisor *s)
{
    if (!isnan(s->launch->shutdown_timeout_s))
        return s->launch->shutdown_timeout_s;
    return s->signal_passed_on ? SHUTDOWN_AFTER_SIGNAL_S : SHUTDOWN_AFTER_FAILURE_S;
}

static void advance_stage(supervisor *s)
{
    if (s->stage == STAGE_RUNNING || s->stage == STAGE_KILLED || fsdp_clock_s() < s->next_stage_s)
        return;
    if (s->stage == STAGE_ASKED) {
        s->stage = STAGE_TERMINATED;
        s->next_stage_s = fsdp_clock_s() + shutdown_timeout_s(s);
        signal_all(s, SIGTERM);
        continue_all(s);
    } else {
        s->stage = STAGE_KILLED;
        signal_all(s, SIGKILL);
    }
}

static void post_abort(supervisor *s, int rank, const char *how)
{
    fsdp_rendezvous_report report;
    if (fsdp_rendezvous_failure(s->rendezvous, &report))
        return;
    snprintf(s->posted, sizeof s->posted, "%s", how);
    fsdp_rendezvous_abort(s->rendezvous, rank, how);
}

/* Record that a rank has ended. Post an abort if the rank failed or if it exited without leaving
 * its group. The other ranks then end, too. */
static void rank_ended(supervisor *s, int rank)
{
    fsdp_rank_process *p = &s->ranks[rank];
    char how[128];
    s->running--;
    fsdp_rank_describe_exit(p, how, sizeof how);
    if (failed(p)) {
        if (s->first_failed < 0 && !p->was_signalled)
            s->first_failed = rank;
        post_abort(s, rank, how);
        if (s->stage == STAGE_RUNNING)
            terminate_unjoined_ranks(s);
        ask_to_end(s, ABORT_GRACE_S);
    } else if (s->stage != STAGE_RUNNING ||
               fsdp_rendezvous_rank_state(s->rendezvous, rank) == FSDP_RANK_JOINED) {
        /* Without the abort, a peer that waits for this rank in a collective would wait forever. */
        post_abort(s, rank,
                   s->stage == STAGE_RUNNING ? "ended without leaving its process group"
                                             : "ended because the job was interrupted");
    }
}

/* Post an abort if a rank has exited without joining the group and other ranks have joined. The
 * ranks that have joined wait for all ranks, so without the abort they would wait forever. */
static void abort_if_rank_never_joined(supervisor *s)
{
    int never_joined = -1;
    bool joined = false;
    for (int i = 0; i < s->n; i++) {
        fsdp_rank_state state = fsdp_rendezvous_rank_state(s->rendezvous, i);
        if (s->ranks[i].ended && state == FSDP_RANK_STARTING)
            never_joined = i;
        joined |= !s->ranks[i].ended && state == FSDP_RANK_JOINED;
    }
    if (never_joined < 0 || !joined)
        return;
    post_abort(s, never_joined, "ended without joining the process group");
    ask_to_end(s, ABORT_GRACE_S);
}

/* Record that a rank has been stopped or continues. If it is stopped for too long, kill it, because
 * it does not react to anything else, and end the job. Peers on this host notice the stop earlier,
 * if the rank has joined the group. */
static void watch_stops(supervisor *s, int rank)
{
    fsdp_rank_process *p = &s->ranks[rank];
    char how[128];
    if (fsdp_rank_has_stopped(p)) {
        fprintf(stderr, "fsdp launch: rank %d (pid %d) is stopped; its peers wait for it\n",
                fsdp_launch_rank_of(s->launch, rank), (int)p->pid);
        p->stopped_s = fsdp_clock_s();
    }
    if (fsdp_rank_has_continued(p))
        p->stopped_s = 0;
    const double stopped_s = p->stopped_s > 0 ? fsdp_clock_s() - p->stopped_s : 0;
    if (stopped_s <= s->most_stopped_s || s->stage != STAGE_RUNNING)
        return;
    snprintf(how, sizeof how, "has not moved for %.1f s (stopped by a signal or a debugger)",
             stopped_s);
    post_abort(s, rank, how);
    p->was_signalled = true;
    fsdp_rank_signal(p, SIGKILL);
    ask_to_end(s, ABORT_GRACE_S);
}

static void reap(supervisor *s)
{
    for (int i = 0; i < s->n; i++) {
        if (fsdp_rank_reap(&s->ranks[i], s->stage != STAGE_RUNNING))
            rank_ended(s, i);
        else
            watch_stops(s, i);
    }
}

/* Return true if this process watches one rank for the launcher of its host. */
static bool has_launcher(const supervisor *s)
{
    return s->launch->share && s->launch->share->parent_fd >= 0;
}

static void pass_on(supervisor *s, int number)
{
    /* When a terminal is closed, its shell and the kernel each send a SIGHUP. */
    if (number == SIGHUP && s->signal_passed_on == SIGHUP)
        return;
    if (s->signal_passed_on) {
        s->stage = STAGE_KILLED;
        signal_all(s, SIGKILL);
        return;
    }
    s->signal_passed_on = number;
    /* If this process has a parent launcher, that launcher prints the line. */
    if (!has_launcher(s))
        fprintf(stderr, "%sfsdp launch: %s: ending %d rank%s (a second signal kills)\n",
                isatty(STDERR_FILENO) ? "\n" : "", strsignal(number), s->running,
                s->running == 1 ? "" : "s");
    signal_all(s, number);
    ask_to_end(s, shutdown_timeout_s(s));
}

/* Handle SIGTSTP: stop the ranks and the launcher, and continue the ranks when the launcher
 * continues. Each rank has its own process group, so Ctrl-Z in a terminal reaches only the
 * launcher. */
static void stop_and_continue(supervisor *s)
{
    for (int i = 0; i < s->n; i++)
        fsdp_rank_signal(&s->ranks[i], SIGSTOP);
    raise(SIGSTOP);
    for (int i = 0; i < s->n; i++) {
        /* The user stopped this rank by pressing Ctrl-Z, so reap() must not report the stop.
         * fsdp_rank_has_stopped() returns true only once for each stop. After this call, it returns
         * false in reap(). */
        fsdp_rank_has_stopped(&s->ranks[i]);
        fsdp_rank_signal(&s->ranks[i], SIGCONT);
    }
}

/* End the ranks because the job failed elsewhere. */
static void end_with_others(supervisor *s)
{
    if (s->stage != STAGE_RUNNING)
        return;
    s->ended_by_others = true;
    s->stage = STAGE_TERMINATED;
    s->next_stage_s = fsdp_clock_s() + shutdown_timeout_s(s);
    signal_all(s, SIGTERM);
    continue_all(s);
}

/* Read a byte from the launcher of this host, and do what it means
 * (fsdp_launch_share.parent_fd). */
static void read_parent(supervisor *s, struct pollfd *parent)
{
    unsigned char number;
    const ssize_t n = recv(parent->fd, &number, 1, MSG_DONTWAIT);
    if (n == 1 && number == 0) {
        end_with_others(s);
    } else if (n == 1) {
        pass_on(s, number);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        parent->fd = -1;
        s->ended_by_others = true;
        s->stage = STAGE_KILLED;
        signal_all(s, SIGKILL);
    }
}

/* Read the signals that this process has received. If this process watches one rank for the
 * launcher of its host, that launcher passes on the user's signals (read_parent()). In this case,
 * only a signal from the parent, MPI's daemon, has an effect: it means that a rank has failed
 * elsewhere. Other signals are ignored, because a batch system may signal all processes of a job.
 * SIGUSR1 is always ignored, because mpirun merely passes it on. */
static void read_signals(supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->polled[0].fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            stop_and_continue(s);
        else if (info.ssi_signo == SIGCHLD)
            continue;
        else if (!has_launcher(s))
            pass_on(s, (int)info.ssi_signo);
        else if (info.ssi_signo != SIGUSR1 && info.ssi_pid == (uint32_t)getppid())
            end_with_others(s);
    }
}

static void watch(supervisor *s)
{
    fsdp_rendezvous_report report;
    while (s->running > 0) {
        for (int i = 0; i < 2 * s->n; i++)
            s->polled[1 + i].fd = s->ranks[i / 2].tee[i % 2].pipe; /* poll() skips -1 */
        struct pollfd *parent = &s->polled[1 + 2 * s->launch->n_ranks];
        if (poll(s->polled, 2 + 2 * (nfds_t)s->launch->n_ranks, POLL_MS) > 0) {
            if (parent->fd >= 0 && parent->revents)
                read_parent(s, parent);
            read_signals(s);
            for (int i = 0; i < 2 * s->n; i++)
                if (s->polled[1 + i].fd >= 0 && s->polled[1 + i].revents)
                    fsdp_tee_pump(&s->ranks[i / 2].tee[i % 2], s->launch, i / 2);
        }
        reap(s);
        if (s->stage == STAGE_RUNNING)
            abort_if_rank_never_joined(s);
        if (s->stage == STAGE_RUNNING && fsdp_rendezvous_failure(s->rendezvous, &report) &&
            !s->posted[0])
            ask_to_end(s, ABORT_GRACE_S);
        advance_stage(s);
    }
}

/* Set attempt->message, for example to "rank 1 (pid 7) was killed by signal 9 (Killed) at step 3,
 * encoder.block.2, unshard: message". */
static void describe_failure(const supervisor *s, fsdp_attempt *attempt)
{
    fsdp_rendezvous_report report = {.rank = -1};
    bool recorded = fsdp_rendezvous_failure(s->rendezvous, &report);
    int rank = recorded ? report.rank : s->first_failed;
    if (rank < 0 || rank >= s->n)
        rank = s->first_failed < 0 ? 0 : s->first_failed;
    const fsdp_rank_process *p = &s->ranks[rank];
    char how[128] = "", place[160] = "", said[1280] = "";
    if (failed(p) && !p->was_signalled)
        fsdp_rank_describe_exit(p, how, sizeof how);
    bool own_words = fsdp_rank_error_message(p, said, sizeof said);
    bool ours = s->posted[0] && strstr(report.message, s->posted);
    bool died = *how && WIFSIGNALED(p->status);
    /* A peer may have posted the failure of this rank. In this case, the error message of the rank
     * is its name, followed by the posted message. The name of the rank is printed anyway, so print
     * only the posted message. */
    if (own_words && recorded && strstr(said, report.message))
        own_words = false;
    if (!own_words && recorded && !ours && !died)
        snprintf(said, sizeof said, "%s", report.message);
    else if (!own_words && ours && !*how)
        snprintf(said, sizeof said, "%s", s->posted);
    if (recorded && (report.step || *report.unit || *report.call))
        snprintf(place, sizeof place, " at step %u%s%s%s%s", report.step, *report.unit ? ", " : "",
                 report.unit, *report.call ? ", " : "", report.call);
    snprintf(attempt->message, sizeof attempt->message, "rank %d (pid %d)%s%s%s%s%s",
             fsdp_launch_rank_of(s->launch, rank), (int)p->pid, *how ? " " : "", how, place,
             *said ? ": " : "", said);
    attempt->pointless = s->launch->is_subcommand && *how && WIFEXITED(p->status) &&
                         WEXITSTATUS(p->status) == FSDP_EXIT_USAGE;
}

/* Return true if a fault of the program has killed the process. */
static bool has_crashed(int status)
{
    const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return number == SIGSEGV || number == SIGBUS || number == SIGABRT || number == SIGFPE ||
           number == SIGILL;
}

/* Return true if the ranks of an fsdp command could not end as the signal asked, for example
 * because they could not write their last checkpoint, or crashed. A rank that has saved is killed
 * by the signal, or exits with FSDP_EXIT_AGAIN. */
static bool failed_after_signal(const supervisor *s)
{
    bool any = false;
    for (int i = 0; i < s->n; i++) {
        const int status = s->ranks[i].status;
        if (has_crashed(status)) {
            any = true;
            continue;
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status) == FSDP_EXIT_AGAIN)
            return false;
        any |= WEXITSTATUS(status) == FSDP_EXIT_FAILURE;
    }
    return s->launch->is_subcommand && any;
}

static void judge(const supervisor *s, fsdp_attempt *attempt)
{
    bool all_well = true;
    for (int i = 0; i < s->n; i++)
        all_well &= !failed(&s->ranks[i]);
    /* An fsdp command that SIGUSR1 interrupts exits with FSDP_EXIT_AGAIN. If all ranks exited with
     * 0, their work was done when the signal came, and there is nothing to start again. */
    const bool done = s->signal_passed_on == SIGUSR1 && all_well && s->launch->is_subcommand;
    *attempt = (fsdp_attempt){.interrupted = s->signal_passed_on || s->ended_by_others,
                              .failed_after_signal = s->signal_passed_on && failed_after_signal(s)};
    if (s->ended_by_others && !s->signal_passed_on) {
        attempt->exit_code = FSDP_EXIT_FAILURE;
    } else if (s->signal_passed_on && !attempt->failed_after_signal && !done) {
        attempt->exit_code = fsdp_exit_of_signal(s->signal_passed_on);
    } else if (!all_well) {
        attempt->exit_code = FSDP_EXIT_FAILURE;
        describe_failure(s, attempt);
    }
}

static fsdp_status start_all(supervisor *s, int round, const sigset_t *mask)
{
    for (int i = 0; i < s->n; i++) {
        fsdp_status status =
            fsdp_rank_start(s->launch, s->rendezvous, i, round, mask, &s->ranks[i]);
        s->running += s->ranks[i].pid > 0;
        if (status != FSDP_OK) {
            fsdp_rank_output_close(s->launch, &s->ranks[i]);
            s->n = i; /* count only the ranks that were started */
            return status;
        }
    }
    fsdp_rendezvous_forked(s->rendezvous);
    return FSDP_OK;
}

/* Block the signals that the poll loop handles, and open the signalfd. Set *before to the signal
 * mask before this call. If SIGHUP was ignored when the launcher started (nohup), the poll loop
 * does not handle it, and it stays ignored. */
static fsdp_status open_signals(supervisor *s, sigset_t *before)
{
    struct sigaction hangup;
    sigset_t handled;
    sigemptyset(&handled);
    sigaddset(&handled, SIGCHLD);
    sigaddset(&handled, SIGTSTP);
    sigaction(SIGHUP, NULL, &hangup);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        if (passed_on[i] != SIGHUP || hangup.sa_handler != SIG_IGN)
            sigaddset(&handled, passed_on[i]);
    sigprocmask(SIG_BLOCK, &handled, before);
    s->polled[0].fd = signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->polled[0].fd >= 0)
        return FSDP_OK;
    sigprocmask(SIG_SETMASK, before, NULL);
    return fsdp_error(FSDP_ERR_IO, "signalfd: %s", strerror(errno));
}

static fsdp_status run_attempt(supervisor *s, int round, fsdp_attempt *attempt)
{
    sigset_t before;
    FSDP_TRY(open_signals(s, &before));
    for (int i = 0; i < 2 * s->n; i++)
        s->polled[1 + i].events = POLLIN;
    fsdp_status status = start_all(s, round, &before);
    if (status != FSDP_OK)
        signal_all(s, SIGKILL);
    watch(s);
    if (status == FSDP_OK)
        judge(s, attempt);
    for (int i = 0; i < s->n; i++)
        fsdp_rank_output_close(s->launch, &s->ranks[i]);
    close(s->polled[0].fd);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}

/* Return for how long a rank may be stopped: a second longer than FSDP_STALL_S, so that peers on
 * this host report the stop first. Peers on another host wait longer, because the network could be
 * the reason. Ranks that run another program than fsdp may be stopped without limit, and so may a
 * rank for which no other rank waits. */
static double most_stopped_s(const fsdp_launch *launch)
{
    int64_t timeout_ns;
    double stall_s;
    const int n = launch->share ? launch->share->world_size : launch->n_ranks;
    if (!launch->is_subcommand || n == 1 || fsdp_read_limits(&timeout_ns, &stall_s) != FSDP_OK ||
        stall_s <= 0)
        return (double)INFINITY;
    return stall_s + 1;
}

fsdp_status fsdp_launch_attempt(const fsdp_launch *launch, int round, fsdp_attempt *attempt)
{
    size_t n = (size_t)launch->n_ranks;
    supervisor s = {.launch = launch,
                    .n = launch->n_ranks,
                    .first_failed = -1,
                    .most_stopped_s = most_stopped_s(launch)};
    fsdp_status status = fsdp_rendezvous_create(launch->n_ranks, &s.rendezvous);
    if (status != FSDP_OK)
        return status;
    s.ranks = fsdp_calloc(n, sizeof *s.ranks);
    s.polled = fsdp_calloc(2 + 2 * n, sizeof *s.polled);
    if (s.ranks && s.polled) {
        s.polled[0].events = s.polled[1 + 2 * n].events = POLLIN;
        s.polled[1 + 2 * n].fd = launch->share ? launch->share->parent_fd : -1;
        for (size_t i = 0; i < 2 * n; i++)
            s.polled[1 + i].fd = -1; /* in case not all ranks start */
        status = run_attempt(&s, round, attempt);
    } else {
        status = fsdp_error_nomem();
    }
    fsdp_free(s.polled);
    fsdp_free(s.ranks);
    fsdp_rendezvous_destroy(s.rendezvous);
    return status;
}
