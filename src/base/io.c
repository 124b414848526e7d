/* Reads and maps files. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/io_internal.h"

fsdp_status fsdp_io_error(const char *path, const char *what, ...)
{
    int code = errno;
    char action[192];
    va_list args;
    va_start(args, what);
    vsnprintf(action, sizeof action, what, args);
    va_end(args);
    fsdp_status status = code == ENOENT || code == ENOTDIR ? FSDP_ERR_NOT_FOUND
                         : code == ENOMEM                  ? FSDP_ERR_NOMEM
                                                           : FSDP_ERR_IO;
    return fsdp_error(status, "%s: %s: %s", path, action, strerror(code));
}

/* Set an error message which says that `path` cannot be opened, and return the status. If `path` is
 * a dangling link, the message contains the link's target. Without the target, the message would
 * say only that no such file exists, although the user can see the link. */
static fsdp_status cannot_open(const char *path)
{
    const int code = errno;
    char target[1024];
    const ssize_t n = code == ENOENT ? readlink(path, target, sizeof target - 1) : -1;
    if (n > 0)
        return fsdp_error(FSDP_ERR_NOT_FOUND,
                          "%s: cannot open: a symbolic link to %.*s, which does not exist", path,
                          (int)n, target);
    errno = code;
    return fsdp_io_error(path, "cannot open");
}

static fsdp_status open_to_read(const char *path, int flags, int *fd, struct stat *st)
{
    do
        *fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    while (*fd < 0 && errno == EINTR);
    if (*fd < 0)
        return cannot_open(path);
    if (fstat(*fd, st) == 0 && !S_ISDIR(st->st_mode))
        return FSDP_OK;
    if (S_ISDIR(st->st_mode))
        errno = EISDIR;
    fsdp_status status = fsdp_io_error(path, "cannot read");
    close(*fd);
    return status;
}

fsdp_status fsdp_file_map(const char *path, fsdp_mapping *mapping)
{
    int fd;
    struct stat st;
    /* Opening a pipe without O_NONBLOCK would wait for a writer. Pipes are refused below. */
    FSDP_TRY(open_to_read(path, O_NONBLOCK, &fd, &st));
    fsdp_status status = FSDP_OK;
    void *data = NULL;
    if (!S_ISREG(st.st_mode))
        status = fsdp_error(FSDP_ERR_INVALID, "%s: not a regular file", path);
    else if (st.st_size > 0 &&
             (data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0)) == MAP_FAILED)
        status = fsdp_io_error(path, "cannot map %lld bytes", (long long)st.st_size);
    close(fd);
    if (status == FSDP_OK)
        *mapping = (fsdp_mapping){.data = data, .bytes = (size_t)st.st_size};
    return status;
}

void fsdp_file_unmap(fsdp_mapping *mapping)
{
    if (mapping->data)
        munmap((void *)(uintptr_t)mapping->data, mapping->bytes);
    *mapping = (fsdp_mapping){0};
}

static fsdp_status read_all(int fd, const char *path, size_t max_bytes, char **text, size_t *bytes)
{
    size_t cap = 0, len = 0;
    for (;;) {
        /* Keep one byte free for the final NUL. */
        if (!FSDP_GROW(*text, cap, len + 4096))
            return FSDP_ERR_NOMEM;
        ssize_t n = read(fd, *text + len, cap - len - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fsdp_io_error(path, "cannot read");
        if (n == 0)
            break;
        len += (size_t)n;
        if (len > max_bytes)
            return fsdp_error(FSDP_ERR_INVALID, "%s: larger than %zu bytes", path, max_bytes);
    }
    (*text)[len] = 0;
    *bytes = len;
    return FSDP_OK;
}

fsdp_status fsdp_file_read(const char *path, size_t max_bytes, char **text, size_t *bytes)
{
    int fd;
    struct stat st;
    FSDP_TRY(open_to_read(path, 0, &fd, &st));
    char *read_text = NULL;
    size_t read_bytes = 0;
    fsdp_status status = read_all(fd, path, max_bytes, &read_text, &read_bytes);
    close(fd);
    if (status != FSDP_OK) {
        fsdp_free(read_text);
        return status;
    }
    *text = read_text;
    *bytes = read_bytes;
    return FSDP_OK;
}
