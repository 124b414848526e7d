/* Finds merges by the texts of their tokens, and loads a BPE model from vocab.json and
 * merges.txt. */
#include "src/text/models/bpe.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/file_kind.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/text/models/vocabulary_json.h"

enum {
    MERGES_BYTES_MAX = 256 * 1024 * 1024
};

/* ---- finding a merge by the texts of its tokens ---- */

static fsdp_status find_token(const fsdp_vocabulary *vocabulary, const char *text, size_t length,
                              int32_t *id)
{
    *id = fsdp_vocabulary_find(vocabulary, text, length);
    return *id >= 0 ? FSDP_OK
                    : fsdp_error(FSDP_ERR_FORMAT, "the vocabulary does not contain \"%.*s\"",
                                 length > 80 ? 80 : (int)length, text);
}

fsdp_status fsdp_bpe_find_merge(const fsdp_vocabulary *vocabulary, const fsdp_bpe_options *options,
                                const char *left, size_t left_length, const char *right,
                                size_t right_length, uint32_t rank, fsdp_bpe_merge *merge)
{
    fsdp_bpe_merge m = {.rank = rank};
    FSDP_TRY(find_token(vocabulary, left, left_length, &m.left));
    FSDP_TRY(find_token(vocabulary, right, right_length, &m.right));
    const char *prefix = options->continuing_subword_prefix;
    size_t cut = prefix ? strlen(prefix) : 0;
    if (right_length < cut)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "\"%.*s\" is shorter than the continuing_subword_prefix \"%s\"",
                          (int)right_length, right, prefix);
    char small[256], *text = small;
    size_t length = left_length + right_length - cut;
    if (length > sizeof small && !(text = fsdp_calloc(length, 1)))
        return FSDP_ERR_NOMEM;
    memcpy(text, left, left_length);
    memcpy(text + left_length, right + cut, right_length - cut);
    fsdp_status status = find_token(vocabulary, text, length, &m.result);
    if (text != small)
        fsdp_free(text);
    if (status == FSDP_OK)
        *merge = m;
    return status;
}

/* ---- files ---- */

/* A growing list of merges. */
typedef struct merge_list {
    fsdp_bpe_merge *items;
    size_t len, cap;
} merge_list;

static fsdp_status add_merge(merge_list *list, const fsdp_vocabulary *vocabulary,
                             const fsdp_bpe_options *options, const char *line, size_t length)
{
    const char *space = memchr(line, ' ', length);
    size_t left = space ? (size_t)(space - line) : length;
    if (!space || memchr(space + 1, ' ', length - left - 1))
        return fsdp_error(FSDP_ERR_FORMAT, "expected two tokens and one space, found \"%.*s\"",
                          length > 80 ? 80 : (int)length, line);
    if (!FSDP_GROW(list->items, list->cap, list->len + 1))
        return FSDP_ERR_NOMEM;
    FSDP_TRY(fsdp_bpe_find_merge(vocabulary, options, line, left, space + 1, length - left - 1,
                                 (uint32_t)list->len, &list->items[list->len]));
    list->len++;
    return FSDP_OK;
}

static fsdp_status parse_merges(merge_list *list, const fsdp_vocabulary *vocabulary,
                                const fsdp_bpe_options *options, const char *text, size_t bytes)
{
    static const char version[] = "#version";
    size_t number = 0;
    for (size_t i = 0, next; i < bytes; i = next) {
        const char *line = text + i, *newline = memchr(line, '\n', bytes - i);
        size_t length = newline ? (size_t)(newline - line) : bytes - i;
        next = i + length + 1;
        number++;
        if (length && newline && line[length - 1] == '\r')
            length--;
        if (length >= sizeof version - 1 && memcmp(line, version, sizeof version - 1) == 0)
            continue;
        fsdp_status status = add_merge(list, vocabulary, options, line, length);
        fsdp_error_context(status, "line %zu", number);
        if (status != FSDP_OK)
            return status;
    }
    return FSDP_OK;
}

static fsdp_status read_merges(const char *path, const fsdp_vocabulary *vocabulary,
                               const fsdp_bpe_options *options, merge_list *list)
{
    char *text = NULL;
    size_t bytes;
    FSDP_TRY(fsdp_file_read(path, MERGES_BYTES_MAX, &text, &bytes));
    fsdp_status status = parse_merges(list, vocabulary, options, text, bytes);
    fsdp_error_context(status, "%s", path);
    if (status == FSDP_ERR_FORMAT) {
        const fsdp_status other =
            fsdp_file_explain(path, "merges.txt", FSDP_WANTED_TEXT, text, bytes);
        status = other == FSDP_OK ? status : other;
    }
    fsdp_free(text);
    return status;
}

static fsdp_status read_vocabulary(const char *path, fsdp_vocabulary **out)
{
    fsdp_json *doc = NULL;
    FSDP_TRY(fsdp_json_read(path, &doc));
    fsdp_status status = fsdp_vocabulary_from_json(fsdp_json_root(doc), "", out);
    fsdp_json_destroy(doc);
    return status;
}

fsdp_status fsdp_bpe_load(const char *vocab_path, const char *merges_path,
                          const fsdp_bpe_options *options, fsdp_token_model **out)
{
    fsdp_vocabulary *vocabulary = NULL;
    merge_list list = {0};
    FSDP_TRY(read_vocabulary(vocab_path, &vocabulary));
    fsdp_status status = read_merges(merges_path, vocabulary, options, &list);
    if (status == FSDP_OK)
        status = fsdp_bpe_create(vocabulary, list.items, list.len, options, out);
    else
        fsdp_vocabulary_destroy(vocabulary);
    fsdp_free(list.items);
    return status;
}
