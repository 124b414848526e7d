/* See remote_blocks.h. */
#include "src/dcp/remote_blocks.h"

#include <string.h>
#include <sys/mman.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/comm.h"
#include "src/dcp/block_sums.h"

struct fsdp_remote_blocks {
    fsdp_remote_files *files;
    size_t file; /* index in `files` */
    const char *label;
    unsigned char *memory;
    fsdp_mapping map;     /* the same memory as a mapping, which readers use */
    uint64_t block_bytes; /* size of a block of `present` */
    bool *present;        /* [blocks] */
    uint64_t held_bytes;
    bool has_sums;
    fsdp_block_check *check; /* read when the first block is needed; NULL until then */
};

static size_t count_blocks(const fsdp_remote_blocks *b)
{
    return (size_t)(b->map.bytes / b->block_bytes + 1);
}

static fsdp_status reserve(fsdp_remote_blocks *b)
{
    const uint64_t bytes = fsdp_remote_files_bytes(b->files, b->file, FSDP_REMOTE_DATA);
    b->map.bytes = (size_t)bytes;
    b->present = fsdp_calloc(count_blocks(b), sizeof *b->present);
    if (!b->present)
        return FSDP_ERR_NOMEM;
    if (bytes == 0)
        return FSDP_OK;
    void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return fsdp_error(FSDP_ERR_NOMEM, "%s: cannot reserve %llu bytes of addresses", b->label,
                          (unsigned long long)bytes);
    b->memory = memory;
    b->map.data = memory;
    return FSDP_OK;
}

fsdp_status fsdp_remote_blocks_create(fsdp_remote_files *files, size_t i, const char *label,
                                      bool has_sums, fsdp_remote_blocks **out)
{
    fsdp_remote_blocks *b = fsdp_calloc(1, sizeof *b);
    if (!b)
        return FSDP_ERR_NOMEM;
    *b = (fsdp_remote_blocks){.files = files,
                              .file = i,
                              .label = label,
                              .block_bytes = FSDP_PIECE_BYTES,
                              .has_sums = has_sums};
    const fsdp_status status = reserve(b);
    if (status == FSDP_OK)
        *out = b;
    else
        fsdp_remote_blocks_destroy(b);
    return status;
}

void fsdp_remote_blocks_destroy(fsdp_remote_blocks *b)
{
    if (!b)
        return;
    fsdp_block_check_close(b->check);
    if (b->memory)
        munmap(b->memory, b->map.bytes);
    fsdp_free(b->present);
    fsdp_free(b);
}

fsdp_mapping fsdp_remote_blocks_map(const fsdp_remote_blocks *b)
{
    return b->map;
}

uint64_t fsdp_remote_blocks_held_bytes(const fsdp_remote_blocks *b)
{
    return b->held_bytes;
}

void fsdp_remote_blocks_drop(fsdp_remote_blocks *b)
{
    if (!b->held_bytes)
        return;
    (void)madvise(b->memory, b->map.bytes, MADV_DONTNEED);
    memset(b->present, 0, count_blocks(b) * sizeof *b->present);
    if (b->check)
        fsdp_block_check_forget(b->check);
    b->held_bytes = 0;
}

/* Read the checksums of the file, unless this has been done. */
static fsdp_status need_sums(fsdp_remote_blocks *b)
{
    const size_t bytes = (size_t)fsdp_remote_files_bytes(b->files, b->file, FSDP_REMOTE_SUMS);
    if (b->check || !b->has_sums)
        return FSDP_OK;
    if (bytes == 0)
        return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: there is no file with its checksums", b->label);
    void *text = fsdp_calloc(bytes, 1);
    fsdp_status status = text ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_remote_files_read(b->files, b->file, FSDP_REMOTE_SUMS, 0, text, bytes);
    if (status == FSDP_OK)
        status = fsdp_block_check_create(b->label, &b->map, text, bytes, &b->check);
    fsdp_free(text);
    FSDP_TRY(status);
    /* The blocks of `present` must have the size of the blocks that have checksums. */
    bool *present = b->present;
    b->block_bytes = fsdp_block_check_block_bytes(b->check);
    b->present = fsdp_calloc(count_blocks(b), sizeof *b->present);
    fsdp_free(present);
    return b->present ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status read_piece(void *context, uint64_t offset, void *out, size_t bytes)
{
    const fsdp_remote_blocks *b = context;
    return fsdp_remote_files_read(b->files, b->file, FSDP_REMOTE_DATA, offset, out, bytes);
}

fsdp_status fsdp_remote_blocks_need(fsdp_remote_blocks *b, uint64_t offset, uint64_t bytes)
{
    FSDP_ASSERT(offset <= b->map.bytes);
    FSDP_ASSERT(bytes <= b->map.bytes - offset);
    if (bytes == 0)
        return FSDP_OK;
    FSDP_TRY(need_sums(b));
    const uint64_t last = (offset + bytes - 1) / b->block_bytes;
    for (uint64_t i = offset / b->block_bytes; i <= last; i++) {
        const uint64_t begin = i * b->block_bytes, left = b->map.bytes - begin;
        const uint64_t n = left < b->block_bytes ? left : b->block_bytes;
        if (b->present[i])
            continue;
        FSDP_TRY(read_piece(b, begin, b->memory + begin, (size_t)n));
        if (b->check)
            FSDP_TRY(fsdp_block_check_range(b->check, begin, n));
        b->present[i] = true;
        b->held_bytes += n;
    }
    return FSDP_OK;
}

fsdp_status fsdp_remote_blocks_read(fsdp_remote_blocks *b, uint64_t offset, uint64_t bytes,
                                    void *out)
{
    FSDP_ASSERT(b->has_sums);
    if (bytes == 0)
        return FSDP_OK;
    FSDP_TRY(need_sums(b));
    if (offset % b->block_bytes != 0 || bytes < b->block_bytes)
        FSDP_TRY(fsdp_remote_blocks_need(b, offset, 1));
    if ((offset + bytes) % b->block_bytes != 0)
        FSDP_TRY(fsdp_remote_blocks_need(b, offset + bytes - 1, 1));
    return fsdp_block_check_read_by(b->check, read_piece, b, offset, bytes, out);
}
