/* See input.h. Decompression needs a fixed amount of memory: a buffer for compressed bytes and the
 * window of the decompressor. zstd's window is limited to 128 MiB, the library's own limit. */
#include "src/data/files/input.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef FSDP_HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef FSDP_HAVE_ZSTD
#include <zstd.h>
#endif

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/scratch_file.h"

enum {
    BUFFER_BYTES = 1 << 16
};

typedef enum compression {
    COMPRESSION_NONE,
    COMPRESSION_GZIP,
    COMPRESSION_ZSTD
} compression;

struct fsdp_input {
    char *path;
    int fd;          /* the file, or the file without a name that has its decompressed bytes */
    uint64_t offset; /* offset in `fd` of the next byte to read */
    compression kind;
    /* Only for a compressed file: compressed bytes that were read from `fd`. The bytes in
     * buffer[at, len) have not been decompressed yet. */
    unsigned char *buffer;
    size_t at, len;
    bool in_frame; /* a gzip member or zstd frame has begun and has not ended */
#ifdef FSDP_HAVE_ZLIB
    z_stream gzip;
    bool has_gzip;
#endif
#ifdef FSDP_HAVE_ZSTD
    ZSTD_DStream *zstd;
#endif
};

/* ---- the file ---- */

static fsdp_status read_next(fsdp_input *in, void *bytes, size_t count, size_t *n)
{
    FSDP_TRY(fsdp_fd_read_at(in->fd, in->path, in->offset, bytes, count, n));
    in->offset += *n;
    return FSDP_OK;
}

/* ---- decompression ---- */

static fsdp_status damaged(const fsdp_input *in, const char *why)
{
    return fsdp_error(
        FSDP_ERR_FORMAT, "%s: %s-compressed data are damaged near byte %" PRIu64 ": %s", in->path,
        in->kind == COMPRESSION_GZIP ? "gzip" : "zstd", in->offset - (in->len - in->at), why);
}

/* If the buffer has no unread bytes, buffer[at, len), read more into it. At the end of the file the
 * buffer stays empty. */
static fsdp_status fill_buffer(fsdp_input *in)
{
    if (in->at < in->len)
        return FSDP_OK;
    in->at = in->len = 0;
    return read_next(in, in->buffer, BUFFER_BYTES, &in->len);
}

#ifdef FSDP_HAVE_ZLIB
static void *allocate(void *unused, unsigned count, unsigned size)
{
    (void)unused;
    return fsdp_calloc(count, size);
}

static void release(void *unused, void *p)
{
    (void)unused;
    fsdp_free(p);
}

static fsdp_status begin_gzip(fsdp_input *in)
{
    in->gzip = (z_stream){.zalloc = allocate, .zfree = release};
    /* Adding 16 selects the header of gzip instead of that of zlib. */
    if (inflateInit2(&in->gzip, 15 + 16) != Z_OK)
        return FSDP_ERR_NOMEM;
    in->has_gzip = true;
    return FSDP_OK;
}

/* Decompress bytes of the buffer into out[count]. Set *n to the number of decompressed bytes, which
 * may be 0. */
static fsdp_status step_gzip(fsdp_input *in, char *out, size_t count, size_t *n)
{
    const unsigned most = count < BUFFER_BYTES ? (unsigned)count : BUFFER_BYTES;
    if (!in->in_frame && inflateReset(&in->gzip) != Z_OK)
        return damaged(in, "it cannot be reset");
    in->in_frame = true;
    in->gzip.next_in = in->buffer + in->at;
    in->gzip.avail_in = (unsigned)(in->len - in->at);
    in->gzip.next_out = (unsigned char *)out;
    in->gzip.avail_out = most;
    const int result = inflate(&in->gzip, Z_NO_FLUSH);
    in->at = in->len - in->gzip.avail_in;
    *n = most - in->gzip.avail_out;
    if (result == Z_STREAM_END)
        in->in_frame = false;
    else if (result == Z_MEM_ERROR)
        return fsdp_error_nomem();
    else if (result != Z_OK && result != Z_BUF_ERROR)
        return damaged(in, in->gzip.msg ? in->gzip.msg : "not a deflate stream");
    return FSDP_OK;
}
#endif

#ifdef FSDP_HAVE_ZSTD
static fsdp_status begin_zstd(fsdp_input *in)
{
    in->zstd = ZSTD_createDStream();
    return in->zstd ? FSDP_OK : fsdp_error_nomem();
}

static fsdp_status step_zstd(fsdp_input *in, char *out, size_t count, size_t *n)
{
    ZSTD_inBuffer from = {in->buffer, in->len, in->at};
    ZSTD_outBuffer to = {out, count, 0};
    in->in_frame = true;
    const size_t result = ZSTD_decompressStream(in->zstd, &to, &from);
    in->at = from.pos;
    *n = to.pos;
    if (ZSTD_isError(result))
        return damaged(in, ZSTD_getErrorName(result));
    in->in_frame = result != 0;
    return FSDP_OK;
}
#endif

static fsdp_status begin_decompression(fsdp_input *in)
{
    if (in->kind == COMPRESSION_NONE)
        return FSDP_OK;
    in->buffer = fsdp_calloc(BUFFER_BYTES, 1);
    if (!in->buffer)
        return FSDP_ERR_NOMEM;
#ifdef FSDP_HAVE_ZLIB
    if (in->kind == COMPRESSION_GZIP)
        return begin_gzip(in);
#endif
#ifdef FSDP_HAVE_ZSTD
    if (in->kind == COMPRESSION_ZSTD)
        return begin_zstd(in);
#endif
    const bool gzip = in->kind == COMPRESSION_GZIP;
    return fsdp_error(
        FSDP_ERR_UNSUPPORTED,
        "%s: %s-compressed data, and this program was built without %s: decompress it "
        "first, with %s",
        in->path, gzip ? "gzip" : "zstd", gzip ? "zlib" : "libzstd", gzip ? "gunzip" : "unzstd");
}

static fsdp_status step(fsdp_input *in, char *out, size_t count, size_t *n)
{
    *n = 0;
#ifdef FSDP_HAVE_ZLIB
    if (in->kind == COMPRESSION_GZIP)
        return step_gzip(in, out, count, n);
#endif
#ifdef FSDP_HAVE_ZSTD
    if (in->kind == COMPRESSION_ZSTD)
        return step_zstd(in, out, count, n);
#endif
    (void)in, (void)out, (void)count;
    return fsdp_error(FSDP_ERR_STATE, "%s: there is no decompressor for it", in->path);
}

/* If a gzip member has ended, skip the zeros after it, which pad the file. gzip and Python's gzip
 * skip them, too. */
static fsdp_status skip_padding(fsdp_input *in)
{
    if (in->kind != COMPRESSION_GZIP || in->in_frame)
        return FSDP_OK;
    while (in->at < in->len && in->buffer[in->at] == 0) {
        in->at++;
        FSDP_TRY(fill_buffer(in));
    }
    return FSDP_OK;
}

/* Read as fsdp_input_read() does. A decompressor may still hold decompressed bytes after it has
 * consumed the whole file. So the data end only when step() returns no bytes and the file has no
 * more. */
static fsdp_status read_compressed(fsdp_input *in, char *bytes, size_t count, size_t *n)
{
    *n = 0;
    while (*n < count) {
        size_t made;
        FSDP_TRY(fill_buffer(in));
        FSDP_TRY(skip_padding(in));
        const bool ended = in->at == in->len;
        if (ended && !in->in_frame)
            return FSDP_OK;
        FSDP_TRY(step(in, bytes + *n, count - *n, &made));
        *n += made;
        if (ended && made == 0 && in->in_frame)
            return damaged(in, "they end in the middle; a copy or download was interrupted");
    }
    return FSDP_OK;
}

static void end_decompression(fsdp_input *in)
{
#ifdef FSDP_HAVE_ZLIB
    if (in->has_gzip)
        inflateEnd(&in->gzip);
    in->has_gzip = false;
#endif
#ifdef FSDP_HAVE_ZSTD
    ZSTD_freeDStream(in->zstd);
    in->zstd = NULL;
#endif
    fsdp_free(in->buffer);
    in->buffer = NULL;
    in->at = in->len = 0;
    in->in_frame = false;
}

/* ---- opening ---- */

static fsdp_status find_kind(fsdp_input *in)
{
    unsigned char first[4];
    size_t n;
    FSDP_TRY(fsdp_fd_read_at(in->fd, in->path, 0, first, sizeof first, &n));
    if (n >= 2 && memcmp(first, "\x1f\x8b", 2) == 0)
        in->kind = COMPRESSION_GZIP;
    else if (n == 4 && memcmp(first, "\x28\xb5\x2f\xfd", 4) == 0)
        in->kind = COMPRESSION_ZSTD;
    return begin_decompression(in);
}

/* Return true if `path` is a pipe, a socket or a terminal, which can be read only once. */
static bool is_stream(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) &&
           !S_ISBLK(st.st_mode) && strcmp(path, "/dev/null") != 0;
}

/* Return the error for a path that does not exist, which may be a URL or the name of a data set. */
static fsdp_status missing_file(const char *path)
{
    const char *hint =
        strstr(path, "://") ? ": nothing is downloaded: get the file first, with curl -LO URL"
        : strchr(path, ',')
            ? ": several files are given as a folder or as a pattern, such as 'data/*.csv'"
        : !strpbrk(path, "./")
            ? ": data sets of the Hugging Face hub are not downloaded: in Python, "
              "datasets.load_dataset(NAME).save_to_disk(DIR) makes a folder that is read"
            : "";
    return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: %s%s", path, strerror(ENOENT), hint);
}

/* Return the error for standard input or a pipe. These can be read only once, but the data must be
 * read several times. */
static fsdp_status read_only_once(const char *path, const char *what)
{
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: %s; data are read more than once, for example in each epoch and by "
                      "every rank, which a pipe does not allow: write them to a file, such as "
                      "COMMAND >rows.jsonl (.csv, .txt), and give the name of this file",
                      path, what);
}

fsdp_status fsdp_input_check_kept(const char *path)
{
    if (strcmp(path, "-") == 0)
        return read_only_once(path, "standard input");
    const fsdp_status status = fsdp_path_check(path);
    return status == FSDP_ERR_INVALID
               ? read_only_once(path, "neither a regular file nor a directory")
               : status;
}

static fsdp_status open_path(fsdp_input *in, const char *path)
{
    if (fsdp_path_is_directory(path))
        return fsdp_error(FSDP_ERR_INVALID, "%s: is a folder", path);
    if ((in->fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0)
        return FSDP_OK;
    return errno == ENOENT ? missing_file(path)
                           : fsdp_error(FSDP_ERR_IO, "%s: %s", path, strerror(errno));
}

/* Read the descriptor `from` to its end, and write the bytes to `to`. */
static fsdp_status copy_stream(const fsdp_input *in, int from, int to)
{
    char bytes[BUFFER_BYTES];
    for (;;) {
        const ssize_t n = read(from, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fsdp_error(FSDP_ERR_IO, "%s: %s", in->path, strerror(errno));
        if (n == 0)
            return FSDP_OK;
        const fsdp_status status = fsdp_fd_write(to, fsdp_scratch_file_name, bytes, (size_t)n);
        fsdp_error_context(status, "%s: while it was read", in->path);
        FSDP_TRY(status);
    }
}

/* Set in->fd to a file without a name that has all bytes of the descriptor `from`. */
static fsdp_status spool(fsdp_input *in, int from)
{
    const fsdp_status status = fsdp_scratch_file_create(&in->fd);
    fsdp_error_context(status, "%s: while it was read", in->path);
    FSDP_TRY(status);
    return copy_stream(in, from, in->fd);
}

/* Open a file that may be a stream. */
static fsdp_status open_any(fsdp_input *in, const char *path)
{
    if (strcmp(path, "-") == 0)
        return spool(in, STDIN_FILENO);
    const bool stream = is_stream(path);
    FSDP_TRY(open_path(in, path));
    if (!stream)
        return FSDP_OK;
    const int from = in->fd;
    in->fd = -1;
    const fsdp_status status = spool(in, from);
    close(from);
    return status;
}

/* Open a file, and refuse a stream. A stream is refused before it is opened, because opening a
 * named pipe would wait for its writer. */
static fsdp_status open_again(fsdp_input *in, const char *path)
{
    if (is_stream(path))
        return read_only_once(path, "a pipe or a terminal");
    return open_path(in, path);
}

static fsdp_status open_as(const char *path, bool once, fsdp_input **out)
{
    fsdp_input *in = fsdp_calloc(1, sizeof *in);
    if (!in)
        return FSDP_ERR_NOMEM;
    in->fd = -1;
    in->path = fsdp_strdup(once && strcmp(path, "-") == 0 ? "standard input" : path);
    fsdp_status status = !in->path ? FSDP_ERR_NOMEM
                         : once    ? open_any(in, path)
                                   : open_again(in, path);
    if (status == FSDP_OK)
        status = find_kind(in);
    if (status != FSDP_OK) {
        fsdp_input_close(in);
        return status;
    }
    *out = in;
    return FSDP_OK;
}

fsdp_status fsdp_input_open(const char *path, fsdp_input **out)
{
    return open_as(path, false, out);
}

fsdp_status fsdp_input_open_once(const char *path, fsdp_input **out)
{
    return open_as(path, true, out);
}

void fsdp_input_close(fsdp_input *in)
{
    if (!in)
        return;
    end_decompression(in);
    if (in->fd >= 0)
        close(in->fd);
    fsdp_free(in->path);
    fsdp_free(in);
}

/* ---- a file without a name ---- */

static fsdp_status expand_into(fsdp_input *in, int fd)
{
    char *bytes = fsdp_calloc(BUFFER_BYTES, 1);
    size_t n = BUFFER_BYTES;
    fsdp_status status = bytes ? FSDP_OK : FSDP_ERR_NOMEM;
    while (status == FSDP_OK && n == BUFFER_BYTES) {
        status = fsdp_input_read(in, bytes, BUFFER_BYTES, &n);
        if (status != FSDP_OK)
            break;
        status = fsdp_fd_write(fd, fsdp_scratch_file_name, bytes, n);
        fsdp_error_context(status, "%s: while it was decompressed", in->path);
    }
    fsdp_free(bytes);
    return status;
}

fsdp_status fsdp_input_make_seekable(fsdp_input *in)
{
    int fd;
    if (in->kind == COMPRESSION_NONE)
        return FSDP_OK;
    fsdp_status status = fsdp_scratch_file_create(&fd);
    fsdp_error_context(status, "%s: while it was decompressed", in->path);
    FSDP_TRY(status);
    status = expand_into(in, fd);
    if (status != FSDP_OK) {
        close(fd);
        return status;
    }
    end_decompression(in);
    close(in->fd);
    in->fd = fd;
    in->kind = COMPRESSION_NONE;
    in->offset = 0;
    return FSDP_OK;
}

fsdp_status fsdp_input_open_seekable(const char *path, fsdp_input **out)
{
    fsdp_input *in;
    FSDP_TRY(fsdp_input_open(path, &in));
    fsdp_status status = fsdp_input_make_seekable(in);
    if (status != FSDP_OK) {
        fsdp_input_close(in);
        return status;
    }
    *out = in;
    return FSDP_OK;
}

/* ---- reading ---- */

fsdp_status fsdp_input_read(fsdp_input *in, char *bytes, size_t count, size_t *n)
{
    return in->kind == COMPRESSION_NONE ? read_next(in, bytes, count, n)
                                        : read_compressed(in, bytes, count, n);
}

fsdp_status fsdp_input_rewind(fsdp_input *in)
{
    in->offset = 0;
    end_decompression(in);
    return begin_decompression(in);
}

fsdp_status fsdp_input_read_at(const fsdp_input *in, uint64_t offset, char *bytes, size_t count)
{
    size_t n;
    FSDP_ASSERT(in->kind == COMPRESSION_NONE);
    FSDP_TRY(fsdp_fd_read_at(in->fd, in->path, offset, bytes, count, &n));
    if (n == count)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_IO, "%s: the file became shorter", in->path);
}
