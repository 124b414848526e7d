/* See child.h. */
#include "src/dashboard/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"

enum {
    MOST_FOLDERS = 8,
    WORDS = 8 + MOST_FOLDERS
};
/* Maximum time until the child prints the address of its page. */
static const int64_t start_ns = 10000000000;
/* Time that the child has to end after SIGTERM, before it gets SIGKILL. */
static const int64_t end_ns = 5000000000;

extern char **environ;

/* Read a line from `fd`, without its newline. Return false if no line arrives within start_ns. */
static bool read_line(int fd, char *line, size_t size)
{
    const int64_t end = fsdp_clock_ns() + start_ns;
    size_t n = 0;
    while (n + 1 < size) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        const int64_t left = end - fsdp_clock_ns();
        if (left <= 0 || poll(&poller, 1, (int)(left / 1000000) + 1) <= 0 ||
            read(fd, line + n, 1) != 1)
            return false;
        if (line[n] == '\n') {
            line[n] = 0;
            return true;
        }
        n++;
    }
    return false;
}

/* Return true if the child must not get this environment variable. TORCHELASTIC_ERROR_FILE is the
 * file in which a rank reports its error to the launcher. The other variables set options of `fsdp
 * dashboard`; if the user has set one, it was meant for another command or program. */
static bool is_withheld(const char *entry)
{
    static const char *const names[] = {
        "TORCHELASTIC_ERROR_FILE=", "FSDP_HOST=", "FSDP_PORT=", "FSDP_WAIT=", "FSDP_ADDRESS_ONLY=",
        "FSDP_UNTIL_STDIN_CLOSES="};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++)
        if (strncmp(entry, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* Return the environment of the child. The strings are borrowed; the caller frees the array. Return
 * NULL when out of memory. */
static char **environment_of_child(void)
{
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **variables = fsdp_calloc(n + 1, sizeof *variables);
    for (size_t i = 0; variables && i < n; i++)
        if (!is_withheld(environ[i]))
            variables[kept++] = environ[i];
    return variables;
}

/* Start the child so that Ctrl-C on the terminal does not reach it: the page can then be viewed
 * until the run has ended. For this, the child gets its own process group. If `stays` is true, the
 * child may outlive this process. It then gets its own session and does not use stderr, so that it
 * does not keep the terminal open. Return 0, or the number of the error. */
static int spawn(const char *program, char *const *words, int in, int out, bool stays, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    if (in >= 0)
        posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    else
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (stays)
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes,
        (short)(POSIX_SPAWN_SETSIGMASK | (stays ? POSIX_SPAWN_SETSID : POSIX_SPAWN_SETPGROUP)));
    char **variables = environment_of_child();
    const int error =
        variables ? posix_spawn(pid, program, &actions, &attributes, words, variables) : ENOMEM;
    fsdp_free(variables);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return error;
}

static fsdp_status start(const char *program, char *const *words, bool stays,
                         fsdp_dashboard_child *child)
{
    int keep[2] = {-1, -1}, said[2] = {-1, -1}, error = 0;
    if ((!stays && pipe2(keep, O_CLOEXEC) != 0) || pipe2(said, O_CLOEXEC) != 0)
        error = errno;
    if (!error)
        error = spawn(program, words, keep[0], said[1], stays, &child->pid);
    close(keep[0]);
    close(said[1]);
    fsdp_status status = FSDP_OK;
    if (error)
        status =
            fsdp_error(FSDP_ERR_IO, "--dashboard: cannot start %s: %s", program, strerror(error));
    else if (!read_line(said[0], child->address, sizeof child->address))
        status = fsdp_error(FSDP_ERR_IO,
                            "--dashboard: its process ended, or did not print its address; %s",
                            stays ? "'fsdp dashboard' with the same folder prints why"
                                  : "its own message is above");
    close(said[0]);
    child->keep_open = keep[1];
    if (status != FSDP_OK && !error) {
        kill(child->pid, SIGKILL);
        waitpid(child->pid, NULL, 0);
    }
    if (status != FSDP_OK) {
        close(keep[1]);
        *child = (fsdp_dashboard_child){.keep_open = -1};
    }
    return status;
}

fsdp_status fsdp_dashboard_start(const char *program, const char *const *folders, size_t n,
                                 int port, bool stays, fsdp_dashboard_child *child)
{
    char number[16], name[] = "fsdp", command[] = "dashboard", port_flag[] = "--port",
                     address[] = "--address-only", wait[] = "--wait",
                     owned[] = "--until-stdin-closes", end[] = "--";
    char *words[WORDS + 1] = {name, command, port_flag, number, address, wait};
    size_t n_words = 6, first;
    *child = (fsdp_dashboard_child){.keep_open = -1};
    if (n > MOST_FOLDERS)
        return fsdp_error(FSDP_ERR_INVALID, "--dashboard: %zu folders", n);
    snprintf(number, sizeof number, "%d", port);
    if (!stays)
        words[n_words++] = owned;
    words[n_words++] = end;
    first = n_words;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < n && status == FSDP_OK; i++) {
        words[n_words] = fsdp_strdup(folders[i]);
        status = words[n_words] ? FSDP_OK : FSDP_ERR_NOMEM;
        n_words += status == FSDP_OK;
    }
    words[n_words] = NULL;
    if (status == FSDP_OK)
        status = start(program, words, stays, child);
    for (size_t i = first; i < n_words; i++)
        fsdp_free(words[i]);
    return status;
}

/* Wait until a child that has got SIGTERM has ended. */
static void wait_for_end(pid_t pid)
{
    const int64_t end = fsdp_clock_ns() + end_ns;
    pid_t ended = 0;
    while ((ended = waitpid(pid, NULL, WNOHANG)) == 0 && fsdp_clock_ns() < end)
        (void)poll(NULL, 0, 10);
    if (ended != 0)
        return;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

void fsdp_dashboard_end(fsdp_dashboard_child *child)
{
    if (child->pid <= 0 || child->keep_open < 0)
        return;
    close(child->keep_open);
    kill(child->pid, SIGTERM);
    wait_for_end(child->pid);
    *child = (fsdp_dashboard_child){.keep_open = -1};
}
