/* See scratch_file.h. */
#include "src/base/scratch_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/file_growth.h"
#include "src/base/str.h"

const char fsdp_scratch_file_name[] = "a temporary file in $TMPDIR or /tmp";

fsdp_status fsdp_fd_write(int fd, const char *name, const void *bytes, size_t count)
{
    const char *at = bytes;
    while (count) {
        const ssize_t n = fsdp_growing_write(fd, at, count);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fsdp_error(FSDP_ERR_IO, "%s: %s", name, strerror(errno));
        at += n;
        count -= (size_t)n;
    }
    return FSDP_OK;
}

fsdp_status fsdp_fd_read_at(int fd, const char *name, uint64_t offset, void *bytes, size_t count,
                            size_t *n)
{
    *n = 0;
    while (*n < count) {
        const ssize_t got = pread(fd, (char *)bytes + *n, count - *n, (off_t)(offset + *n));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fsdp_error(FSDP_ERR_IO, "%s: %s", name, strerror(errno));
        if (got == 0)
            break;
        *n += (size_t)got;
    }
    return FSDP_OK;
}

fsdp_status fsdp_scratch_file_create(int *fd)
{
    const char *given = getenv("TMPDIR"), *folder = given && *given ? given : "/tmp";
    char *path = fsdp_strdup_printf("%s/fsdp-data-XXXXXX", folder);
    if (!path)
        return FSDP_ERR_NOMEM;
    const int found = mkostemp(path, O_CLOEXEC);
    const int failure = errno;
    if (found >= 0)
        unlink(path);
    fsdp_free(path);
    if (found < 0)
        return fsdp_error(FSDP_ERR_IO, "%s: a temporary file: %s", folder, strerror(failure));
    *fd = found;
    return FSDP_OK;
}
