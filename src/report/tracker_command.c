/* See tracker_command.h. */
#include "src/report/tracker_command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/str.h"

extern char **environ;

enum {
    MAX_KEPT_BYTES = 16 << 20,
    PIPE_BYTES = 1 << 20, /* requested size of the pipe; the kernel may give less */
    POLL_MS = 20,         /* time between two checks whether the program has ended */
    TERM_GRACE_S = 5,     /* time between SIGTERM and SIGKILL */
    MESSAGE_BYTES = 400
};

struct fsdp_tracker_command {
    char *command;
    fsdp_tracker_say_fn *say;
    void *context;
    pid_t pid;     /* 0: the program has ended and was waited for */
    int fd;        /* the pipe to the program's standard input; -1: closed */
    fsdp_str kept; /* bytes that the program has not taken yet begin at kept.data + sent */
    size_t sent;
    bool dropped; /* true: a row was left out, and the user got the message about this */
};

FSDP_PRINTF(2, 3) static void say(const fsdp_tracker_command *t, const char *format, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;
    if (!t->say)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    t->say(t->context, text);
}

/* ---- starting ---- */

/* Start the program with default signal handling and no blocked signals, as a shell would. It gets
 * its own process group, so that Ctrl-C does not end it. */
static int spawn(const char *command, int input, pid_t *pid)
{
    char *argv[] = {"sh", "-c", (char *)(uintptr_t)command, NULL};
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    /* If this process ignores SIGHUP, because of nohup, so does the program. */
    sigdelset(&all, SIGHUP);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawn_file_actions_init(&actions);
    int error = posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    if (!error)
        error = posix_spawn(pid, "/bin/sh", &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return error;
}

static fsdp_status start(fsdp_tracker_command *t)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return fsdp_error(FSDP_ERR_IO, "--tracker-command: pipe: %s", strerror(errno));
    t->fd = ends[1];
    fcntl(t->fd, F_SETPIPE_SZ, PIPE_BYTES); /* a smaller pipe works, too */
    int error = fcntl(t->fd, F_SETFL, O_NONBLOCK) == 0 ? 0 : errno;
    if (!error)
        error = spawn(t->command, ends[0], &t->pid);
    close(ends[0]);
    if (error) {
        t->pid = 0;
        return fsdp_error(FSDP_ERR_IO, "--tracker-command %.200s: %s", t->command, strerror(error));
    }
    return FSDP_OK;
}

fsdp_status fsdp_tracker_command_start(const char *command, fsdp_tracker_say_fn *say_fn,
                                       void *context, fsdp_tracker_command **out)
{
    fsdp_tracker_command *t = fsdp_calloc(1, sizeof *t);
    if (!t)
        return FSDP_ERR_NOMEM;
    t->fd = -1;
    t->say = say_fn;
    t->context = context;
    t->command = fsdp_strdup(command);
    fsdp_status status = t->command ? start(t) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        *out = t;
    else
        fsdp_tracker_command_close(t, 0);
    return status;
}

/* ---- sending ---- */

/* Write to a pipe whose reader may have ended. Block SIGPIPE during the write, and discard the
 * signal if the write raised it, because the program that uses this library decides how to handle
 * signals. */
static ssize_t write_quietly(int fd, const char *bytes, size_t n)
{
    sigset_t broken, before, pending;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    sigpending(&pending);
    const bool was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    ssize_t written = write(fd, bytes, n);
    const int error = errno;
    if (written < 0 && error == EPIPE && !was_pending)
        while (sigtimedwait(&broken, NULL, &(struct timespec){0}) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return written;
}

static void close_input(fsdp_tracker_command *t)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
    fsdp_str_fini(&t->kept);
    t->sent = 0;
}

static void say_how_it_ended(const fsdp_tracker_command *t, int state, const char *when)
{
    if (WIFSIGNALED(state))
        say(t, "--tracker-command: the program was ended by signal %d%s", WTERMSIG(state), when);
    else if (WEXITSTATUS(state) == 127)
        say(t, "--tracker-command: exit code 127%s: the shell did not find a command in: %.200s",
            when, t->command);
    else
        say(t, "--tracker-command: the program ended with exit code %d%s", WEXITSTATUS(state),
            when);
}

/* Wait for the program at most `seconds`. Return true if it has ended. */
static bool wait_for_end(fsdp_tracker_command *t, double seconds, int *state)
{
    const double until = fsdp_clock_s() + seconds;
    for (;;) {
        const pid_t ended = waitpid(t->pid, state, WNOHANG);
        if (ended == t->pid || (ended < 0 && errno == ECHILD)) {
            /* Another waitpid() in this process got the exit status, so it is unknown here. */
            if (ended < 0)
                *state = 0;
            t->pid = 0;
            return true;
        }
        if (fsdp_clock_s() >= until)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
    }
}

/* Close the program's input and report this to the user. Called when the program, which may not
 * have ended yet, no longer reads its input. */
static void lose(fsdp_tracker_command *t)
{
    int state;
    close_input(t);
    if (wait_for_end(t, 1, &state))
        say_how_it_ended(t, state, " during the run, which goes on without it");
    else
        say(t, "--tracker-command: the program closed its input during the run, which goes on "
               "without it");
}

/* Send as many of the kept bytes as the program takes without waiting. */
static void send_kept(fsdp_tracker_command *t)
{
    while (t->fd >= 0 && t->sent < t->kept.len) {
        const ssize_t n = write_quietly(t->fd, t->kept.data + t->sent, t->kept.len - t->sent);
        if (n >= 0)
            t->sent += (size_t)n;
        else if (errno == EAGAIN)
            return;
        else if (errno != EINTR)
            lose(t);
    }
    t->kept.len = t->sent = 0;
}

/* Remove the bytes that were sent, if they are at least half of the buffer. */
static void compact(fsdp_tracker_command *t)
{
    if (t->sent < t->kept.len / 2 || !t->sent)
        return;
    memmove(t->kept.data, t->kept.data + t->sent, t->kept.len - t->sent);
    t->kept.len -= t->sent;
    t->sent = 0;
}

fsdp_status fsdp_tracker_command_send(fsdp_tracker_command *t, const char *line, size_t bytes)
{
    if (t->fd < 0)
        return FSDP_OK;
    if (t->kept.len - t->sent + bytes > MAX_KEPT_BYTES) {
        send_kept(t);
        if (t->fd < 0)
            return FSDP_OK;
    }
    if (t->kept.len - t->sent + bytes > MAX_KEPT_BYTES) {
        if (!t->dropped)
            say(t, "--tracker-command: the program does not read its input; rows are left out");
        t->dropped = true;
        return FSDP_OK;
    }
    compact(t);
    fsdp_str_append(&t->kept, line, bytes);
    if (t->kept.failed) {
        close_input(t);
        return fsdp_error_nomem();
    }
    send_kept(t);
    return FSDP_OK;
}

/* ---- ending ---- */

/* Send the bytes that are kept. Give up at time `until`, in seconds of fsdp_clock_s(). */
static void flush(fsdp_tracker_command *t, double until)
{
    for (send_kept(t); t->fd >= 0 && t->sent < t->kept.len; send_kept(t)) {
        struct pollfd ready = {.fd = t->fd, .events = POLLOUT};
        const double left = until - fsdp_clock_s();
        if (left <= 0)
            return;
        poll(&ready, 1, left < 1 ? (int)(left * 1000) + 1 : 1000);
    }
}

static void end_program(fsdp_tracker_command *t, double until, double seconds)
{
    int state;
    if (wait_for_end(t, until - fsdp_clock_s(), &state)) {
        if (state)
            say_how_it_ended(t, state, "");
        return;
    }
    if (seconds > 0)
        say(t,
            "--tracker-command: the program has not ended %.0f s after the end of its input; "
            "it is stopped",
            seconds);
    kill(-t->pid, SIGTERM);
    if (wait_for_end(t, TERM_GRACE_S, &state))
        return;
    kill(-t->pid, SIGKILL);
    (void)wait_for_end(t, TERM_GRACE_S, &state);
}

void fsdp_tracker_command_close(fsdp_tracker_command *t, double seconds)
{
    if (!t)
        return;
    const double until = fsdp_clock_s() + seconds;
    if (t->fd >= 0)
        flush(t, until);
    close_input(t);
    if (t->pid)
        end_program(t, until, seconds);
    fsdp_free(t->command);
    fsdp_free(t);
}
