/* See tail.h. */
#include "src/dashboard/tail.h"

#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/dashboard/beneath.h"

enum {
    PIECE_BYTES = 1 << 16
};

fsdp_status fsdp_tail_init(fsdp_tail *tail, const char *path)
{
    *tail = (fsdp_tail){.path = fsdp_strdup(path)};
    return tail->path ? FSDP_OK : FSDP_ERR_NOMEM;
}

void fsdp_tail_fini(fsdp_tail *tail)
{
    fsdp_free(tail->path);
    fsdp_free(tail->rest);
    *tail = (fsdp_tail){0};
}

/* --- lines --- */

static fsdp_status take_line(fsdp_tail *tail, const char *text, size_t bytes,
                             const fsdp_tail_reader *reader)
{
    fsdp_json *doc;
    if (bytes && text[bytes - 1] == '\r')
        bytes--;
    if (!bytes)
        return FSDP_OK;
    fsdp_status status = fsdp_json_parse(tail->path, 1, text, bytes, &doc);
    if (status != FSDP_OK) {
        tail->bad++;
        return status == FSDP_ERR_NOMEM ? status : FSDP_OK;
    }
    if (fsdp_json_kind_of(fsdp_json_root(doc)) == FSDP_JSON_OBJECT)
        status = reader->line(reader->context, fsdp_json_root(doc));
    else
        tail->bad++;
    fsdp_json_destroy(doc);
    return status;
}

/* Append `text` [bytes], a part of a line whose end has not been read yet, to tail->rest. */
static fsdp_status keep_rest(fsdp_tail *tail, const char *text, size_t bytes)
{
    if (!bytes || tail->skips)
        return FSDP_OK;
    if (tail->rest_len + bytes > FSDP_TAIL_LINE_BYTES) {
        tail->skips = true;
        tail->bad++;
        tail->rest_len = 0;
        return FSDP_OK;
    }
    if (!FSDP_GROW(tail->rest, tail->rest_cap, tail->rest_len + bytes))
        return FSDP_ERR_NOMEM;
    memcpy(tail->rest + tail->rest_len, text, bytes);
    tail->rest_len += bytes;
    return FSDP_OK;
}

/* Process a complete line. `text` [bytes] is its end; its beginning may be in tail->rest. */
static fsdp_status end_line(fsdp_tail *tail, const char *text, size_t bytes,
                            const fsdp_tail_reader *reader)
{
    fsdp_status status = FSDP_OK;
    if (tail->rest_len) {
        FSDP_TRY(keep_rest(tail, text, bytes));
        if (!tail->skips)
            status = take_line(tail, tail->rest, tail->rest_len, reader);
    } else if (!tail->skips) {
        status = take_line(tail, text, bytes, reader);
    }
    tail->rest_len = 0;
    tail->skips = false;
    return status;
}

static fsdp_status take_piece(fsdp_tail *tail, const char *piece, size_t bytes,
                              const fsdp_tail_reader *reader)
{
    while (bytes) {
        const char *end = memchr(piece, '\n', bytes);
        if (!end)
            return keep_rest(tail, piece, bytes);
        const size_t n = (size_t)(end - piece);
        FSDP_TRY(end_line(tail, piece, n, reader));
        piece += n + 1;
        bytes -= n + 1;
    }
    return FSDP_OK;
}

/* --- the file --- */

static bool begins_otherwise(const fsdp_tail *tail, int fd)
{
    char head[FSDP_TAIL_HEAD_BYTES];
    return pread(fd, head, tail->head_len, 0) != (ssize_t)tail->head_len ||
           memcmp(head, tail->head, tail->head_len) != 0;
}

static bool was_begun_again(const fsdp_tail *tail, int fd, const struct stat *st)
{
    return tail->inode && (st->st_ino != tail->inode || st->st_dev != tail->device ||
                           st->st_size < tail->offset || begins_otherwise(tail, fd));
}

static void restart(fsdp_tail *tail, const fsdp_tail_reader *reader)
{
    tail->offset = tail->bad = 0;
    tail->rest_len = tail->head_len = 0;
    tail->skips = false;
    reader->restart(reader->context);
}

/* Update tail->head, the copy of the first bytes of the file, from `piece` [bytes], which was read
 * from the file at tail->offset. */
static void keep_head(fsdp_tail *tail, const char *piece, size_t bytes)
{
    if (tail->offset >= FSDP_TAIL_HEAD_BYTES)
        return;
    const size_t room = FSDP_TAIL_HEAD_BYTES - (size_t)tail->offset;
    const size_t n = bytes < room ? bytes : room;
    memcpy(tail->head + tail->offset, piece, n);
    tail->head_len = (size_t)tail->offset + n;
}

static fsdp_status read_pieces(fsdp_tail *tail, int fd, int64_t deadline_ns,
                               const fsdp_tail_reader *reader, bool *more)
{
    char *piece = fsdp_calloc(PIECE_BYTES, 1);
    fsdp_status status = piece ? FSDP_OK : FSDP_ERR_NOMEM;
    *more = false;
    while (status == FSDP_OK) {
        if (fsdp_clock_ns() >= deadline_ns) {
            *more = tail->offset < tail->size;
            break;
        }
        const ssize_t n = pread(fd, piece, PIECE_BYTES, (off_t)tail->offset);
        if (n <= 0)
            break;
        keep_head(tail, piece, (size_t)n);
        status = take_piece(tail, piece, (size_t)n, reader);
        tail->offset += n;
    }
    fsdp_free(piece);
    return status;
}

fsdp_status fsdp_tail_read(fsdp_tail *tail, int root, int64_t deadline_ns,
                           const fsdp_tail_reader *reader, bool *more)
{
    struct stat st;
    int fd;
    *more = false;
    if (!fsdp_beneath_open_file(root, tail->path, &fd, &st))
        return FSDP_OK;
    if (was_begun_again(tail, fd, &st))
        restart(tail, reader);
    tail->device = st.st_dev;
    tail->inode = st.st_ino;
    tail->size = st.st_size;
    fsdp_status status = FSDP_OK;
    if (tail->offset < tail->size)
        status = read_pieces(tail, fd, deadline_ns, reader, more);
    close(fd);
    return status;
}
