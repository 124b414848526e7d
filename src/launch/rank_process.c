/* Starts a rank with the environment that torchrun would give it, sends it signals, and finds out
 * how it ended. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/launch/launch.h"

extern char **environ;

/* The environment of a rank. The first `borrowed` entries belong to the launcher's environment.
 * This struct owns the entries after them. */
typedef struct environment {
    char **entries; /* NULL-terminated */
    size_t count, cap, borrowed;
} environment;

/* Return true if `entry` must not be copied from the launcher's environment, because the launcher
 * sets its variable for each rank. */
static bool set_by_us(const char *entry)
{
    static const char *const names[] = {
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_NAME",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_USE_AGENT_STORE",
        "TORCHELASTIC_ERROR_FILE",
        "TORCHELASTIC_SIGNALS_TO_HANDLE",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "OMP_NUM_THREADS",
        "FSDP_LAUNCHER_PID",
        FSDP_RENDEZVOUS_ENV,
        FSDP_LAUNCH_EXE_ENV,
        FSDP_LAUNCH_SOCKET_ENV,
        FSDP_LAUNCH_ROUND_ENV,
        FSDP_LAUNCH_OMP_ENV,
    };
    size_t length = strcspn(entry, "=");
    for (size_t i = 0; i < FSDP_LENGTH(names); i++)
        if (strlen(names[i]) == length && strncmp(names[i], entry, length) == 0)
            return true;
    return false;
}

static bool append(environment *env, char *entry)
{
    if (!entry || !FSDP_GROW(env->entries, env->cap, env->count + 2))
        return false;
    env->entries[env->count++] = entry;
    env->entries[env->count] = NULL;
    return true;
}

static bool add_variable(environment *env, const char *name, const char *value)
{
    char *entry = fsdp_strdup_printf("%s=%s", name, value);
    if (append(env, entry))
        return true;
    fsdp_free(entry);
    return false;
}

static bool add_int(environment *env, const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    return add_variable(env, name, text);
}

static void environment_fini(environment *env)
{
    for (size_t i = env->borrowed; i < env->count; i++)
        fsdp_free(env->entries[i]);
    fsdp_free(env->entries);
}

static bool add_omp_threads(environment *env, const fsdp_launch *launch)
{
    const char *given = getenv("OMP_NUM_THREADS");
    if (launch->omp_num_threads)
        return add_int(env, "OMP_NUM_THREADS", launch->omp_num_threads);
    if (given)
        return add_variable(env, "OMP_NUM_THREADS", given);
    const int n = launch->share ? launch->share->local_world_size : launch->n_ranks;
    return n == 1 || (add_variable(env, "OMP_NUM_THREADS", "1") &&
                      add_variable(env, FSDP_LAUNCH_OMP_ENV, "1"));
}

/* Add the variables that torchrun sets. There is one difference: torchrun's agent runs a store on
 * MASTER_PORT, and this launcher does not. If a program needs the store, its rank 0 must create
 * it. */
static bool add_torchrun(environment *env, const fsdp_launch *launch, int index, int round)
{
    const fsdp_launch_share *share = launch->share;
    const int n = share ? share->world_size : launch->n_ranks;
    const int rank = fsdp_launch_rank_of(launch, index);
    return add_int(env, "RANK", rank) &&
           add_int(env, "LOCAL_RANK", fsdp_launch_local_rank_of(launch, index)) &&
           add_int(env, "WORLD_SIZE", n) &&
           add_int(env, "LOCAL_WORLD_SIZE", share ? share->local_world_size : n) &&
           add_int(env, "GROUP_RANK", share ? share->group_rank : 0) &&
           add_int(env, "GROUP_WORLD_SIZE", share ? share->group_world_size : 1) &&
           add_variable(env, "ROLE_NAME", launch->role) && add_int(env, "ROLE_RANK", rank) &&
           add_int(env, "ROLE_WORLD_SIZE", n) &&
           add_variable(env, "MASTER_ADDR", launch->master_addr) &&
           add_int(env, "MASTER_PORT", launch->master_port) &&
           add_int(env, "TORCHELASTIC_RESTART_COUNT", share ? share->restarts : round) &&
           add_int(env, FSDP_LAUNCH_ROUND_ENV, round) &&
           add_int(env, "TORCHELASTIC_MAX_RESTARTS", launch->max_restarts) &&
           add_variable(env, "TORCHELASTIC_RUN_ID", launch->run_id) &&
           add_variable(env, "TORCHELASTIC_USE_AGENT_STORE", "False") &&
           add_variable(env, "TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT") &&
           add_variable(env, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1") &&
           add_omp_threads(env, launch);
}

static fsdp_status make_environment(const fsdp_launch *launch, const fsdp_rendezvous *rendezvous,
                                    const fsdp_rank_process *process, int round, environment *env)
{
    for (char **entry = environ; *entry; entry++) {
        if (set_by_us(*entry))
            continue;
        if (!append(env, *entry))
            return fsdp_error_nomem();
        env->borrowed = env->count;
    }
    size_t size = fsdp_rendezvous_env_size(rendezvous);
    char *meeting = fsdp_calloc(size, 1);
    if (!meeting)
        return fsdp_error_nomem();
    fsdp_rendezvous_child_env(rendezvous, process->rank, meeting, size);
    /* Ranks of several hosts communicate by MPI and need no rendezvous. */
    bool added = (launch->share || add_variable(env, FSDP_RENDEZVOUS_ENV, meeting)) &&
                 add_int(env, "FSDP_LAUNCHER_PID", (int)getpid()) &&
                 add_variable(env, "TORCHELASTIC_ERROR_FILE", process->error_path) &&
                 add_torchrun(env, launch, process->rank, round);
    fsdp_free(meeting);
    return added ? FSDP_OK : fsdp_error_nomem();
}

/* What the child needs between fork and exec. All of it is prepared before fork, because the child
 * may call only async-signal-safe functions. */
typedef struct child_plan {
    const fsdp_launch *launch;
    fsdp_rendezvous *rendezvous;
    const fsdp_rank_process *process;
    const sigset_t *mask;
    char **argv, **envp;
    const char *program;
    pid_t launcher;
    int stdio[2];    /* descriptors that replace stdout and stderr; -1: keep the launcher's */
    int stdin_fd;    /* descriptor that replaces stdin; -1: keep the launcher's */
    int report_pipe; /* the child writes errno here if exec fails */
} child_plan;

/* Set the signal mask. Also reset the handlers of the signals in `numbers` to the default, because
 * the launcher may have been started with some of these signals ignored. SIGHUP is not in
 * `numbers`: if the launcher was started with nohup, it ignores SIGHUP, and the rank must ignore
 * SIGHUP, too. */
static void reset_signals(const sigset_t *mask)
{
    static const int numbers[] = {SIGINT,  SIGTERM, SIGQUIT, SIGUSR1, SIGCHLD,
                                  SIGPIPE, SIGTSTP, SIGCONT, SIGXFSZ};
    struct sigaction action = {.sa_handler = SIG_DFL};
    for (size_t i = 0; i < FSDP_LENGTH(numbers); i++)
        sigaction(numbers[i], &action, NULL);
    sigprocmask(SIG_SETMASK, mask, NULL);
}

static _Noreturn void child_fails(const child_plan *plan)
{
    int error = errno;
    ssize_t written = write(plan->report_pipe, &error, sizeof error);
    _exit(written == sizeof error ? 127 : 126);
}

static _Noreturn void run_child(const child_plan *plan)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != plan->launcher) /* the launcher died before the call of prctl() */
        _exit(126);
    reset_signals(plan->mask);
    if (plan->stdin_fd >= 0 && dup2(plan->stdin_fd, STDIN_FILENO) < 0)
        child_fails(plan);
    for (int i = 0; i < 2; i++)
        if (plan->stdio[i] >= 0 && dup2(plan->stdio[i], STDOUT_FILENO + i) < 0)
            child_fails(plan);
    if (plan->launch->cpus) /* errors are ignored, because a processor may have gone offline */
        sched_setaffinity(0, sizeof(cpu_set_t), &plan->launch->cpus[plan->process->rank]);
    if (plan->process->error_fd >= 0)
        fcntl(plan->process->error_fd, F_SETFD, 0);
    fsdp_rendezvous_child(plan->rendezvous, plan->process->rank);
    execve(plan->program, plan->argv, plan->envp);
    child_fails(plan);
}

/* Return the words of the command, with "fsdp" before a subcommand. The caller frees the array.
 * Return NULL when out of memory. */
static char **make_argv(const fsdp_launch *launch)
{
    static char self[] = "fsdp";
    size_t count = 0, at = 0;
    while (launch->command[count])
        count++;
    char **argv = fsdp_calloc(count + 2, sizeof *argv);
    if (!argv)
        return NULL;
    if (launch->is_subcommand)
        argv[at++] = self;
    memcpy(argv + at, launch->command, count * sizeof *argv);
    return argv;
}

/* Wait until exec has closed the child's end of the pipe. If exec failed, the child writes errno to
 * the pipe, and this function returns the error. */
static fsdp_status wait_for_exec(int report, const child_plan *plan, fsdp_rank_process *process)
{
    int error = 0;
    ssize_t n;
    do {
        n = read(report, &error, sizeof error);
    } while (n < 0 && errno == EINTR);
    if (n <= 0)
        return FSDP_OK;
    waitpid(process->pid, &process->status, 0);
    process->pid = 0;
    return fsdp_error(error == ENOENT ? FSDP_ERR_NOT_FOUND : FSDP_ERR_IO, "cannot start %s: %s",
                      plan->argv[0], strerror(error));
}

static fsdp_status fork_rank(child_plan *plan, fsdp_rank_process *process)
{
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0)
        return fsdp_error(FSDP_ERR_IO, "pipe: %s", strerror(errno));
    plan->report_pipe = report[1];
    plan->launcher = getpid();
    fflush(NULL);
    process->pid = fork();
    if (process->pid == 0)
        run_child(plan);
    close(report[1]);
    fsdp_status status = FSDP_OK;
    if (process->pid < 0) {
        status = fsdp_error(FSDP_ERR_IO, "fork: %s", strerror(errno));
        process->pid = 0;
    } else {
        /* The launcher and the child both put the child into its own process group. So the group
         * exists, whichever of the two processes runs first. */
        setpgid(process->pid, process->pid);
        status = wait_for_exec(report[0], plan, process);
    }
    close(report[0]);
    return status;
}

/* Return the descriptor that becomes the rank's stdin, or -1 if the rank keeps the launcher's
 * stdin. Only rank 0 keeps it, and only if it is not a terminal: ranks are not in the terminal's
 * foreground process group, so they may not read from it. All other ranks read from /dev/null. */
static int open_stdin(int rank)
{
    return rank == 0 && !isatty(STDIN_FILENO) ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
}

fsdp_status fsdp_rank_start(const fsdp_launch *launch, fsdp_rendezvous *rendezvous, int rank,
                            int round, const sigset_t *mask, fsdp_rank_process *process)
{
    environment env = {0};
    child_plan plan = {.launch = launch,
                       .rendezvous = rendezvous,
                       .process = process,
                       .mask = mask,
                       .stdin_fd = -1,
                       .program = launch->is_subcommand ? "/proc/self/exe" : launch->program};
    *process = (fsdp_rank_process){.rank = rank};
    fsdp_status status = fsdp_rank_output_open(launch, round, process, plan.stdio);
    if (status == FSDP_OK)
        status = make_environment(launch, rendezvous, process, round, &env);
    if (status == FSDP_OK && !(plan.argv = make_argv(launch)))
        status = fsdp_error_nomem();
    if (status == FSDP_OK) {
        plan.envp = env.entries;
        plan.stdin_fd = open_stdin(fsdp_launch_rank_of(launch, rank));
        status = fork_rank(&plan, process);
    }
    for (int i = 0; i < 2; i++)
        if (plan.stdio[i] >= 0)
            close(plan.stdio[i]);
    if (plan.stdin_fd >= 0)
        close(plan.stdin_fd);
    fsdp_free(plan.argv);
    environment_fini(&env);
    return status;
}

void fsdp_rank_signal(const fsdp_rank_process *process, int signal_number)
{
    if (process->pid > 0 && !process->ended)
        kill(-process->pid, signal_number);
}

bool fsdp_rank_reap(fsdp_rank_process *process, bool and_children)
{
    siginfo_t info = {0};
    if (process->pid <= 0 || process->ended)
        return false;
    /* The pid stays reserved until waitpid, so SIGKILL cannot reach another process group. */
    if (waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
        return false;
    if (and_children || info.si_code != CLD_EXITED || info.si_status != 0)
        kill(-process->pid, SIGKILL);
    waitpid(process->pid, &process->status, 0);
    process->ended = true;
    return true;
}

bool fsdp_rank_has_stopped(const fsdp_rank_process *process)
{
    siginfo_t info = {0};
    return process->pid > 0 && !process->ended &&
           waitid(P_PID, (id_t)process->pid, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid != 0;
}

bool fsdp_rank_has_continued(const fsdp_rank_process *process)
{
    siginfo_t info = {0};
    return process->pid > 0 && !process->ended &&
           waitid(P_PID, (id_t)process->pid, &info, WCONTINUED | WNOHANG) == 0 && info.si_pid != 0;
}

void fsdp_rank_describe_exit(const fsdp_rank_process *process, char *text, size_t size)
{
    int status = process->status;
    if (WIFSIGNALED(status))
        snprintf(text, size, "was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(text, size, "exited with status %d", WEXITSTATUS(status));
}
