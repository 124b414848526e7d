/* Computes checksums of the blocks of a data file while the file is written, and verifies them
 * while the file is read. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io_internal.h"
#include "src/base/str.h"
#include "src/dcp/block_sums.h"

enum {
    BLOCK_BYTES = 256 << 10,
    MAGIC_BYTES = 8,
    HEAD_BYTES = MAGIC_BYTES + 8 + 4,
    SUM_BYTES = 4
};

static const char MAGIC[MAGIC_BYTES + 1] = "FSDPCRC1";
static const uint64_t MAX_BLOCK_BYTES = 1 << 30; /* upper bound of the size of a block; a file of
                                                    checksums that gives a larger size is invalid */

char *fsdp_block_sums_path(const char *data_path)
{
    const char *name = fsdp_path_name(data_path), *dot = strrchr(name, '.');
    size_t n = dot && dot > name ? (size_t)(dot - data_path) : strlen(data_path);
    return fsdp_strdup_printf("%.*s.crc32", (int)n, data_path);
}

/* ---- writing --------------------------------------------------------------------------------- */

void fsdp_block_sums_init(fsdp_block_sums *sums)
{
    *sums = (fsdp_block_sums){0};
    fsdp_crc32_init(&sums->table);
}

void fsdp_block_sums_fini(fsdp_block_sums *sums)
{
    fsdp_free(sums->sums);
    sums->sums = NULL;
}

fsdp_status fsdp_block_sums_add(void *context, const void *data, size_t bytes)
{
    fsdp_block_sums *s = context;
    const unsigned char *from = data;
    while (bytes > 0) {
        size_t room = BLOCK_BYTES - (size_t)(s->bytes % BLOCK_BYTES);
        size_t piece = bytes < room ? bytes : room;
        if (!FSDP_GROW(s->sums, s->cap, s->n + 1))
            return FSDP_ERR_NOMEM;
        s->crc = fsdp_crc32(&s->table, s->crc, from, piece);
        s->bytes += piece;
        if (piece == room) {
            s->sums[s->n++] = s->crc;
            s->crc = 0;
        }
        from += piece;
        bytes -= piece;
    }
    return FSDP_OK;
}

static void put_number(fsdp_str *text, uint64_t value, int bytes)
{
    char little[8];
    for (int i = 0; i < bytes; i++)
        little[i] = (char)(unsigned char)(value >> 8 * i);
    fsdp_str_append(text, little, (size_t)bytes);
}

static void put_sums(const fsdp_block_sums *s, fsdp_str *text)
{
    fsdp_str_append(text, MAGIC, MAGIC_BYTES);
    put_number(text, s->bytes, 8);
    put_number(text, BLOCK_BYTES, 4);
    for (size_t i = 0; i < s->n; i++)
        put_number(text, s->sums[i], SUM_BYTES);
    if (s->bytes % BLOCK_BYTES != 0)
        put_number(text, s->crc, SUM_BYTES);
    if (!text->failed)
        put_number(text, fsdp_crc32(&s->table, 0, text->data, text->len), SUM_BYTES);
}

fsdp_status fsdp_block_sums_write(const fsdp_block_sums *sums, const char *data_path)
{
    fsdp_str text = {0};
    char *path = fsdp_block_sums_path(data_path);
    put_sums(sums, &text);
    fsdp_status status =
        !path || text.failed ? fsdp_error_nomem() : fsdp_file_write(path, text.data, text.len);
    fsdp_str_fini(&text);
    fsdp_free(path);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct fsdp_block_check {
    const char *data_path; /* path of the data file, or another text that messages contain instead;
                            * owned by the caller */
    const fsdp_mapping *data;
    fsdp_crc32_table table;
    fsdp_mapping map;          /* content of the file of checksums */
    void *copy;                /* memory of `map` if it is a copy; NULL: `map` maps the file */
    const unsigned char *sums; /* [n * SUM_BYTES] in `map` */
    uint64_t block_bytes, n;
    bool *compared; /* [n] true if the block has been verified */
};

static uint64_t get_number(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static fsdp_status check_head(const fsdp_block_check *check, const char *path)
{
    const size_t bytes = check->map.bytes;
    const unsigned char *at = check->map.data;
    if (bytes < HEAD_BYTES + SUM_BYTES || memcmp(at, MAGIC, MAGIC_BYTES) != 0 ||
        fsdp_crc32(&check->table, 0, at, bytes - SUM_BYTES) !=
            get_number(at + bytes - SUM_BYTES, SUM_BYTES))
        return fsdp_error(FSDP_ERR_FORMAT, "%s: these checksums are damaged", path);
    if (get_number(at + MAGIC_BYTES, 8) != check->data->bytes)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: has %zu bytes; its checksums are of %llu",
                          check->data_path, check->data->bytes,
                          (unsigned long long)get_number(check->map.data + MAGIC_BYTES, 8));
    return FSDP_OK;
}

static fsdp_status read_sums(fsdp_block_check *check, const char *path)
{
    FSDP_TRY(check_head(check, path));
    check->block_bytes = get_number(check->map.data + MAGIC_BYTES + 8, 4);
    check->n = (check->map.bytes - HEAD_BYTES - SUM_BYTES) / SUM_BYTES;
    check->sums = check->map.data + HEAD_BYTES;
    const uint64_t size = check->block_bytes, bytes = check->data->bytes;
    if (size == 0 || size > MAX_BLOCK_BYTES || check->n != bytes / size + (bytes % size != 0))
        return fsdp_error(FSDP_ERR_FORMAT, "%s: %llu checksums of blocks of %llu bytes", path,
                          (unsigned long long)check->n, (unsigned long long)size);
    check->compared = fsdp_calloc((size_t)check->n, sizeof *check->compared);
    return check->compared ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_block_check *new_check(const char *label, const fsdp_mapping *data)
{
    fsdp_block_check *check = fsdp_calloc(1, sizeof *check);
    if (!check)
        return NULL;
    check->data_path = label;
    check->data = data;
    fsdp_crc32_init(&check->table);
    return check;
}

/* If `status` is FSDP_OK, read the sums from `path` and set *out to `check`. After an error, free
 * `check`. In both cases, free `path`. */
static fsdp_status finish_check(fsdp_block_check *check, fsdp_status status, char *path,
                                fsdp_block_check **out)
{
    if (status == FSDP_OK)
        status = read_sums(check, path);
    fsdp_free(path);
    if (status == FSDP_OK)
        *out = check;
    else
        fsdp_block_check_close(check);
    return status;
}

fsdp_status fsdp_block_check_open(const char *data_path, const fsdp_mapping *data,
                                  fsdp_block_check **out)
{
    fsdp_block_check *check = new_check(data_path, data);
    if (!check)
        return FSDP_ERR_NOMEM;
    char *path = fsdp_block_sums_path(data_path);
    const fsdp_status status = path ? fsdp_file_map(path, &check->map) : FSDP_ERR_NOMEM;
    return finish_check(check, status, path, out);
}

fsdp_status fsdp_block_check_create(const char *label, const fsdp_mapping *data, const void *text,
                                    size_t bytes, fsdp_block_check **out)
{
    fsdp_block_check *check = new_check(label, data);
    if (!check)
        return FSDP_ERR_NOMEM;
    check->copy = fsdp_calloc(bytes + 1, 1);
    char *path = fsdp_block_sums_path(label);
    fsdp_status status = check->copy && path ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        memcpy(check->copy, text, bytes);
        check->map = (fsdp_mapping){.data = check->copy, .bytes = bytes};
    }
    return finish_check(check, status, path, out);
}

void fsdp_block_check_close(fsdp_block_check *check)
{
    if (!check)
        return;
    if (check->copy)
        fsdp_free(check->copy);
    else
        fsdp_file_unmap(&check->map);
    fsdp_free(check->compared);
    fsdp_free(check);
}

void fsdp_block_check_set_label(fsdp_block_check *check, const char *label)
{
    check->data_path = label;
}

uint64_t fsdp_block_check_block_bytes(const fsdp_block_check *check)
{
    return check->block_bytes;
}

void fsdp_block_check_forget(fsdp_block_check *check)
{
    memset(check->compared, 0, (size_t)check->n * sizeof *check->compared);
}

static size_t bytes_of_block(const fsdp_block_check *check, uint64_t i)
{
    const uint64_t left = check->data->bytes - i * check->block_bytes;
    return (size_t)(left < check->block_bytes ? left : check->block_bytes);
}

/* Compute the checksum of `data`, the content of block `i`, and compare it with the recorded
 * checksum. */
static fsdp_status compare_block(const fsdp_block_check *check, uint64_t i, const void *data)
{
    const uint64_t begin = i * check->block_bytes;
    const size_t bytes = bytes_of_block(check, i);
    if (fsdp_crc32(&check->table, 0, data, bytes) !=
        get_number(check->sums + i * SUM_BYTES, SUM_BYTES))
        return fsdp_error(FSDP_ERR_FORMAT, "%s is damaged: checksum of bytes [%llu, %llu)",
                          check->data_path, (unsigned long long)begin,
                          (unsigned long long)(begin + bytes));
    return FSDP_OK;
}

fsdp_status fsdp_block_check_range(fsdp_block_check *check, uint64_t offset, uint64_t bytes)
{
    FSDP_ASSERT(offset <= check->data->bytes);
    FSDP_ASSERT(bytes <= check->data->bytes - offset);
    if (bytes == 0)
        return FSDP_OK;
    const uint64_t last = (offset + bytes - 1) / check->block_bytes;
    for (uint64_t i = offset / check->block_bytes; i <= last; i++)
        if (!check->compared[i]) {
            FSDP_TRY(compare_block(check, i, check->data->data + i * check->block_bytes));
            check->compared[i] = true;
        }
    return FSDP_OK;
}

/* Argument of read_descriptor(). */
typedef struct descriptor {
    const fsdp_block_check *check;
    int fd;
} descriptor;

static fsdp_status read_descriptor(void *context, uint64_t offset, void *out, size_t bytes)
{
    const descriptor *d = context;
    unsigned char *to = out;
    while (bytes > 0) {
        const ssize_t n = pread(d->fd, to, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fsdp_io_error(d->check->data_path, "cannot read");
        if (n == 0)
            return fsdp_error(FSDP_ERR_FORMAT, "%s: ends at byte %llu: it was shortened",
                              d->check->data_path, (unsigned long long)offset);
        to += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return FSDP_OK;
}

/* Copy bytes [offset, offset + bytes) to `out`, and verify block `i`, which contains all of
 * them. */
static fsdp_status read_block(fsdp_block_check *check, fsdp_block_read_fn *read, void *context,
                              uint64_t i, uint64_t offset, size_t bytes, unsigned char *out)
{
    if (bytes == bytes_of_block(check, i)) {
        /* This verifies the bytes in `out`, but not those of the mapping, which may be absent or
         * different. So do not mark the block as compared. */
        FSDP_TRY(read(context, offset, out, bytes));
        return compare_block(check, i, out);
    }
    FSDP_TRY(fsdp_block_check_range(check, offset, bytes));
    memcpy(out, check->data->data + offset, bytes);
    return FSDP_OK;
}

fsdp_status fsdp_block_check_read_by(fsdp_block_check *check, fsdp_block_read_fn *read,
                                     void *context, uint64_t offset, uint64_t bytes, void *out)
{
    unsigned char *to = out;
    FSDP_ASSERT(offset <= check->data->bytes);
    FSDP_ASSERT(bytes <= check->data->bytes - offset);
    while (bytes > 0) {
        const uint64_t i = offset / check->block_bytes;
        const uint64_t room = (i + 1) * check->block_bytes - offset;
        const size_t piece = (size_t)(bytes < room ? bytes : room);
        FSDP_TRY(read_block(check, read, context, i, offset, piece, to));
        to += piece;
        offset += piece;
        bytes -= piece;
    }
    return FSDP_OK;
}

fsdp_status fsdp_block_check_read(fsdp_block_check *check, int fd, uint64_t offset, uint64_t bytes,
                                  void *out)
{
    descriptor d = {.check = check, .fd = fd};
    return fsdp_block_check_read_by(check, read_descriptor, &d, offset, bytes, out);
}
