/* See rank_note.h. */
#include "src/dcp/rank_note.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/io.h"

enum {
    POLL_MS = 10
};

static const char PLACES[] = "places", FAILED[] = "failed";

static char *path_of(const char *dir, int rank, const char *kind)
{
    char name[32];
    snprintf(name, sizeof name, "__%d_0.%s", rank, kind);
    return fsdp_path_join(dir, name);
}

fsdp_status fsdp_rank_note_write(const char *dir, int rank, const void *data, size_t bytes)
{
    char *path = path_of(dir, rank, PLACES);
    fsdp_status status = path ? fsdp_file_write(path, data, bytes) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

void fsdp_rank_note_write_failure(const char *dir, int rank)
{
    char *path = path_of(dir, rank, FAILED);
    const int fd = path ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (fd >= 0)
        close(fd);
    fsdp_free(path);
}

static fsdp_status wait_for(const char *path, const char *failed, const atomic_bool *given_up)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000};
    while (!fsdp_path_is_file(path)) {
        if (atomic_load(given_up))
            return fsdp_error(FSDP_ERR_STATE, "the save was given up");
        if (fsdp_path_is_file(failed))
            return fsdp_error(FSDP_ERR_IO, "%s: that rank has failed", failed);
        nanosleep(&pause, NULL);
    }
    return FSDP_OK;
}

static fsdp_status read_and_delete(const char *path, void *data, size_t bytes)
{
    char *text;
    size_t have;
    FSDP_TRY(fsdp_file_read(path, bytes, &text, &have));
    fsdp_status status =
        have == bytes ? FSDP_OK
                      : fsdp_error(FSDP_ERR_FORMAT, "%s: %zu bytes, not %zu", path, have, bytes);
    if (status == FSDP_OK && bytes)
        memcpy(data, text, bytes);
    fsdp_free(text);
    return status == FSDP_OK ? fsdp_tree_remove(path) : status;
}

fsdp_status fsdp_rank_note_receive(const char *dir, int rank, void *data, size_t bytes,
                                   const atomic_bool *given_up)
{
    char *path = path_of(dir, rank, PLACES), *failed = path_of(dir, rank, FAILED);
    fsdp_status status = path && failed ? wait_for(path, failed, given_up) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = read_and_delete(path, data, bytes);
    fsdp_free(failed);
    fsdp_free(path);
    return status;
}
