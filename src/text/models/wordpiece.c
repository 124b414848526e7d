/* The WordPiece model. A walk through a trie finds the longest token at a position of a word. At
 * the beginning of the word, the trie is `first`, which has all tokens. At later positions, it is
 * `rest`, which has only the tokens that begin with the prefix "##"; the prefix is not stored in
 * it. */
#include "src/text/models/wordpiece.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/text/chars/utf8.h"
#include "src/text/models/token_work.h"
#include "src/text/models/trie.h"

typedef struct wordpiece {
    fsdp_token_model base;
    fsdp_vocabulary *vocabulary;
    fsdp_trie first, rest;
    int64_t max_input_chars;
    int32_t unk_id; /* -1: the vocabulary does not contain unk_token */
    char *unk_token;
} wordpiece;

static const wordpiece *wordpiece_of(const fsdp_token_model *model)
{
    return (const wordpiece *)model;
}

/* ---- splitting ---- */

static fsdp_status add_unknown(const wordpiece *model, size_t length, fsdp_token_spans *spans)
{
    if (model->unk_id < 0)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "the text contains a word that the vocabulary does not contain, and "
                          "neither does it contain the unknown token \"%s\"",
                          model->unk_token);
    return fsdp_token_spans_add(spans, model->unk_id, 0, length);
}

/* Return the length of the longest token that is a prefix of `text` [length], and set *id to its
 * id. Return 0 if there is none. */
static size_t find_longest(const fsdp_trie *trie, const char *text, size_t length, int32_t *id)
{
    uint32_t node = 0;
    size_t longest = 0;
    for (size_t i = 0; i < length; i++) {
        node = fsdp_trie_child(trie, node, (uint8_t)text[i]);
        if (!node)
            break;
        if (trie->units[node].id >= 0) {
            *id = trie->units[node].id;
            longest = i + 1;
        }
    }
    return longest;
}

/* Split a piece into spans. This is the fsdp_split_fn of the model. */
static fsdp_status split(const fsdp_token_model *base, fsdp_token_work *work, const char *piece,
                         size_t length, fsdp_token_spans *spans)
{
    (void)work;
    const wordpiece *model = wordpiece_of(base);
    size_t before = spans->len;
    if ((int64_t)fsdp_utf8_count(piece, length) > model->max_input_chars)
        return add_unknown(model, length, spans);
    for (size_t i = 0, n; i < length; i += n) {
        int32_t id = -1;
        n = find_longest(i ? &model->rest : &model->first, piece + i, length - i, &id);
        if (!n) {
            spans->len = before;
            return add_unknown(model, length, spans);
        }
        FSDP_TRY(fsdp_token_spans_add(spans, id, i, i + n));
    }
    return FSDP_OK;
}

static fsdp_status encode(const fsdp_token_model *base, fsdp_token_work *work, const char *piece,
                          size_t length, fsdp_token_spans *spans)
{
    return fsdp_token_work_encode(base, work, split, piece, length, 0, spans);
}

static fsdp_status encode_ids(const fsdp_token_model *base, fsdp_token_work *work,
                              const char *piece, size_t length, fsdp_token_list *list)
{
    return fsdp_token_work_encode_ids(base, work, split, piece, length, list);
}

/* ---- properties ---- */

static int32_t id_of(const fsdp_token_model *model, const char *text, size_t length)
{
    return fsdp_vocabulary_find(wordpiece_of(model)->vocabulary, text, length);
}

static const char *text_of(const fsdp_token_model *model, int32_t id, size_t *length)
{
    return fsdp_vocabulary_text(wordpiece_of(model)->vocabulary, id, length);
}

static int32_t size(const fsdp_token_model *model)
{
    return fsdp_vocabulary_size(wordpiece_of(model)->vocabulary);
}

static int32_t unk_id(const fsdp_token_model *model)
{
    return wordpiece_of(model)->unk_id;
}

static void destroy(fsdp_token_model *base)
{
    wordpiece *model = (wordpiece *)base;
    fsdp_vocabulary_destroy(model->vocabulary);
    fsdp_trie_fini(&model->first);
    fsdp_trie_fini(&model->rest);
    fsdp_free(model->unk_token);
    fsdp_free(model);
}

static const fsdp_token_model_ops wordpiece_ops = {
    .type = "WordPiece",
    .encode = encode,
    .encode_ids = encode_ids,
    .id_of = id_of,
    .text_of = text_of,
    .size = size,
    .unk_id = unk_id,
    .destroy = destroy,
};

/* ---- creating ---- */

/* Build a trie of the tokens that begin with `prefix`. In the trie, their texts do not have the
 * prefix. `keys` is scratch memory whose capacity suffices for all tokens. */
static fsdp_status build_trie(const fsdp_vocabulary *vocabulary, const char *prefix,
                              fsdp_trie_key *keys, fsdp_trie *trie)
{
    size_t n = 0, cut = strlen(prefix), length;
    for (int32_t id = 0; id < fsdp_vocabulary_size(vocabulary); id++) {
        const char *text = fsdp_vocabulary_text(vocabulary, id, &length);
        if (text && length > cut && memcmp(text, prefix, cut) == 0)
            keys[n++] = (fsdp_trie_key){text + cut, length - cut, id};
    }
    return fsdp_trie_create(keys, n, trie);
}

static fsdp_status build_tries(wordpiece *model, const char *prefix)
{
    size_t count = (size_t)fsdp_vocabulary_size(model->vocabulary);
    fsdp_trie_key *keys = fsdp_calloc(count, sizeof *keys);
    fsdp_status status =
        keys ? build_trie(model->vocabulary, "", keys, &model->first) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = build_trie(model->vocabulary, prefix, keys, &model->rest);
    fsdp_free(keys);
    return status;
}

static fsdp_status init(wordpiece *model, const fsdp_wordpiece_options *options)
{
    const char *unk = options->unk_token, *prefix = options->continuing_subword_prefix;
    if (!(model->unk_token = fsdp_strdup(unk)))
        return FSDP_ERR_NOMEM;
    model->unk_id = fsdp_vocabulary_find(model->vocabulary, unk, strlen(unk));
    model->max_input_chars = options->max_input_chars_per_word;
    FSDP_TRY(build_tries(model, prefix));
    uint64_t h =
        fsdp_hash_bytes(fsdp_vocabulary_fingerprint(model->vocabulary), prefix, strlen(prefix));
    h = fsdp_hash_step(h, (uint64_t)(uint32_t)model->unk_id);
    model->base.fingerprint = fsdp_hash_step(h, (uint64_t)model->max_input_chars);
    return FSDP_OK;
}

fsdp_status fsdp_wordpiece_create(fsdp_vocabulary *vocabulary,
                                  const fsdp_wordpiece_options *options, fsdp_token_model **out)
{
    wordpiece *model = fsdp_calloc(1, sizeof *model);
    if (!model) {
        fsdp_vocabulary_destroy(vocabulary);
        return FSDP_ERR_NOMEM;
    }
    model->base.ops = &wordpiece_ops;
    model->vocabulary = vocabulary;
    fsdp_status status = init(model, options);
    if (status != FSDP_OK) {
        destroy(&model->base);
        return status;
    }
    *out = &model->base;
    return FSDP_OK;
}
