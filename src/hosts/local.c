/* See local.h. */
#include "src/hosts/local.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/hosts/local_socket.h"
#include "src/launch/exit_code.h"

static const double DAEMON_GRACE_S = 1.0; /* from SIGTERM to SIGKILL of a daemon */
static const double MARGIN_S = 3.0;

typedef enum kind {
    KIND_UNKNOWN, /* the process has not sent its first message yet */
    KIND_RANK,
    KIND_AGENT
} kind;

struct fsdp_local_process {
    int fd; /* -1: closed */
    pid_t pid;
    kind kind;
    fsdp_str in;
    int rank;      /* KIND_RANK */
    bool reported; /* KIND_RANK: the process has reported how its rank ended */
    char *host;    /* KIND_AGENT: name of the host for which the agent wants a daemon. Owned */
};

static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGTSTP, SIGCHLD};

/* ---- opening and closing ---- */

static fsdp_status open_signals(fsdp_local *local)
{
    struct sigaction hangup;
    sigset_t set;
    sigemptyset(&set);
    sigaction(SIGHUP, NULL, &hangup);
    for (size_t i = 0; i < FSDP_LENGTH(handled); i++)
        if (handled[i] != SIGHUP || hangup.sa_handler != SIG_IGN) /* ignored under nohup */
            sigaddset(&set, handled[i]);
    sigprocmask(SIG_BLOCK, &set, &local->mask);
    /* If the parent of this process ignores SIGCHLD, so does this process. Then the kernel would
     * discard how the daemon ended. */
    signal(SIGCHLD, SIG_DFL);
    local->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return local->signals < 0 ? fsdp_error(FSDP_ERR_IO, "signalfd: %s", strerror(errno)) : FSDP_OK;
}

/* Set the variables that MPI's daemons pass on to agents and ranks. */
static fsdp_status set_environment(const char *socket_name)
{
    char program[64];
    snprintf(program, sizeof program, "/proc/%d/exe", (int)getpid());
    if (setenv(FSDP_LAUNCH_EXE_ENV, program, 1) != 0 ||
        setenv(FSDP_LAUNCH_SOCKET_ENV, socket_name, 1) != 0)
        return fsdp_error_nomem();
    /* If the user started this launcher as root, the ranks run as root, too. Open MPI refuses this
     * without these variables. */
    if (geteuid() == 0 && (setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1) != 0 ||
                           setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1) != 0))
        return fsdp_error_nomem();
    return FSDP_OK;
}

fsdp_status fsdp_local_open(fsdp_local *local)
{
    char name[FSDP_LOCAL_NAME];
    local->signals = local->listener = local->daemon_pipe = -1;
    local->kill_ranks_s = local->kill_daemon_s = (double)INFINITY;
    FSDP_TRY(open_signals(local));
    FSDP_TRY(fsdp_local_socket_listen(&local->listener, name));
    return set_environment(name);
}

static void close_process(fsdp_local_process *p)
{
    if (p->fd >= 0)
        close(p->fd);
    fsdp_str_fini(&p->in);
    fsdp_free(p->host);
    *p = (fsdp_local_process){.fd = -1};
}

void fsdp_local_close(fsdp_local *local)
{
    for (size_t i = 0; i < local->n_processes; i++) {
        if (local->processes[i].kind == KIND_RANK && local->processes[i].fd >= 0)
            kill(local->processes[i].pid, SIGKILL);
        close_process(&local->processes[i]);
    }
    if (local->daemon > 0) {
        kill(-local->daemon, SIGKILL);
        waitpid(local->daemon, NULL, 0);
    }
    fsdp_free(local->processes);
    local->processes = NULL;
    local->n_processes = 0;
    if (local->daemon_pipe > 0)
        close(local->daemon_pipe);
    if (local->listener > 0)
        close(local->listener);
    if (local->signals > 0) {
        close(local->signals);
        sigprocmask(SIG_SETMASK, &local->mask, NULL);
    }
    local->signals = local->listener = local->daemon_pipe = -1;
    local->daemon = 0;
}

/* ---- reports ---- */

static void report_numbers(fsdp_local *local, fsdp_hosts_kind what, const int32_t *ints, int n)
{
    const fsdp_hosts_message message = {.kind = what, .ints = ints, .n_ints = n};
    local->report(local->arg, &message);
}

static void report_failure(fsdp_local *local, int rank, bool pointless, const char *how)
{
    char text[2400];
    snprintf(text, sizeof text, "host %s: %s", local->host, how);
    const char *texts[] = {text};
    const fsdp_hosts_message message = {.kind = FSDP_HOSTS_FAILED,
                                        .ints =
                                            (const int32_t[]){local->shape.round, rank, pointless},
                                        .n_ints = 3,
                                        .texts = texts,
                                        .n_texts = 1};
    local->report(local->arg, &message);
}

static size_t count_kind(const fsdp_local *local, kind wanted)
{
    size_t n = 0;
    for (size_t i = 0; i < local->n_processes; i++)
        n += local->processes[i].fd >= 0 && local->processes[i].kind == wanted;
    return n;
}

static void report_quiet(fsdp_local *local)
{
    const char *texts[] = {local->how};
    const fsdp_hosts_message message = {.kind = FSDP_HOSTS_QUIET,
                                        .ints = (const int32_t[]){local->shape.round, local->ends},
                                        .n_ints = 2,
                                        .texts = texts,
                                        .n_texts = 1};
    local->report(local->arg, &message);
}

/* Record how a rank has ended. `m` is its RESULT. */
static void record_end(fsdp_local *local, const fsdp_hosts_message *m)
{
    if (m->ints[0] == FSDP_EXIT_FAILURE) {
        local->ends |= FSDP_ENDS_FAILED;
        if (!*local->how)
            snprintf(local->how, sizeof local->how, "%s", m->texts[0]);
    } else if (m->ints[0] != FSDP_EXIT_OK) {
        local->ends |= FSDP_ENDS_OTHER;
    }
}

/* If no rank is running, report QUIET if the ranks were asked to end, and IDLE if the daemon has
 * ended. */
static void report_rest(fsdp_local *local)
{
    const int32_t round = local->shape.round;
    if (!local->in_round || count_kind(local, KIND_RANK))
        return;
    const bool daemon_ended = local->daemon_started && !local->daemon && local->daemon_pipe < 0;
    if (local->stopping && !local->quiet) {
        local->quiet = true;
        report_quiet(local);
    }
    if (daemon_ended ||
        (local->stopping && local->kill_daemon_s < (double)INFINITY && !local->daemon)) {
        local->in_round = false;
        report_numbers(local, FSDP_HOSTS_IDLE, &round, 1);
    }
}

/* ---- ranks and agents ---- */

static fsdp_status send_plan(fsdp_local *local, fsdp_local_process *p, int local_rank)
{
    fsdp_str plan = {0};
    fsdp_plan_encode(local->launch, &local->shape, local_rank, &plan);
    fsdp_status status = plan.failed ? fsdp_error_nomem() : FSDP_OK;
    if (status == FSDP_OK)
        status = fsdp_local_socket_send_plan(p->fd, plan.data, plan.len);
    fsdp_str_fini(&plan);
    return status;
}

static void begin_rank(fsdp_local *local, fsdp_local_process *p, const int32_t *place)
{
    const fsdp_hosts_shape *shape = &local->shape;
    char text[512];
    if (!local->in_round || local->stopping) {
        close_process(p);
        return;
    }
    p->kind = KIND_RANK;
    p->rank = place[0];
    if (place[1] != shape->world_size || place[2] < 0 || place[2] >= shape->n_local ||
        place[0] != shape->first_rank + place[2]) {
        snprintf(text, sizeof text,
                 "%s started local rank %d of %d as rank %d of %d, not as rank %d of %d: do "
                 "variables of MPI in the environment change the places of ranks?",
                 local->mpi->name, place[2], place[3], place[0], place[1],
                 shape->first_rank + place[2], shape->world_size);
        p->reported = true;
        report_failure(local, place[0], true, text);
        close_process(p);
    } else if (send_plan(local, p, place[2]) != FSDP_OK) {
        p->reported = true;
        report_failure(local, place[0], false, fsdp_last_error());
        close_process(p);
    }
}

static void handle_message(fsdp_local *local, fsdp_local_process *p, const fsdp_hosts_message *m)
{
    if (p->kind == KIND_UNKNOWN && m->kind == FSDP_HOSTS_RANK) {
        begin_rank(local, p, m->ints);
    } else if (p->kind == KIND_UNKNOWN && m->kind == FSDP_HOSTS_AGENT &&
               (p->host = fsdp_strdup(m->texts[0]))) {
        p->kind = KIND_AGENT;
        local->report(local->arg, m);
    } else if (p->kind == KIND_RANK && m->kind == FSDP_HOSTS_RESULT && !p->reported) {
        p->reported = true;
        record_end(local, m);
        if (m->ints[0] != 0 && !m->ints[1])
            report_failure(local, p->rank, m->ints[2] != 0, m->texts[0]);
    } else {
        close_process(p);
    }
}

/* Handle the end of a process, or of its connection. The process may have watched a rank without
 * reporting how the rank ended. In this case, record FSDP_ENDS_OTHER. Also report that the rank
 * failed, unless the ranks were asked to end. */
static void process_left(fsdp_local *local, fsdp_local_process *p)
{
    char text[128];
    if (p->kind == KIND_RANK && !p->reported && !local->stopping) {
        snprintf(text, sizeof text, "rank %d: the process that watches it (pid %d) was killed",
                 p->rank, (int)p->pid);
        report_failure(local, p->rank, false, text);
    }
    if (p->kind == KIND_RANK && !p->reported)
        local->ends |= FSDP_ENDS_OTHER;
    close_process(p);
}

static void read_process(fsdp_local *local, size_t i)
{
    /* Handling a message may close the descriptor, so check it before each message. */
    while (local->processes[i].fd >= 0) {
        fsdp_local_process *p = &local->processes[i];
        fsdp_hosts_message m;
        bool taken, ended;
        fsdp_status status = fsdp_local_socket_take(p->fd, &p->in, &m, &taken, &ended);
        if (status == FSDP_OK && taken) {
            handle_message(local, p, &m);
            fsdp_hosts_message_fini(&m);
        } else if (status != FSDP_OK || ended) {
            process_left(local, p);
        } else {
            return;
        }
    }
}

static void accept_processes(fsdp_local *local)
{
    int fd;
    pid_t pid;
    while (fsdp_local_socket_accept(local->listener, &fd, &pid)) {
        if (!FSDP_GROW(local->processes, local->cap, local->n_processes + 1)) {
            close(fd);
            return;
        }
        local->processes[local->n_processes++] = (fsdp_local_process){.fd = fd, .pid = pid};
    }
}

static void remove_closed(fsdp_local *local)
{
    size_t n = 0;
    for (size_t i = 0; i < local->n_processes; i++)
        if (local->processes[i].fd >= 0)
            local->processes[n++] = local->processes[i];
    local->n_processes = n;
}

void fsdp_local_answer_agent(fsdp_local *local, const char *host, int exit_code)
{
    for (size_t i = 0; i < local->n_processes; i++) {
        fsdp_local_process *p = &local->processes[i];
        const unsigned char byte = (unsigned char)exit_code;
        if (p->fd < 0 || p->kind != KIND_AGENT || strcmp(p->host, host) != 0)
            continue;
        (void)!send(p->fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        close_process(p);
    }
}

/* ---- MPI's daemon ---- */

/* In the child: leave the terminal's process group, so that Ctrl-C reaches only the launcher. Then
 * restore the signals, and become the daemon. */
static _Noreturn void run_daemon(const fsdp_local *local, const char *program, char **words,
                                 int output, pid_t launcher)
{
    static const int defaults[] = {SIGINT, SIGTERM, SIGQUIT, SIGCHLD, SIGPIPE, SIGTSTP, SIGXFSZ};
    const struct sigaction action = {.sa_handler = SIG_DFL}, ignored = {.sa_handler = SIG_IGN};
    const int nothing = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 ||
        dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0)
        _exit(126);
    for (size_t i = 0; i < FSDP_LENGTH(defaults); i++)
        sigaction(defaults[i], &action, NULL);
    /* A batch system sends SIGUSR1 to the daemon, too. Without a handler, the daemon would end. */
    sigaction(SIGUSR1, &ignored, NULL);
    sigprocmask(SIG_SETMASK, &local->mask, NULL);
    execv(program, words);
    dprintf(STDERR_FILENO, "fsdp launch: cannot start %s: %s\n", program, strerror(errno));
    _exit(127);
}

fsdp_status fsdp_local_start(fsdp_local *local, const char *program, char **words)
{
    int ends[2];
    const pid_t launcher = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0)
        return fsdp_error(FSDP_ERR_IO, "pipe: %s", strerror(errno));
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0)
        run_daemon(local, program, words, ends[1], launcher);
    close(ends[1]);
    if (pid < 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) {
        close(ends[0]);
        return fsdp_error(FSDP_ERR_IO, "cannot start %s: %s", program, strerror(errno));
    }
    setpgid(pid, pid);
    local->daemon = pid;
    local->daemon_pipe = ends[0];
    local->daemon_started = true;
    return FSDP_OK;
}

/* Report what the daemon has written. */
static void read_output(fsdp_local *local)
{
    char text[8192];
    while (local->daemon_pipe >= 0) {
        const ssize_t n = read(local->daemon_pipe, text, sizeof text - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            close(local->daemon_pipe);
            local->daemon_pipe = -1;
            return;
        }
        for (ssize_t i = 0; i < n; i++)
            if (!text[i])
                text[i] = '?';
        text[n] = 0;
        const char *texts[] = {text};
        const fsdp_hosts_message message = {
            .kind = FSDP_HOSTS_OUTPUT, .texts = texts, .n_texts = 1};
        local->report(local->arg, &message);
    }
}

static void reap_daemon(fsdp_local *local)
{
    int status;
    siginfo_t info = {0};
    if (local->daemon <= 0 ||
        waitid(P_PID, (id_t)local->daemon, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
        return;
    /* Kill agents and other processes that the daemon started and left behind. Until waitpid(), no
     * other process group gets the daemon's number. */
    kill(-local->daemon, SIGKILL);
    waitpid(local->daemon, &status, 0);
    local->daemon = 0;
    read_output(local);
    /* A process that the daemon left behind may still have the pipe open. */
    if (local->daemon_pipe >= 0)
        close(local->daemon_pipe);
    local->daemon_pipe = -1;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    report_numbers(local, FSDP_HOSTS_DAEMON_ENDED, (const int32_t[]){local->shape.round, code}, 2);
}

/* ---- rounds ---- */

void fsdp_local_begin(fsdp_local *local, const fsdp_hosts_shape *shape)
{
    local->shape = *shape;
    local->in_round = true;
    local->stopping = local->quiet = local->daemon_started = false;
    local->ends = 0;
    local->how[0] = 0;
    local->kill_ranks_s = local->kill_daemon_s = (double)INFINITY;
}

static double shutdown_s(const fsdp_local *local, int signal_number)
{
    const double given = local->launch->shutdown_timeout_s;
    return !isnan(given) ? given : signal_number ? 30.0 : 2.0;
}

void fsdp_local_stop(fsdp_local *local, int signal_number)
{
    const unsigned char byte = (unsigned char)signal_number;
    if (!local->in_round)
        return;
    local->stopping = true;
    for (size_t i = 0; i < local->n_processes; i++) {
        const fsdp_local_process *p = &local->processes[i];
        if (p->fd >= 0 && p->kind == KIND_RANK)
            (void)!send(p->fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    /* The process that watches a rank sends it SIGTERM and SIGKILL in time. If the watching process
     * itself is stopped, it is killed at kill_ranks_s. */
    const double end_s = fsdp_clock_s() + 2 * shutdown_s(local, signal_number) + MARGIN_S;
    if (end_s < local->kill_ranks_s)
        local->kill_ranks_s = end_s;
}

static void kill_ranks(fsdp_local *local)
{
    for (size_t i = 0; i < local->n_processes; i++)
        if (local->processes[i].fd >= 0 && local->processes[i].kind == KIND_RANK)
            kill(local->processes[i].pid, SIGKILL);
    local->kill_ranks_s = (double)INFINITY;
}

void fsdp_local_kill(fsdp_local *local)
{
    if (!local->in_round)
        return;
    local->stopping = true;
    kill_ranks(local);
    if (local->daemon > 0) {
        kill(-local->daemon, SIGTERM);
        kill(-local->daemon, SIGCONT);
    }
    if (!(local->kill_daemon_s < (double)INFINITY))
        local->kill_daemon_s = fsdp_clock_s() + DAEMON_GRACE_S;
}

/* ---- events ---- */

size_t fsdp_local_polled_count(const fsdp_local *local)
{
    return 3 + local->n_processes;
}

size_t fsdp_local_polled(const fsdp_local *local, struct pollfd *polled, size_t most)
{
    size_t n = 0;
    FSDP_ASSERT(most >= fsdp_local_polled_count(local));
    polled[n++] = (struct pollfd){.fd = local->signals, .events = POLLIN};
    polled[n++] = (struct pollfd){.fd = local->listener, .events = POLLIN};
    polled[n++] = (struct pollfd){.fd = local->daemon_pipe, .events = POLLIN};
    for (size_t i = 0; i < local->n_processes; i++)
        polled[n++] = (struct pollfd){.fd = local->processes[i].fd, .events = POLLIN};
    return n;
}

static void read_signals(fsdp_local *local)
{
    struct signalfd_siginfo info;
    while (read(local->signals, &info, sizeof info) == sizeof info) {
        const int32_t number = (int32_t)info.ssi_signo;
        if (number == SIGTSTP)
            fprintf(stderr, "fsdp launch: a job of several hosts cannot be stopped: the other "
                            "hosts would take this one for lost\n");
        else if (number == SIGHUP && local->hangup)
            continue; /* when a terminal is closed, its shell and the kernel each send a SIGHUP */
        else if (number != SIGCHLD)
            report_numbers(local, FSDP_HOSTS_SIGNALLED, &number, 1);
        local->hangup |= number == SIGHUP;
    }
}

void fsdp_local_handle(fsdp_local *local)
{
    const double now = fsdp_clock_s();
    read_signals(local);
    accept_processes(local);
    for (size_t i = 0; i < local->n_processes; i++)
        read_process(local, i);
    remove_closed(local);
    read_output(local);
    reap_daemon(local);
    if (now > local->kill_ranks_s)
        kill_ranks(local);
    if (now > local->kill_daemon_s && local->daemon > 0)
        kill(-local->daemon, SIGKILL);
    report_rest(local);
}
