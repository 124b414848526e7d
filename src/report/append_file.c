/* See append_file.h. */
#include "src/report/append_file.h"
#include "src/base/file_growth.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Remove the last `n` bytes of the file, which this process has just appended. Return false if they
 * are not the last bytes, because another process has appended more, or if the file is not a
 * regular file. A write moves the file offset to the end of the bytes that it has written. */
static bool remove_last_bytes(int fd, off_t begin, size_t n)
{
    struct stat now;
    const off_t end = lseek(fd, 0, SEEK_CUR);
    return begin >= 0 && end == begin + (off_t)n && fstat(fd, &now) == 0 && S_ISREG(now.st_mode) &&
           now.st_size == end && ftruncate(fd, begin) == 0;
}

fsdp_status fsdp_append_bytes(int fd, const char *path, const void *bytes, size_t n)
{
    const char *at = bytes;
    off_t begin = -1; /* where the first byte was written; -1 if the file has no offset */
    for (size_t done = 0; done < n;) {
        ssize_t written = fsdp_growing_write(fd, at + done, n - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            int error = errno;
            if (done && !remove_last_bytes(fd, begin, done))
                return fsdp_error(FSDP_ERR_IO, "%s: %s, and a part of a record remains", path,
                                  strerror(error));
            return fsdp_error(FSDP_ERR_IO, "%s: %s", path, strerror(error));
        }
        if (done == 0) {
            const off_t end = lseek(fd, 0, SEEK_CUR);
            begin = end < 0 ? -1 : end - (off_t)written;
        }
        done += (size_t)written;
    }
    return FSDP_OK;
}
