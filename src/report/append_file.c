/* See append_file.h. */
#include "src/report/append_file.h"
#include "src/base/file_growth.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

fsdp_status fsdp_append_bytes(int fd, const char *path, const void *bytes, size_t n)
{
    struct stat before;
    const char *at = bytes;
    bool regular = fstat(fd, &before) == 0 && S_ISREG(before.st_mode);
    for (size_t done = 0; done < n;) {
        ssize_t written = fsdp_growing_write(fd, at + done, n - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            int error = errno;
            if (regular && done && ftruncate(fd, before.st_size) != 0)
                return fsdp_error(FSDP_ERR_IO, "%s: %s, and a part of a record remains (%s)", path,
                                  strerror(error), strerror(errno));
            return fsdp_error(FSDP_ERR_IO, "%s: %s", path, strerror(error));
        }
        done += (size_t)written;
    }
    return FSDP_OK;
}
