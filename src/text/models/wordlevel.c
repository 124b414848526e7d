/* See wordlevel.h. */
#include "src/text/models/wordlevel.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/text/models/token_work.h"

typedef struct wordlevel {
    fsdp_token_model base;
    fsdp_vocabulary *vocabulary;
    int32_t unk_id; /* -1: the vocabulary does not contain unk_token */
    char *unk_token;
} wordlevel;

static const wordlevel *wordlevel_of(const fsdp_token_model *model)
{
    return (const wordlevel *)model;
}

static fsdp_status find(const fsdp_token_model *base, const char *piece, size_t length, int32_t *id)
{
    const wordlevel *model = wordlevel_of(base);
    int32_t found = fsdp_vocabulary_find(model->vocabulary, piece, length);
    if (found < 0)
        found = model->unk_id;
    if (found < 0)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "the text contains \"%.*s\", which the vocabulary does not contain, and "
                          "neither does it contain the unknown token \"%s\"",
                          length > 80 ? 80 : (int)length, piece, model->unk_token);
    *id = found;
    return FSDP_OK;
}

static fsdp_status encode(const fsdp_token_model *model, fsdp_token_work *work, const char *piece,
                          size_t length, fsdp_token_spans *spans)
{
    (void)work;
    int32_t id = -1;
    FSDP_TRY(find(model, piece, length, &id));
    return fsdp_token_spans_add(spans, id, 0, length);
}

static fsdp_status encode_ids(const fsdp_token_model *model, fsdp_token_work *work,
                              const char *piece, size_t length, fsdp_token_list *list)
{
    (void)work;
    int32_t id = -1;
    FSDP_TRY(find(model, piece, length, &id));
    if (!FSDP_GROW(list->ids, list->cap, list->len + 1))
        return FSDP_ERR_NOMEM;
    list->ids[list->len++] = id;
    return FSDP_OK;
}

static int32_t id_of(const fsdp_token_model *model, const char *text, size_t length)
{
    return fsdp_vocabulary_find(wordlevel_of(model)->vocabulary, text, length);
}

static const char *text_of(const fsdp_token_model *model, int32_t id, size_t *length)
{
    return fsdp_vocabulary_text(wordlevel_of(model)->vocabulary, id, length);
}

static int32_t size(const fsdp_token_model *model)
{
    return fsdp_vocabulary_size(wordlevel_of(model)->vocabulary);
}

static int32_t unk_id(const fsdp_token_model *model)
{
    return wordlevel_of(model)->unk_id;
}

static void destroy(fsdp_token_model *base)
{
    wordlevel *model = (wordlevel *)base;
    fsdp_vocabulary_destroy(model->vocabulary);
    fsdp_free(model->unk_token);
    fsdp_free(model);
}

static const fsdp_token_model_ops wordlevel_ops = {
    .type = "WordLevel",
    .encode = encode,
    .encode_ids = encode_ids,
    .id_of = id_of,
    .text_of = text_of,
    .size = size,
    .unk_id = unk_id,
    .destroy = destroy,
};

fsdp_status fsdp_wordlevel_create(fsdp_vocabulary *vocabulary, const char *unk_token,
                                  fsdp_token_model **out)
{
    wordlevel *model = fsdp_calloc(1, sizeof *model);
    char *copy = fsdp_strdup(unk_token);
    if (!model || !copy) {
        fsdp_free(model);
        fsdp_free(copy);
        fsdp_vocabulary_destroy(vocabulary);
        return FSDP_ERR_NOMEM;
    }
    model->base.ops = &wordlevel_ops;
    model->base.fingerprint = fsdp_vocabulary_fingerprint(vocabulary);
    model->vocabulary = vocabulary;
    model->unk_id = fsdp_vocabulary_find(vocabulary, unk_token, strlen(unk_token));
    model->unk_token = copy;
    *out = &model->base;
    return FSDP_OK;
}
