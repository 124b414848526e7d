/* Sends the output of a rank to the console, to files, or to both. Also reads the error message of
 * a failed rank.
 *
 * The names of folders and files are torchrun's:
 * <log_dir>/<run_id>_<random>/attempt_<n>/<local_rank>/{stdout.log,stderr.log,error.json}. If there
 * is no log folder, the error file is a memfd, which the rank inherits under the same descriptor
 * number. A memfd does not remain on disk, even if all processes are killed. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/launch/launch.h"

enum {
    PREFIX_BYTES = 256, /* maximum length of the prefix of a line on the console */
    MOST_READS =
        128 /* most reads of 16 KiB in one call of fsdp_tee_pump(); a pipe holds up to 1 MiB */
};

/* Make *path absolute. A rank may change its working directory, but must still find its error
 * file. */
static fsdp_status make_absolute(char **path)
{
    if (**path == '/')
        return FSDP_OK;
    char *here = getcwd(NULL, 0);
    char *whole = here ? fsdp_strdup_printf("%s/%s", here, *path) : NULL;
    free(here);
    if (!whole)
        return fsdp_error(FSDP_ERR_IO, "%s: this folder has no path: %s", *path, strerror(errno));
    fsdp_free(*path);
    *path = whole;
    return FSDP_OK;
}

fsdp_status fsdp_launch_make_log_dir(fsdp_launch *launch, const char *log_dir)
{
    const char *tmp = getenv("TMPDIR");
    const char *parent = log_dir ? log_dir : tmp && *tmp ? tmp : "/tmp";
    FSDP_TRY(fsdp_directory_make(parent));
    launch->log_dir = fsdp_strdup_printf("%s/%s_XXXXXX", parent, launch->run_id);
    if (!launch->log_dir)
        return fsdp_error_nomem();
    if (!mkdtemp(launch->log_dir))
        return fsdp_error(FSDP_ERR_IO, "cannot make folder %s: %s", launch->log_dir,
                          strerror(errno));
    return make_absolute(&launch->log_dir);
}

static fsdp_status open_error_file(const char *folder, fsdp_rank_process *process)
{
    size_t size = sizeof process->error_path;
    if (*folder) {
        int length = snprintf(process->error_path, size, "%s/error.json", folder);
        return length < (int)size ? FSDP_OK
                                  : fsdp_error(FSDP_ERR_INVALID, "%s: path too long", folder);
    }
    process->error_fd = memfd_create("fsdp-error", MFD_CLOEXEC);
    if (process->error_fd < 0)
        return fsdp_error(FSDP_ERR_IO, "memfd_create: %s", strerror(errno));
    snprintf(process->error_path, size, "/proc/self/fd/%d", process->error_fd);
    return FSDP_OK;
}

static fsdp_status open_log(const char *folder, const char *name, int *fd)
{
    char path[FSDP_LAUNCH_PATH_BYTES + 16];
    snprintf(path, sizeof path, "%s/%s.log", folder, name);
    *fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (*fd < 0)
        return fsdp_error(FSDP_ERR_IO, "%s: %s", path, strerror(errno));
    return FSDP_OK;
}

/* Open a pipe. Set tee->pipe to its reading end. */
static fsdp_status open_pipe(fsdp_tee *tee, int *writing_end)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return fsdp_error(FSDP_ERR_IO, "pipe: %s", strerror(errno));
    tee->pipe = ends[0];
    *writing_end = ends[1];
    if (fcntl(tee->pipe, F_SETFL, O_NONBLOCK) != 0)
        return fsdp_error(FSDP_ERR_IO, "pipe: %s", strerror(errno));
    return FSDP_OK;
}

static fsdp_status open_stream(const fsdp_launch *launch, const char *folder, int stream, int rank,
                               fsdp_tee *tee, int *fd)
{
    const char *name = stream == FSDP_STREAM_STDOUT ? "stdout" : "stderr";
    bool console = launch->on_console[rank];
    if (launch->tees[rank] & stream) {
        FSDP_TRY(open_log(folder, name, &tee->file));
        if (console)
            tee->console = stream == FSDP_STREAM_STDOUT ? STDOUT_FILENO : STDERR_FILENO;
        return open_pipe(tee, fd);
    }
    if (launch->redirects[rank] & stream)
        return open_log(folder, name, fd);
    if (!console && (*fd = open("/dev/null", O_WRONLY | O_CLOEXEC)) < 0)
        return fsdp_error(FSDP_ERR_IO, "/dev/null: %s", strerror(errno));
    return FSDP_OK;
}

fsdp_status fsdp_rank_output_open(const fsdp_launch *launch, int round, fsdp_rank_process *process,
                                  int stdio[2])
{
    char folder[FSDP_LAUNCH_PATH_BYTES - 16] = "";
    int rank = process->rank;
    for (int i = 0; i < 2; i++) {
        process->tee[i] = (fsdp_tee){.pipe = -1, .file = -1, .console = -1};
        stdio[i] = -1;
    }
    process->error_fd = -1;
    if (launch->log_dir) {
        int length = snprintf(folder, sizeof folder, "%s/attempt_%d/%d", launch->log_dir, round,
                              fsdp_launch_local_rank_of(launch, rank));
        if (length < 0 || (size_t)length >= sizeof folder)
            return fsdp_error(FSDP_ERR_INVALID, "--log-dir: the path is too long");
        FSDP_TRY(fsdp_directory_make(folder));
    }
    FSDP_TRY(open_error_file(folder, process));
    FSDP_TRY(open_stream(launch, folder, FSDP_STREAM_STDOUT, rank, &process->tee[0], &stdio[0]));
    return open_stream(launch, folder, FSDP_STREAM_STDERR, rank, &process->tee[1], &stdio[1]);
}

/* Write all bytes. If an error occurs, for example because the disk is full, drop the rest. Lost
 * output must not end the job. */
static void write_fully(int fd, const char *bytes, size_t n)
{
    while (fd >= 0 && n) {
        ssize_t written = write(fd, bytes, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return;
        bytes += written;
        n -= (size_t)written;
    }
}

/* Write launch->line_prefix with the values of this rank to `out` [PREFIX_BYTES], truncated if it
 * is too long. An unknown macro, such as ${name}, is copied unchanged. Return the length. */
static size_t make_prefix(const fsdp_launch *launch, int rank, char *out)
{
    char number[16], local[16], host[HOST_NAME_MAX + 1] = "";
    snprintf(number, sizeof number, "%d", fsdp_launch_rank_of(launch, rank));
    snprintf(local, sizeof local, "%d", fsdp_launch_local_rank_of(launch, rank));
    if (strstr(launch->line_prefix, "${hostname}"))
        gethostname(host, sizeof host - 1);
    const struct {
        const char *macro, *value;
    } macros[] = {{"${role_name}", launch->role},
                  {"${local_rank}", local},
                  {"${rank}", number},
                  {"${hostname}", host}};
    size_t n = 0;
    for (const char *at = launch->line_prefix; *at && n < PREFIX_BYTES;) {
        size_t i = 0;
        while (i < FSDP_LENGTH(macros) &&
               strncmp(at, macros[i].macro, strlen(macros[i].macro)) != 0)
            i++;
        if (i == FSDP_LENGTH(macros)) {
            out[n++] = *at++;
            continue;
        }
        for (const char *value = macros[i].value; *value && n < PREFIX_BYTES;)
            out[n++] = *value++;
        at += strlen(macros[i].macro);
    }
    return n;
}

/* Write tee->line to the console with a single call, so that the lines of different ranks do not
 * mix. */
static void write_line(fsdp_tee *tee, const fsdp_launch *launch, int rank)
{
    char out[sizeof tee->line + PREFIX_BYTES];
    if (tee->console >= 0 && tee->length) {
        const size_t prefix = make_prefix(launch, rank, out);
        memcpy(out + prefix, tee->line, tee->length);
        write_fully(tee->console, out, prefix + tee->length);
    }
    tee->length = 0;
}

static void copy_bytes(fsdp_tee *tee, const char *bytes, size_t n, const fsdp_launch *launch,
                       int rank)
{
    write_fully(tee->file, bytes, n);
    for (size_t i = 0; i < n; i++) {
        tee->line[tee->length++] = bytes[i];
        if (bytes[i] == '\n' || tee->length == sizeof tee->line - 1)
            write_line(tee, launch, rank);
    }
}

bool fsdp_tee_pump(fsdp_tee *tee, const fsdp_launch *launch, int rank)
{
    char bytes[16384];
    /* A rank may write faster than this loop reads, so the loop has a limit. The limit is larger
     * than what a pipe holds, so that all output of a rank that has ended is read. */
    for (int reads = 0; tee->pipe >= 0 && reads < MOST_READS; reads++) {
        ssize_t n = read(tee->pipe, bytes, sizeof bytes);
        if (n > 0) {
            copy_bytes(tee, bytes, (size_t)n, launch, rank);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return true;
        close(tee->pipe);
        tee->pipe = -1;
    }
    return tee->pipe >= 0;
}

void fsdp_rank_output_close(const fsdp_launch *launch, fsdp_rank_process *process)
{
    for (int i = 0; i < 2; i++) {
        fsdp_tee *tee = &process->tee[i];
        fsdp_tee_pump(tee, launch, process->rank);
        if (tee->length) {
            tee->line[tee->length++] = '\n';
            write_line(tee, launch, process->rank);
        }
        if (tee->pipe >= 0)
            close(tee->pipe);
        if (tee->file >= 0)
            close(tee->file);
        tee->pipe = tee->file = -1;
    }
    if (process->error_fd >= 0)
        close(process->error_fd);
    process->error_fd = -1;
}

/* Workers of torchrun write one of two forms into the error file: {"message": {"message": "..."}}
 * or {"message": "..."}. This function reads both forms. */
bool fsdp_rank_error_message(const fsdp_rank_process *process, char *text, size_t size)
{
    if (!*process->error_path)
        return false;
    json_t *root = json_load_file(process->error_path, 0, NULL);
    const json_t *message = json_object_get(root, "message");
    if (json_is_object(message))
        message = json_object_get(message, "message");
    const char *found = json_string_value(message);
    snprintf(text, size, "%s", found ? found : "");
    json_decref(root);
    for (size_t end = strlen(text); end && text[end - 1] == '\n';)
        text[--end] = 0;
    return *text != 0;
}
