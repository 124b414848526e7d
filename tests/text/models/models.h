/* What the tests of models share. */
#pragma once
#include <stdio.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/json.h"
#include "src/text/models/model_json.h"
#include "src/text/models/token_model.h"
#include "tests/test.h"

/* Make a model from JSON. */
static inline fsdp_status model_from_text(const char *json, bool raw_bytes, fsdp_token_model **out)
{
    fsdp_json *doc = NULL;
    FSDP_TRY(fsdp_json_parse("tokenizer.json", 1, json, strlen(json), &doc));
    fsdp_status status = fsdp_token_model_from_json(fsdp_json_root(doc), raw_bytes, out);
    fsdp_json_destroy(doc);
    return status;
}

/* Write the tokens of a piece as "id:begin:end ...", or "error". */
static inline void print_tokens(const fsdp_token_model *model, fsdp_token_work *work,
                                const char *piece, size_t length, char *out, size_t size)
{
    fsdp_token_spans spans = {0};
    size_t n = 0;
    *out = 0;
    if (model->ops->encode(model, work, piece, length, &spans) != FSDP_OK)
        snprintf(out, size, "error");
    for (size_t i = 0; i < spans.len && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%d:%u:%u", i ? " " : "", (int)spans.items[i].id,
                              spans.items[i].begin, spans.items[i].end);
    fsdp_token_spans_fini(&spans);
}

/* Check the tokens of a piece: by encode(), twice, so that the second time short words come from
 * the cache, and by encode_ids(). */
static inline void check_tokens(fsdp_test *t, const fsdp_token_model *model, fsdp_token_work *work,
                                const char *piece, size_t length, const char *expected)
{
    char actual[4096];
    fsdp_token_spans spans = {0};
    fsdp_token_list list = {0};
    for (int i = 0; i < 2; i++) {
        print_tokens(model, work, piece, length, actual, sizeof actual);
        if (strcmp(actual, expected) != 0)
            FAIL("'%.*s': '%s' instead of '%s'", (int)length, piece, actual, expected);
    }
    bool refused = strcmp(expected, "error") == 0;
    ASSERT((model->ops->encode(model, work, piece, length, &spans) != FSDP_OK) == refused);
    ASSERT((model->ops->encode_ids(model, work, piece, length, &list) != FSDP_OK) == refused);
    bool same = spans.len == list.len;
    for (size_t i = 0; i < list.len && same; i++)
        same = list.ids[i] == spans.items[i].id;
    fsdp_token_spans_fini(&spans);
    fsdp_token_list_fini(&list);
    if (!same)
        FAIL("'%.*s': encode_ids() gives other ids", (int)length, piece);
}
