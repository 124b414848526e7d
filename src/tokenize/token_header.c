/* See token_header.h. The formats are described in src/data/tokens/token_file.c and token_index.c.
 */
#include "src/tokenize/token_header.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"

enum {
    CHUNK = 8192 /* how many numbers are written at a time */
};

static void store(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

void fsdp_llmc_header(int width, int64_t tokens, unsigned char header[FSDP_LLMC_HEADER_BYTES])
{
    const fsdp_llmc_kind *kind = fsdp_llmc_kinds;
    while (kind->width != width)
        kind++;
    memset(header, 0, FSDP_LLMC_HEADER_BYTES);
    store(header, kind->magic, 4);
    store(header + 4, kind->version, 4);
    store(header + 8, (uint64_t)tokens, 4);
}

/* The lists of numbers in Megatron's index file. All of them are computed from the lengths of the
 * sequences. */
typedef enum list {
    SIZES,
    OFFSETS,
    DOCUMENTS
} list;

/* Append the list `kind`, of `count` numbers, to the index. */
static fsdp_status append_list(fsdp_atomic_file *file, list kind, const int32_t *sizes,
                               int64_t count, int width)
{
    unsigned char bytes[CHUNK * 8];
    const int n = kind == SIZES ? 4 : 8;
    int64_t offset = 0;
    for (int64_t first = 0; first < count; first += CHUNK) {
        const int64_t end = count - first < CHUNK ? count : first + CHUNK;
        for (int64_t i = first; i < end; i++) {
            const int64_t size = kind == DOCUMENTS ? 0 : sizes[i];
            const int64_t value = kind == SIZES ? size : kind == OFFSETS ? offset : i;
            store(bytes + (i - first) * n, (uint64_t)value, n);
            offset += size * width;
        }
        FSDP_TRY(fsdp_atomic_file_append(file, bytes, (size_t)((end - first) * n)));
    }
    return FSDP_OK;
}

static fsdp_status append_index(fsdp_atomic_file *file, const int32_t *sizes, int64_t rows,
                                int width)
{
    unsigned char header[FSDP_MEGATRON_HEADER_BYTES];
    memcpy(header, fsdp_megatron_magic, FSDP_MEGATRON_MAGIC_BYTES);
    store(header + 9, FSDP_MEGATRON_VERSION, 8);
    header[17] = fsdp_megatron_code(width);
    store(header + 18, (uint64_t)rows, 8);
    store(header + 26, (uint64_t)rows + 1, 8);
    FSDP_TRY(fsdp_atomic_file_append(file, header, sizeof header));
    FSDP_TRY(append_list(file, SIZES, sizes, rows, width));
    FSDP_TRY(append_list(file, OFFSETS, sizes, rows, width));
    return append_list(file, DOCUMENTS, sizes, rows + 1, width);
}

fsdp_status fsdp_megatron_index_write(const char *path, const char *sizes, int64_t rows, int width)
{
    fsdp_mapping mapping;
    fsdp_atomic_file *file;
    FSDP_TRY(fsdp_file_map(sizes, &mapping));
    fsdp_status status = fsdp_atomic_file_begin(path, 0, &file);
    if (status == FSDP_OK) {
        const void *data = mapping.data;
        status = append_index(file, data, rows, width);
        if (status == FSDP_OK)
            status = fsdp_atomic_file_commit(file);
        else
            fsdp_atomic_file_discard(file);
    }
    fsdp_file_unmap(&mapping);
    return status;
}
