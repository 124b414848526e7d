/* Reads the index of a dataset of Megatron-LM (megatron/core/datasets/indexed_dataset.py). The file
 * NAME.bin has the tokens of all documents, one after the other. NAME.idx has, in this order,
 * little endian:
 *
 * - the magic "MMIDIDX\0\0", the version 1 (uint64), a code for the type of the tokens (uint8)
 * - the number of sequences, and the number of document indices (uint64 each)
 * - for each sequence, its length in tokens (int32)
 * - for each sequence, its offset in bytes (int64)
 * - for each document, the index of its first sequence (int64)
 * - in some files, one more byte for each sequence, its mode
 *
 * The tokens are used as one stream, so the index is needed for their type, and to check that the
 * files belong together. */
#include "src/data/tokens/token_file.h"

#include <inttypes.h>
#include <string.h>

const char fsdp_megatron_magic[FSDP_MEGATRON_MAGIC_BYTES] = "MMIDIDX\0";

static uint64_t load(const unsigned char *p, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)p[i] << 8 * i;
    return value;
}

/* Return the size in bytes of a token whose type has this code, or 0 if the code is not that of an
 * integer type. */
static int width_of(unsigned code)
{
    static const int widths[] = {[1] = 1, [2] = 1, [3] = 2, [4] = 4, [5] = 8, [8] = 2};
    return code < sizeof widths / sizeof *widths ? widths[code] : 0;
}

unsigned char fsdp_megatron_code(int width)
{
    static const unsigned char codes[] = {[1] = 1, [2] = 8, [4] = 4, [8] = 5};
    return codes[width];
}

/* Check that the sequences follow each other without gaps, and that their total length is the
 * length of the file of tokens. */
static fsdp_status check_sequences(const unsigned char *sizes, uint64_t n, uint64_t bytes,
                                   int width)
{
    const unsigned char *offsets = sizes + 4 * n;
    uint64_t at = 0;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t tokens = load(sizes + 4 * i, 4), offset = load(offsets + 8 * i, 8);
        if (tokens > INT32_MAX)
            return fsdp_error(FSDP_ERR_FORMAT,
                              "sequence %" PRIu64 " has a length of %" PRId32
                              " tokens: the index is damaged",
                              i, (int32_t)(uint32_t)tokens);
        if (offset != at)
            return fsdp_error(FSDP_ERR_FORMAT,
                              "sequence %" PRIu64 " of %" PRIu64 " tokens begins at byte %" PRIu64
                              ", not %" PRIu64 ": the index is damaged",
                              i, tokens, offset, at);
        at += tokens * (uint64_t)width;
    }
    if (at == bytes)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT,
                      "its sequences have %" PRIu64 " bytes, the .bin file next to it %" PRIu64, at,
                      bytes);
}

static fsdp_status read_index(const fsdp_mapping *m, size_t bytes, int *width)
{
    static const char legacy[] = "TNTIDX\0";
    if (m->bytes >= sizeof legacy && memcmp(m->data, legacy, sizeof legacy) == 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "the older index of fairseq (TNTIDX): Megatron's preprocess_data.py "
                          "writes one that is supported");
    if (m->bytes < FSDP_MEGATRON_HEADER_BYTES ||
        memcmp(m->data, fsdp_megatron_magic, FSDP_MEGATRON_MAGIC_BYTES) != 0)
        return fsdp_error(FSDP_ERR_FORMAT, "not the index of a dataset of Megatron (MMIDIDX)");
    const uint64_t version = load(m->data + 9, 8);
    const uint64_t n = load(m->data + 18, 8), documents = load(m->data + 26, 8);
    if (version != FSDP_MEGATRON_VERSION)
        return fsdp_error(FSDP_ERR_FORMAT, "version %" PRIu64 " of Megatron's index; %d is known",
                          version, FSDP_MEGATRON_VERSION);
    *width = width_of(m->data[17]);
    if (!*width)
        return fsdp_error(FSDP_ERR_FORMAT, "type %u of its tokens is not an integer",
                          (unsigned)m->data[17]);
    const uint64_t rest = m->bytes - FSDP_MEGATRON_HEADER_BYTES;
    if (n > rest / 12 || documents > rest / 8 ||
        (rest != 12 * n + 8 * documents && rest != 13 * n + 8 * documents))
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%zu bytes do not fit %" PRIu64 " sequences and %" PRIu64
                          " document indices: truncated?",
                          m->bytes, n, documents);
    return check_sequences(m->data + FSDP_MEGATRON_HEADER_BYTES, n, bytes, *width);
}

fsdp_status fsdp_token_index_read(const char *path, size_t bytes, int *width)
{
    fsdp_mapping mapping;
    int found = 0;
    FSDP_TRY(fsdp_file_map(path, &mapping));
    fsdp_status status = read_index(&mapping, bytes, &found);
    fsdp_file_unmap(&mapping);
    if (status == FSDP_OK)
        *width = found;
    fsdp_error_context(status, "%s", path);
    return status;
}
