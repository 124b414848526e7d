/* Writes a file that appears atomically: the file is written under a temporary name, synced and
 * renamed, and then its folder is synced. A file that replaces another file gets the permissions of
 * that file. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/file_access.h"
#include "src/base/file_growth.h"
#include "src/base/io.h"
#include "src/base/io_internal.h"
#include "src/base/io_testing.h"

enum {
    MAX_NAME_TRIES = 100,
    MAX_WRITE = 1 << 30, /* bytes per call of write(); Linux writes at most 2 GiB per call */
    COPY_BYTES = 1 << 20,
    /* An append writes its data in pieces of this size. After it has written a piece, it passes the
     * piece to the observer. */
    PIECE_BYTES = 256 << 10,
    /* once a block of this size has been appended, the kernel begins to write it to the disk */
    SYNC_BYTES = 8 << 20,
    HOLE_BYTES = 64 << 10 /* size of the blocks that are checked for zeros */
};

struct fsdp_atomic_file {
    char *path;
    char *temporary; /* NULL if `path` is a pipe or a device, to which data is written directly */
    int fd;
    bool keeps_holes;
    /* used only if keeps_holes: the offset after the last byte written or skipped */
    uint64_t end;
    uint64_t appended;   /* offset of the next append */
    fsdp_append_fn *see; /* the observer of appends; NULL: no observer */
    void *context;       /* argument of `see` */
};

fsdp_status fsdp_io_sync(int fd, const char *path)
{
    int result;
    do
        result = fsdp_io_should_fail(FSDP_IO_SYNC) ? -1 : fsync(fd);
    while (result != 0 && errno == EINTR);
    /* fsync() does not work for pipes, devices and some network file systems. */
    if (result == 0 || errno == EINVAL || errno == EROFS || errno == ENOTSUP)
        return FSDP_OK;
    return fsdp_io_error(path, "cannot sync to the disk");
}

fsdp_status fsdp_io_sync_path(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fsdp_io_error(path, "cannot open to sync");
    fsdp_status status = fsdp_io_sync(fd, path);
    close(fd);
    return status;
}

/* ---- leftovers of killed processes ----------------------------------------------------------- */

/* Remove a temporary file unless its writer is still running. A running writer holds a lock on the
 * file; see lock_temporary(). The pid in the file's name does not show whether the writer is
 * running: another thread of this process, or a process in another container, may have the same
 * pid. */
static void remove_unless_held(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        (void)unlinkat(folder, name, 0);
    if (fd >= 0)
        close(fd);
}

/* Remove the temporary files of `path` whose writers have ended. The pid in a file's name does not
 * identify the writer, because processes in different containers often have the same pid. So even a
 * file with the pid of this process in its name may have had another writer, which has ended. A
 * file that cannot be removed remains. */
static fsdp_status sweep_left_files(const char *path)
{
    const char *base = fsdp_path_name(path);
    char *parent = fsdp_path_parent(path);
    if (!parent)
        return FSDP_ERR_NOMEM;
    DIR *folder = opendir(parent);
    fsdp_free(parent);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (fsdp_unfinished_is_abandoned(entry->d_name, base, FSDP_UNFINISHED, (int)getpid()) ||
            fsdp_unfinished_is_abandoned(entry->d_name, base, FSDP_UNFINISHED, 0))
            remove_unless_held(dirfd(folder), entry->d_name);
    if (folder)
        closedir(folder);
    return FSDP_OK;
}

/* Lock the file until its descriptor is closed, so that no other process removes it as a leftover.
 * Return false if another process has just removed the file, or has locked it to remove it. */
static bool lock_temporary(int fd)
{
    struct stat st;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return false;
    return fstat(fd, &st) != 0 || st.st_nlink > 0;
}

/* ---- writing a file -------------------------------------------------------------------------- */

/* The new file `fd` will replace a file that `old` describes. Give `fd` the permissions of that
 * file, its group and, if this process may, its owner. If `fd` cannot get the group, the members of
 * its own group get only the permissions that all users have. A failure is ignored: the new file
 * was created with mode 0600, so only its owner may then read it. */
static void copy_access(int fd, const struct stat *old)
{
    struct stat now;
    mode_t mode = old->st_mode & 0777;
    if (fstat(fd, &now) != 0)
        return;
    const bool differs = now.st_uid != old->st_uid || now.st_gid != old->st_gid;
    if (differs && fchown(fd, old->st_uid, old->st_gid) != 0 &&
        fchown(fd, (uid_t)-1, old->st_gid) != 0 && now.st_gid != old->st_gid)
        mode = (mode & ~(mode_t)070) | (mode & (mode & 07) << 3);
    (void)fchmod(fd, mode);
}

void fsdp_file_copy_access(int fd, const char *path)
{
    struct stat old;
    if (stat(path, &old) == 0)
        copy_access(fd, &old);
}

static fsdp_status open_temporary(fsdp_atomic_file *file)
{
    struct stat old;
    const bool replaces = stat(file->path, &old) == 0;
    FSDP_TRY(sweep_left_files(file->path));
    for (int i = 0; i < MAX_NAME_TRIES; i++) {
        fsdp_free(file->temporary);
        file->temporary = fsdp_unfinished_name(file->path, FSDP_UNFINISHED);
        if (!file->temporary)
            return FSDP_ERR_NOMEM;
        file->fd =
            open(file->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, replaces ? 0600 : 0666);
        if (file->fd >= 0 && lock_temporary(file->fd)) {
            if (replaces)
                copy_access(file->fd, &old);
            return FSDP_OK;
        }
        if (file->fd < 0 && errno != EEXIST && errno != EINTR)
            break;
        if (file->fd >= 0)
            close(file->fd);
        file->fd = -1;
    }
    fsdp_status status = fsdp_io_error(file->path, "cannot write a file there");
    fsdp_free(file->temporary);
    file->temporary = NULL;
    return status;
}

/* Open a pipe or a device directly. Renaming a temporary file to a path such as /dev/stdout would
 * replace the device. */
static fsdp_status open_special(fsdp_atomic_file *file, mode_t mode)
{
    if (S_ISDIR(mode))
        return fsdp_error(FSDP_ERR_INVALID, "%s: is a directory", file->path);
    file->fd = open(file->path, O_WRONLY | O_CLOEXEC);
    return file->fd >= 0 ? FSDP_OK : fsdp_io_error(file->path, "cannot open to write");
}

static fsdp_status reserve_space(const fsdp_atomic_file *file, uint64_t bytes)
{
    if (bytes == 0 || !file->temporary)
        return FSDP_OK;
    int result;
    do
        result = fsdp_growing_fallocate(file->fd, 0, (off_t)bytes);
    while (result != 0 && errno == EINTR);
    if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
        result = fsdp_growing_truncate(file->fd, (off_t)bytes);
    if (result == 0)
        return FSDP_OK;
    return fsdp_io_error(file->path, "cannot reserve %llu bytes", (unsigned long long)bytes);
}

fsdp_status fsdp_atomic_file_begin(const char *path, uint64_t reserve_bytes,
                                   fsdp_atomic_file **file)
{
    if (reserve_bytes > INT64_MAX)
        return fsdp_error(FSDP_ERR_INVALID, "%s: %llu bytes are too many for a file", path,
                          (unsigned long long)reserve_bytes);
    fsdp_atomic_file *f = fsdp_calloc(1, sizeof *f);
    if (!f)
        return FSDP_ERR_NOMEM;
    f->fd = -1;
    struct stat st;
    /* Do not follow links to a pipe or a device. For example, if /proc/self/fd/1 is a link to a
     * pipe, the text of the link is not a path. */
    const bool special = stat(path, &st) == 0 && !S_ISREG(st.st_mode);
    fsdp_status status = FSDP_OK;
    if (!special)
        status = fsdp_path_follow(path, &f->path);
    else if (!(f->path = fsdp_strdup(path)))
        status = FSDP_ERR_NOMEM;
    if (status == FSDP_OK && special)
        status = open_special(f, st.st_mode);
    else if (status == FSDP_OK)
        status = open_temporary(f);
    if (status == FSDP_OK)
        status = reserve_space(f, reserve_bytes);
    if (status != FSDP_OK) {
        fsdp_atomic_file_discard(f);
        return status;
    }
    *file = f;
    return FSDP_OK;
}

/* Write all bytes at offset `at` or, if `at` < 0, at the current position of the descriptor (for
 * pipes). */
static fsdp_status write_all(const fsdp_atomic_file *file, int64_t at, const void *data,
                             size_t bytes)
{
    const char *from = data;
    size_t left = bytes;
    if (fsdp_io_should_fail(FSDP_IO_WRITE))
        return fsdp_io_error(file->path, "writing %zu bytes failed", bytes);
    while (left > 0) {
        size_t piece = left < MAX_WRITE ? left : MAX_WRITE;
        ssize_t n = at < 0 ? fsdp_growing_write(file->fd, from, piece)
                           : fsdp_growing_pwrite(file->fd, from, piece,
                                                 (off_t)(at + (from - (const char *)data)));
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            return fsdp_io_error(file->path, "writing %zu bytes failed with %zu left", bytes, left);
        from += n;
        left -= (size_t)n;
    }
    return FSDP_OK;
}

static bool is_zero(const char *data, size_t bytes)
{
    return data[0] == 0 && memcmp(data, data + 1, bytes - 1) == 0;
}

/* Write `data` [bytes] at offset `at`, but skip blocks of zeros. finish_holes() sets the size of
 * the file later. */
static fsdp_status write_between_holes(fsdp_atomic_file *file, uint64_t at, const char *data,
                                       size_t bytes)
{
    for (size_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < HOLE_BYTES ? bytes - done : HOLE_BYTES;
        if (!is_zero(data + done, n))
            FSDP_TRY(write_all(file, (int64_t)(at + done), data + done, n));
    }
    file->end = at + bytes > file->end ? at + bytes : file->end;
    return FSDP_OK;
}

static fsdp_status finish_holes(const fsdp_atomic_file *file)
{
    if (!file->keeps_holes || fsdp_growing_truncate(file->fd, (off_t)file->end) == 0)
        return FSDP_OK;
    return fsdp_io_error(file->path, "cannot make it %llu bytes long",
                         (unsigned long long)file->end);
}

void fsdp_atomic_file_keep_holes(fsdp_atomic_file *file)
{
    file->keeps_holes = file->temporary != NULL;
}

/* Write `data` at offset `at` or, if `at` < 0, at the current position of the descriptor. */
static fsdp_status write_data(fsdp_atomic_file *file, int64_t at, const void *data, size_t bytes)
{
    if (file->keeps_holes)
        return write_between_holes(file, (uint64_t)at, data, bytes);
    return write_all(file, at, data, bytes);
}

/* Let the kernel begin to write full blocks to the disk, so that little remains to be written in
 * the final sync. The file consists of blocks of SYNC_BYTES. The append has just written a piece
 * that begins at offset `before`. If this piece completes a block, the kernel begins to write this
 * block. Errors are ignored here, because the final sync reports them. */
static void begin_to_sync(const fsdp_atomic_file *file, uint64_t before)
{
    const uint64_t begin = before / SYNC_BYTES * SYNC_BYTES,
                   end = file->appended / SYNC_BYTES * SYNC_BYTES;
    if (file->temporary && end > begin)
        (void)sync_file_range(file->fd, (off_t)begin, (off_t)(end - begin), SYNC_FILE_RANGE_WRITE);
}

static fsdp_status append_piece(fsdp_atomic_file *file, const void *data, size_t bytes)
{
    const uint64_t before = file->appended;
    FSDP_TRY(write_data(file, file->temporary ? (int64_t)file->appended : -1, data, bytes));
    file->appended += bytes;
    begin_to_sync(file, before);
    return file->see ? file->see(file->context, data, bytes) : FSDP_OK;
}

/* Write `data` in pieces of PIECE_BYTES. Such a piece is small enough to stay in the processor's
 * cache until the observer has read it. With pieces of 8 MiB, writing a checkpoint of 1 GiB took
 * three times as long. A likely reason is that Linux keeps the data of a large write in large units
 * of the page cache (folios). While a folio is being written to the disk, no more bytes can be
 * added to it. */
fsdp_status fsdp_atomic_file_append(fsdp_atomic_file *file, const void *data, size_t bytes)
{
    const char *from = data;
    for (size_t at = 0; at < bytes; at += PIECE_BYTES)
        FSDP_TRY(
            append_piece(file, from + at, bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES));
    return FSDP_OK;
}

void fsdp_atomic_file_observe(fsdp_atomic_file *file, fsdp_append_fn *see, void *context)
{
    file->see = see;
    file->context = context;
}

uint64_t fsdp_atomic_file_appended(const fsdp_atomic_file *file)
{
    return file->appended;
}

fsdp_status fsdp_atomic_file_write_at(fsdp_atomic_file *file, uint64_t offset, const void *data,
                                      size_t bytes)
{
    if (offset > INT64_MAX || bytes > INT64_MAX - offset)
        return fsdp_error(FSDP_ERR_INVALID, "%s: offset %llu is beyond a file's end", file->path,
                          (unsigned long long)offset);
    return write_data(file, (int64_t)offset, data, bytes);
}

/* Rename the file to its path and sync the folder. The memory for the folder's path is allocated
 * before the rename, because an error after the rename would come too late to keep the old file. */
static fsdp_status move_into_place(fsdp_atomic_file *file)
{
    char *parent = fsdp_path_parent(file->path);
    if (!parent)
        return FSDP_ERR_NOMEM;
    fsdp_status status;
    if (rename(file->temporary, file->path) != 0) {
        status = fsdp_io_error(file->path, "cannot rename the finished file to this name");
    } else {
        fsdp_free(file->temporary);
        file->temporary = NULL;
        status = fsdp_io_sync_path(parent);
    }
    fsdp_free(parent);
    return status;
}

fsdp_status fsdp_atomic_file_commit(fsdp_atomic_file *file)
{
    fsdp_status status = finish_holes(file);
    if (status == FSDP_OK)
        status = fsdp_io_sync(file->fd, file->path);
    /* Network file systems may report a full disk only when the file is closed. */
    if (close(file->fd) != 0 && errno != EINTR && status == FSDP_OK)
        status = fsdp_io_error(file->path, "closing failed");
    file->fd = -1;
    if (status == FSDP_OK && file->temporary)
        status = move_into_place(file);
    fsdp_atomic_file_discard(file);
    return status;
}

void fsdp_atomic_file_discard(fsdp_atomic_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    if (file->temporary)
        unlink(file->temporary);
    fsdp_free(file->temporary);
    fsdp_free(file->path);
    fsdp_free(file);
}

fsdp_status fsdp_file_write(const char *path, const void *data, size_t bytes)
{
    fsdp_atomic_file *file;
    FSDP_TRY(fsdp_atomic_file_begin(path, 0, &file));
    fsdp_status status = fsdp_atomic_file_append(file, data, bytes);
    if (status == FSDP_OK)
        return fsdp_atomic_file_commit(file);
    fsdp_atomic_file_discard(file);
    return status;
}

static fsdp_status copy_rest(int from, const char *from_path, char *buffer, fsdp_atomic_file *to)
{
    for (;;) {
        ssize_t n = read(from, buffer, COPY_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fsdp_io_error(from_path, "cannot read");
        if (n == 0)
            return FSDP_OK;
        FSDP_TRY(fsdp_atomic_file_append(to, buffer, (size_t)n));
    }
}

fsdp_status fsdp_file_copy(const char *from, const char *to)
{
    fsdp_atomic_file *file = NULL;
    char *buffer = fsdp_calloc(COPY_BYTES, 1);
    int fd = open(from, O_RDONLY | O_CLOEXEC);
    fsdp_status status = fd < 0    ? fsdp_io_error(from, "cannot open")
                         : !buffer ? FSDP_ERR_NOMEM
                                   : fsdp_atomic_file_begin(to, 0, &file);
    if (status == FSDP_OK)
        status = copy_rest(fd, from, buffer, file);
    if (status == FSDP_OK)
        status = fsdp_atomic_file_commit(file);
    else
        fsdp_atomic_file_discard(file);
    if (fd >= 0)
        close(fd);
    fsdp_free(buffer);
    return status;
}
