/* See hostfile.h. */
#include "src/hosts/hostfile.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/comm/control.h"
#include "src/hosts/address.h"
#include "src/hosts/plan.h"
#include "src/launch/exit_code.h"

extern char **environ;

enum {
    MOST_FILE_BYTES = 1 << 20,
    MOST_HOSTS = 4096
};

/* ---- the list ---- */

/* Add `ranks` ranks of the host `name` [length]. If the host is already in the list, add `ranks` to
 * its number of ranks. */
static fsdp_status add_host(fsdp_host_list *list, const char *name, size_t length, int ranks)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strlen(list->names[i]) != length || strncmp(list->names[i], name, length) != 0)
            continue;
        list->ranks[i] += ranks;
        return list->ranks[i] <= FSDP_COMM_MAX_RANKS
                   ? FSDP_OK
                   : fsdp_error(FSDP_ERR_INVALID, "host %s has more than %d ranks", list->names[i],
                                FSDP_COMM_MAX_RANKS);
    }
    if (list->count == MOST_HOSTS)
        return fsdp_error(FSDP_ERR_INVALID, "more than %d hosts", MOST_HOSTS);
    char *copy = fsdp_strndup(name, length);
    if (!copy || !FSDP_GROW(list->ranks, list->ranks_cap, list->count + 1)) {
        fsdp_free(copy);
        return fsdp_error_nomem();
    }
    fsdp_status status = fsdp_names_add(&list->names, &list->count, &list->cap, copy);
    fsdp_free(copy);
    if (status == FSDP_OK)
        list->ranks[list->count - 1] = ranks;
    return status;
}

/* Return true if `name` [length] has only characters of host names and IPv4 addresses, and does not
 * begin with a dash. The name becomes a word of the command lines of mpirun and ssh. */
static bool is_name(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._", name[i]))
            return false;
    return length > 0 && *name != '-';
}

/* Read a number of ranks, whose text is [text, end). Return false if it is not valid. */
static bool read_count(const char *text, const char *end, int *ranks)
{
    char *after;
    const long n = strtol(text, &after, 10);
    *ranks = (int)n;
    return after == end && end > text && n >= 1 && n <= FSDP_COMM_MAX_RANKS;
}

/* Read an entry, which ends at `end`: HOST, HOST:N or, in a file, HOST slots=N. In a file, it
 * may also have max_slots=N. `ranks` is the number of ranks if the entry has no number. */
static fsdp_status read_entry(const char *entry, const char *end, int ranks, fsdp_host_list *list)
{
    const size_t length = strcspn(entry, ": \t,\r\n#");
    const char *at = entry + length, *name_end = at;
    bool valid = is_name(entry, length) && name_end <= end;
    if (valid && *at == ':' && at < end) {
        const char *stop = at + 1 + strcspn(at + 1, " \t,\r\n#");
        valid = read_count(at + 1, stop, &ranks);
        at = stop;
    }
    int most = FSDP_COMM_MAX_RANKS;
    while (valid && at < end && *(at += strspn(at, " \t\r")) && at < end) {
        const char *stop = at + strcspn(at, " \t,\r\n#");
        if (strncmp(at, "slots=", 6) == 0)
            valid = read_count(at + 6, stop, &ranks);
        else
            valid = (strncmp(at, "max_slots=", 10) == 0 || strncmp(at, "max-slots=", 10) == 0) &&
                    read_count(at + 10, stop, &most);
        at = stop;
    }
    if (!valid)
        return fsdp_error(FSDP_ERR_INVALID, "'%.*s' is not HOST, HOST:N or HOST slots=N",
                          (int)(end - entry), entry);
    if (ranks > most)
        return fsdp_error(FSDP_ERR_INVALID,
                          "'%.*s': the host may have %d ranks at most (max_slots), but has %d; "
                          "slots=N or --nproc-per-node N gives it fewer",
                          (int)(end - entry), entry, most, ranks);
    return add_host(list, entry, length, ranks);
}

static fsdp_status read_list(const fsdp_launch_config *c, fsdp_host_list *list)
{
    for (const char *at = c->hosts; *at; at += *at == ',') {
        const char *end = at + strcspn(at, ",");
        fsdp_status status = read_entry(at, end, c->n_ranks, list);
        if (status != FSDP_OK) {
            fsdp_error_context(status, "--hosts");
            return status;
        }
        at = end;
    }
    return FSDP_OK;
}

static fsdp_status read_lines(const fsdp_launch_config *c, const char *text, fsdp_host_list *list)
{
    int line = 1;
    for (const char *at = text; *at; at += *at == '\n', line++) {
        const char *next = at + strcspn(at, "\n");
        const char *end = at + strcspn(at, "\n#");
        at += strspn(at, " \t\r");
        while (end > at && strchr(" \t\r", end[-1]))
            end--;
        fsdp_status status = at < end ? read_entry(at, end, c->n_ranks, list) : FSDP_OK;
        if (status != FSDP_OK) {
            fsdp_error_context(status, "%s:%d", c->hostfile, line);
            return status;
        }
        at = next;
    }
    return FSDP_OK;
}

static fsdp_status read_file(const fsdp_launch_config *c, fsdp_host_list *list)
{
    char *text;
    size_t bytes;
    FSDP_TRY(fsdp_file_read(c->hostfile, MOST_FILE_BYTES, &text, &bytes));
    fsdp_status status = strlen(text) == bytes
                             ? read_lines(c, text, list)
                             : fsdp_error(FSDP_ERR_FORMAT, "%s: not a text file", c->hostfile);
    fsdp_free(text);
    return status;
}

fsdp_status fsdp_host_list_read(const fsdp_launch_config *config, fsdp_host_list *list)
{
    *list = (fsdp_host_list){0};
    if (config->hosts && config->hostfile)
        return fsdp_error(FSDP_ERR_INVALID, "--hosts contradicts --hostfile: one names the hosts");
    fsdp_status status = config->hosts ? read_list(config, list) : read_file(config, list);
    if (status == FSDP_OK && list->count == 0)
        status = fsdp_error(FSDP_ERR_INVALID, "%s: it names no host",
                            config->hosts ? "--hosts" : config->hostfile);
    if (status != FSDP_OK)
        fsdp_host_list_fini(list);
    return status;
}

void fsdp_host_list_fini(fsdp_host_list *list)
{
    fsdp_names_free(list->names, list->count);
    fsdp_free(list->ranks);
    *list = (fsdp_host_list){0};
}

int fsdp_host_list_most_ranks(const fsdp_host_list *list)
{
    int most = 0;
    for (size_t i = 0; i < list->count; i++)
        most = list->ranks[i] > most ? list->ranks[i] : most;
    return most;
}

/* ---- the command line ---- */

typedef struct command {
    char **words;
    size_t n, cap;
} command;

static fsdp_status add_word(command *c, const char *word)
{
    return fsdp_names_add(&c->words, &c->n, &c->cap, word);
}

/* Add the content of *text as a word, and free *text. */
static fsdp_status add_text(command *c, fsdp_str *text)
{
    char *word = fsdp_str_take(text);
    fsdp_status status = word ? add_word(c, word) : FSDP_ERR_NOMEM;
    fsdp_free(word);
    return status;
}

/* Add the plan of a local rank in hexadecimal digits. */
static fsdp_status add_plan(command *c, const fsdp_launch *launch, const fsdp_hosts_shape *shape,
                            int local_rank)
{
    fsdp_str plan = {0}, digits = {0};
    fsdp_plan_encode(launch, shape, local_rank, &plan);
    for (size_t i = 0; i < plan.len; i++)
        fsdp_str_printf(&digits, "%02x", (unsigned)(unsigned char)plan.data[i]);
    digits.failed |= plan.failed;
    fsdp_str_fini(&plan);
    return add_text(c, &digits);
}

/* Make the command that mpirun runs as each rank: fsdp launch-rank BIND RANKS PLAN... */
static fsdp_status make_command(const fsdp_launch *launch, const fsdp_launch_config *config,
                                const fsdp_host_list *list, const fsdp_hosts_shape *shape,
                                command *c)
{
    char self[4096];
    fsdp_str text = {0};
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return fsdp_error(FSDP_ERR_IO, "/proc/self/exe: %s", strerror(errno));
    self[n] = 0;
    FSDP_TRY(add_word(c, self));
    FSDP_TRY(add_word(c, "launch-rank"));
    fsdp_str_printf(&text, "%d", config->bind);
    FSDP_TRY(add_text(c, &text));
    for (size_t i = 0; i < list->count; i++)
        fsdp_str_printf(&text, "%s%d", i ? "," : "", list->ranks[i]);
    FSDP_TRY(add_text(c, &text));
    for (int l = 0; l < shape->n_local; l++)
        FSDP_TRY(add_plan(c, launch, shape, l));
    return FSDP_OK;
}

/* Return true if ranks on other hosts get this variable, too. These are the variables of Accelerate
 * and of this program, but not the job secret. */
static bool is_passed_on(const char *entry)
{
    static const char *const prefixes[] = {"ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_",
                                           "CUDA_VISIBLE_DEVICES=", "OMP_NUM_THREADS="};
    if (strncmp(entry, "FSDP_JOB_SECRET=", 16) == 0)
        return false;
    for (size_t i = 0; i < FSDP_LENGTH(prefixes); i++)
        if (strncmp(entry, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* List the names of the variables that ranks on other hosts get. */
static fsdp_status list_variables(command *c)
{
    for (char **entry = environ; *entry; entry++) {
        fsdp_str name = {0};
        if (!is_passed_on(*entry))
            continue;
        fsdp_str_append(&name, *entry, strcspn(*entry, "="));
        FSDP_TRY(add_text(c, &name));
    }
    return FSDP_OK;
}

/* ---- running mpirun ---- */

/* The signals to this process while mpirun is running. They are blocked, so none is lost. */
typedef struct signals {
    sigset_t set, before; /* the blocked signals, and the signal mask before they were blocked */
    int first;            /* the first signal that arrived; 0: none */
} signals;

static void begin_signals(signals *s)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGCHLD};
    struct sigaction hangup;
    sigemptyset(&s->set);
    sigaction(SIGHUP, NULL, &hangup);
    for (size_t i = 0; i < FSDP_LENGTH(numbers); i++)
        if (numbers[i] != SIGHUP || hangup.sa_handler != SIG_IGN) /* ignored under nohup */
            sigaddset(&s->set, numbers[i]);
    sigprocmask(SIG_BLOCK, &s->set, &s->before);
    /* If the parent of this process ignores SIGCHLD, so does this process. Then the kernel would
     * discard the exit code of mpirun. */
    signal(SIGCHLD, SIG_DFL);
}

static void end_signals(const signals *s)
{
    const struct timespec now = {0};
    while (sigtimedwait(&s->set, NULL, &now) > 0) /* discard signals that came too late */
        ;
    sigprocmask(SIG_SETMASK, &s->before, NULL);
}

static _Noreturn void run_child(const char *program, char **words, pid_t launcher,
                                const sigset_t *mask)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != launcher)
        _exit(126);
    /* Ranks are not in the terminal's foreground process group, so they may not read from it. */
    if (isatty(STDIN_FILENO)) {
        const int nothing = open("/dev/null", O_RDONLY);
        if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0)
            _exit(126);
    }
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execv(program, words);
    dprintf(STDERR_FILENO, "fsdp launch: cannot start %s: %s\n", program, strerror(errno));
    _exit(127);
}

/* Pass a signal on to mpirun, which ends the ranks after SIGTERM, and passes SIGUSR1 on to them. A
 * second signal kills mpirun and its process group. */
static void pass_on(signals *s, pid_t pid, int number)
{
    /* When a terminal is closed, its shell and the kernel each send a SIGHUP. */
    if (number == SIGHUP && s->first == SIGHUP)
        return;
    if (s->first) {
        kill(-pid, SIGKILL);
        return;
    }
    fprintf(stderr, "fsdp launch: %s: ending all ranks (a second signal kills)\n",
            strsignal(number));
    s->first = number;
    kill(pid, number == SIGUSR1 ? SIGUSR1 : SIGTERM);
}

/* Wait until mpirun has ended, and return its exit code. */
static int wait_for(signals *s, pid_t pid)
{
    const struct timespec pause = {.tv_sec = 1};
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        const int number = sigtimedwait(&s->set, NULL, &pause);
        if (number > 0 && number != SIGCHLD)
            pass_on(s, pid, number);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static fsdp_status run_once(const char *program, char **words, signals *s, int *exit_code)
{
    const pid_t launcher = getpid();
    fflush(NULL);
    const pid_t pid = fork();
    if (pid < 0)
        return fsdp_error(FSDP_ERR_IO, "cannot start %s: %s", program, strerror(errno));
    if (pid == 0)
        run_child(program, words, launcher, &s->before);
    *exit_code = wait_for(s, pid);
    return FSDP_OK;
}

/* Make mpirun's command line for a round, and run it. Set *exit_code to its exit code. */
static fsdp_status run_round(const fsdp_launch *launch, const fsdp_launch_config *config,
                             const fsdp_mpi *mpi, const fsdp_host_list *list,
                             const fsdp_hosts_shape *shape, signals *s, int *exit_code)
{
    command ranks = {0}, variables = {0};
    char **words;
    size_t n_words;
    const double shutdown_s = launch->shutdown_timeout_s;
    fsdp_status status = make_command(launch, config, list, shape, &ranks);
    if (status == FSDP_OK)
        status = list_variables(&variables);
    const fsdp_mpi_hosts hosts = {.count = (int)list->count,
                                  .ranks = list->ranks,
                                  .names = (const char *const *)list->names,
                                  .variables = (const char *const *)variables.words,
                                  .n_variables = variables.n,
                                  .kill_timeout_s = isnan(shutdown_s) ? 5 : shutdown_s};
    if (status == FSDP_OK)
        status = fsdp_mpi_command(mpi, &hosts, (const char *const *)ranks.words, ranks.n, &words,
                                  &n_words);
    if (status == FSDP_OK) {
        status = run_once(mpi->starter, words, s, exit_code);
        fsdp_names_free(words, n_words);
    }
    fsdp_names_free(ranks.words, ranks.n);
    fsdp_names_free(variables.words, variables.n);
    return status;
}

static fsdp_status run_rounds(fsdp_launch *launch, const fsdp_launch_config *config,
                              const fsdp_mpi *mpi, const fsdp_host_list *list, signals *s,
                              int *exit_code)
{
    fsdp_hosts_shape shape = {.n_hosts = (int)list->count,
                              .n_local = launch->n_ranks,
                              .master_port = launch->master_port};
    for (size_t i = 0; i < list->count; i++)
        shape.world_size += list->ranks[i];
    if (shape.master_port == 0)
        FSDP_TRY(fsdp_free_port(&shape.master_port));
    fprintf(stderr, "fsdp launch: %d ranks on %d host%s by %s and ssh\n", shape.world_size,
            shape.n_hosts, shape.n_hosts == 1 ? "" : "s", mpi->name);
    for (;; shape.restarts = ++shape.round) {
        FSDP_TRY(run_round(launch, config, mpi, list, &shape, s, exit_code));
        if (*exit_code == FSDP_EXIT_OK || s->first)
            break;
        fprintf(stderr, "fsdp launch: %s ended with exit code %d\n", mpi->name, *exit_code);
        *exit_code = FSDP_EXIT_FAILURE;
        if (shape.round == launch->max_restarts)
            break;
        fprintf(stderr, "fsdp launch: starting all ranks again (restart %d of %d)\n",
                shape.round + 1, launch->max_restarts);
    }
    /* After SIGUSR1, a failure of mpirun means that the job failed. After any other signal, mpirun
     * ends the ranks itself, and its exit code does not say whether they have saved. In that case,
     * return the exit code of the signal. */
    if (s->first && !(s->first == SIGUSR1 && *exit_code == FSDP_EXIT_FAILURE))
        *exit_code = fsdp_exit_of_signal(s->first);
    return FSDP_OK;
}

fsdp_status fsdp_hosts_run_by_ssh(fsdp_launch *launch, const fsdp_launch_config *config,
                                  const fsdp_host_list *list, int *exit_code)
{
    fsdp_mpi mpi;
    signals s = {0};
    const cpu_set_t *own_cpus = launch->cpus;
    if (geteuid() == 0 && (setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1) != 0 ||
                           setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1) != 0))
        return fsdp_error_nomem();
    FSDP_ASSERT(!own_cpus); /* not set, because each host chooses its ranks' processors */
    FSDP_TRY(fsdp_mpi_find((fsdp_mpi_kind)config->mpi, launch->program, &mpi));
    begin_signals(&s);
    fsdp_status status = run_rounds(launch, config, &mpi, list, &s, exit_code);
    end_signals(&s);
    fsdp_mpi_fini(&mpi);
    return status;
}
