/* Reads token files of llm.c and nanoGPT.
 *
 * llm.c's header has 256 int32. Three of them are used: magic, version and number of tokens [llm.c:
 * dev/data/data_common.py, llmc/dataloader.h]. The magic numbers are dates in 2024, such as
 * 20240520. nanoGPT's files have no header, only ids as uint16. A file of nanoGPT with the ids of
 * GPT-2 is never mistaken for a file of llm.c. Its first id would have to equal the lower 16 bits
 * of a magic number. The lower 16 bits of every magic number are at least 54912, but no id of GPT-2
 * is above 50256. */
#include "src/data/tokens/token_file.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/file_kind.h"

enum {
    MAGIC_FIRST = 20240000, /* a file that begins with a number in this range has llm.c's header */
    MAGIC_LAST = 20249999
};

/* Limits for the check whether tokens are wider than 16 bits. */
enum {
    LEAST_BYTES = 128, /* smaller files are not checked, because small ids may occur by chance */
    LOOKED_AT_BYTES = 1 << 20,
    LARGEST_HIGH = 3 /* the upper bits of an id below 2^18; vocabularies are smaller */
};

const fsdp_llmc_kind fsdp_llmc_kinds[2] = {
    {20240520, 1, 2}, /* ids of GPT-2 */
    {20240801, 7, 4}, /* ids of Llama 3 */
};

static uint32_t load_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Return token `i`. A negative number becomes a very large one, which the callers refuse because it
 * is not below vocab_size. */
static uint64_t load_token(const fsdp_token_file *file, int64_t i)
{
    const unsigned char *p = file->tokens + i * file->width;
    switch (file->width) {
    case 1:
        return p[0];
    case 2:
        return (uint64_t)p[0] | (uint64_t)p[1] << 8;
    case 4:
        return load_u32(p);
    default:
        return load_u32(p) | (uint64_t)load_u32(p + 4) << 32;
    }
}

/* ---- opening ---- */

static bool is_magic(uint32_t word)
{
    return word >= MAGIC_FIRST && word <= MAGIC_LAST;
}

static bool has_header(const fsdp_mapping *m)
{
    return m->bytes >= 4 && is_magic(load_u32(m->data));
}

/* Refuse files of other kinds whose names also end in .bin. If they were read as uint16, they would
 * look like tokens. */
static fsdp_status refuse_other_kinds(const fsdp_mapping *m)
{
    static const unsigned char zip[] = {'P', 'K', 3, 4};
    static const unsigned char npy[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    if (m->bytes >= sizeof zip && memcmp(m->data, zip, sizeof zip) == 0)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "a zip archive, as torch.save() writes weights, not tokens");
    if (m->bytes >= sizeof npy && memcmp(m->data, npy, sizeof npy) == 0)
        return fsdp_error(FSDP_ERR_FORMAT, "an array of NumPy (.npy), which begins with a header: "
                                           "write array.astype('uint16').tofile(NEW_FILE)");
    if (m->bytes >= 4 && is_magic(__builtin_bswap32(load_u32(m->data))))
        return fsdp_error(FSDP_ERR_FORMAT,
                          "llm.c's header, but with the big end of each number first");
    return FSDP_OK;
}

static fsdp_status find_kind(uint32_t magic, uint32_t version, const fsdp_llmc_kind **found)
{
    for (size_t i = 0; i < FSDP_LENGTH(fsdp_llmc_kinds); i++) {
        if (fsdp_llmc_kinds[i].magic != magic)
            continue;
        *found = &fsdp_llmc_kinds[i];
        if (version == fsdp_llmc_kinds[i].version)
            return FSDP_OK;
        return fsdp_error(FSDP_ERR_FORMAT, "version %u of token files with magic %u; %u is known",
                          (unsigned)version, (unsigned)magic, (unsigned)fsdp_llmc_kinds[i].version);
    }
    return fsdp_error(FSDP_ERR_FORMAT, "magic %u is of no token file; llm.c's have %u or %u",
                      (unsigned)magic, (unsigned)fsdp_llmc_kinds[0].magic,
                      (unsigned)fsdp_llmc_kinds[1].magic);
}

static fsdp_status read_header(fsdp_token_file *file)
{
    const fsdp_mapping *m = &file->mapping;
    const fsdp_llmc_kind *k = NULL;
    if (m->bytes < FSDP_LLMC_HEADER_BYTES)
        return fsdp_error(FSDP_ERR_FORMAT, "%zu bytes, shorter than llm.c's header of %d", m->bytes,
                          FSDP_LLMC_HEADER_BYTES);
    FSDP_TRY(find_kind(load_u32(m->data), load_u32(m->data + 4), &k));
    file->width = k->width;
    file->count = load_u32(m->data + 8);
    file->tokens = m->data + FSDP_LLMC_HEADER_BYTES;
    uint64_t expected = FSDP_LLMC_HEADER_BYTES + (uint64_t)file->count * (uint64_t)k->width;
    if (expected == m->bytes)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT,
                      "%s: %zu bytes, but its header says %" PRId64 " tokens, which take %" PRIu64,
                      m->bytes < expected ? "truncated" : "too long", m->bytes, file->count,
                      expected);
}

/* Return true if the tokens of the file seem to have `width` bytes instead of 2. For this, each
 * group of `width` bytes is read as a token. All of these tokens must be below 2^18. In at least
 * one token, the lowest 16 bits must be above LARGEST_HIGH, so that they cannot be the upper bits
 * of an id below 2^18. */
static bool looks_like(const fsdp_mapping *m, size_t width)
{
    const size_t n = m->bytes < LOOKED_AT_BYTES ? m->bytes : LOOKED_AT_BYTES;
    bool any = false;
    if (m->bytes % width || m->bytes < LEAST_BYTES)
        return false;
    for (size_t at = 0; at + width <= n; at += width) {
        const unsigned char *p = m->data + at;
        const uint64_t high =
            load_u32(p) >> 16 | (width == 8 ? (uint64_t)load_u32(p + 4) << 16 : 0);
        if (high > LARGEST_HIGH)
            return false;
        any |= p[1] || p[0] > LARGEST_HIGH;
    }
    return any;
}

/* Return an error if the tokens of the file are certainly wider than the default, uint16. */
static fsdp_status check_width(const fsdp_token_file *file)
{
    const bool is_int64 = looks_like(&file->mapping, 8);
    if (!is_int64 && !looks_like(&file->mapping, 4))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT,
                      "read as uint16, the default, %s tokens are 0 or as small as the upper "
                      "halves of larger numbers: the tokens are %s; --token-dtype %s reads them "
                      "(and --token-dtype uint16 takes the file as it is)",
                      is_int64 ? "three of four" : "every second of the",
                      is_int64 ? "int64" : "int32", is_int64 ? "int64" : "int32");
}

static fsdp_status read_plain(fsdp_token_file *file, fsdp_token_dtype dtype)
{
    static const int widths[] = {[FSDP_TOKENS_DEFAULT] = 2,
                                 [FSDP_TOKENS_U16] = 2,
                                 [FSDP_TOKENS_U8] = 1,
                                 [FSDP_TOKENS_I32] = 4,
                                 [FSDP_TOKENS_I64] = 8};
    static const char *const names[] = {"uint16", "uint16", "uint8", "int32", "int64"};
    const fsdp_mapping *m = &file->mapping;
    const int width = widths[dtype];
    if (m->bytes % (size_t)width)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%zu bytes: without llm.c's header it is %s after %s, an %s number%s",
                          m->bytes, names[dtype], names[dtype], width == 2 ? "even" : "integral",
                          dtype == FSDP_TOKENS_DEFAULT ? "; --token-dtype names another type" : "");
    if (dtype == FSDP_TOKENS_DEFAULT)
        FSDP_TRY(check_width(file));
    file->width = width;
    file->plain = true;
    file->has_dtype = dtype != FSDP_TOKENS_DEFAULT;
    file->count = (int64_t)(m->bytes / (size_t)width);
    file->tokens = m->data;
    return FSDP_OK;
}

/* Read Megatron's index if there is one next to the file. */
static fsdp_status read_with_index(fsdp_token_file *file, bool *has_index)
{
    const int length = (int)(strlen(file->path) - strlen(".bin"));
    char *index = fsdp_strdup_printf("%.*s.idx", length, file->path);
    if (!index)
        return FSDP_ERR_NOMEM;
    *has_index = fsdp_path_is_file(index);
    fsdp_status status =
        *has_index ? fsdp_token_index_read(index, file->mapping.bytes, &file->width) : FSDP_OK;
    if (*has_index && status == FSDP_OK) {
        file->count = (int64_t)(file->mapping.bytes / (size_t)file->width);
        file->tokens = file->mapping.data;
    }
    fsdp_free(index);
    return status;
}

/* Find the tokens of a mapped file. */
static fsdp_status find_tokens(fsdp_token_file *file, fsdp_token_dtype dtype)
{
    bool has_index = false;
    fsdp_status status = refuse_other_kinds(&file->mapping);
    fsdp_error_context(status, "%s", file->path);
    if (status == FSDP_OK && file->mapping.bytes)
        status = fsdp_file_explain(file->path, "tokens", FSDP_WANTED_NUMBERS, file->mapping.data,
                                   file->mapping.bytes);
    if (status == FSDP_OK)
        /* The error messages of this function contain the path of the index. */
        status = read_with_index(file, &has_index);
    FSDP_TRY(status);
    if (!has_index)
        status = has_header(&file->mapping) ? read_header(file) : read_plain(file, dtype);
    if (status == FSDP_OK && file->count == 0)
        status = fsdp_error(FSDP_ERR_FORMAT, "no tokens");
    fsdp_error_context(status, "%s", file->path);
    return status;
}

fsdp_status fsdp_token_file_open(const char *path, fsdp_token_dtype dtype, fsdp_token_file *out)
{
    fsdp_token_file file = {.path = fsdp_strdup(path)};
    if (!file.path)
        return FSDP_ERR_NOMEM;
    /* fsdp_file_map() adds the path to its error message itself. */
    fsdp_status status = fsdp_file_map(path, &file.mapping);
    if (status == FSDP_OK)
        status = find_tokens(&file, dtype);
    if (status != FSDP_OK) {
        fsdp_token_file_close(&file);
        return status;
    }
    *out = file;
    return FSDP_OK;
}

void fsdp_token_file_close(fsdp_token_file *file)
{
    fsdp_file_unmap(&file->mapping);
    fsdp_free(file->memory);
    fsdp_free(file->path);
    *file = (fsdp_token_file){0};
}

/* ---- reading ---- */

static fsdp_status out_of_range(const fsdp_token_file *file, int64_t position, int64_t vocab_size)
{
    return fsdp_error(FSDP_ERR_FORMAT,
                      "%s: token %" PRId64 " is %" PRIu64
                      ", but ids of the model are below its vocab_size %" PRId64,
                      file->path, position, load_token(file, position), vocab_size);
}

fsdp_status fsdp_token_file_read(const fsdp_token_file *file, int64_t first, int64_t count,
                                 int64_t vocab_size, int32_t *ids)
{
    FSDP_ASSERT(first >= 0 && count <= file->count - first);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t id = load_token(file, first + i);
        if (id >= (uint64_t)vocab_size || id > INT32_MAX)
            return out_of_range(file, first + i, vocab_size);
        ids[i] = (int32_t)id;
    }
    return FSDP_OK;
}

fsdp_status fsdp_token_file_check(const fsdp_token_file *file, int64_t vocab_size)
{
    if (file->width == 2 && vocab_size > UINT16_MAX)
        return FSDP_OK;
    for (int64_t i = 0; i < file->count; i++)
        if (load_token(file, i) >= (uint64_t)vocab_size)
            return out_of_range(file, i, vocab_size);
    return FSDP_OK;
}
