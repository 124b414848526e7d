/* What the fuzzers of models of tokenizers do with a model that loads. */
#pragma once
#include <stdlib.h>
#include <string.h>

#include "src/text/models/token_model.h"

static void fuzz_piece(const fsdp_token_model *model, fsdp_token_work *work, const char *piece,
                       size_t length)
{
    fsdp_token_spans spans = {0};
    fsdp_token_list list = {0};
    size_t text_length;
    if (model->ops->encode(model, work, piece, length, &spans) == FSDP_OK) {
        if (model->ops->encode_ids(model, work, piece, length, &list) != FSDP_OK ||
            list.len != spans.len)
            abort();
        for (size_t i = 0; i < spans.len; i++) {
            const fsdp_token_span *span = &spans.items[i];
            if (span->begin > span->end || span->end > length || span->id != list.ids[i] ||
                !model->ops->text_of(model, span->id, &text_length))
                abort();
        }
    }
    fsdp_token_spans_fini(&spans);
    fsdp_token_list_fini(&list);
}

/* Split pieces, among them the texts of the first tokens, in exact memory, so that ASan finds reads
 * beyond a piece. Destroy the model. */
static void fuzz_model(fsdp_token_model *model)
{
    static const char *const pieces[] = {
        "a",
        "ab",
        ("\xE2\x96\x81"
         "a\xE2\x96\x81\xE2\x96\x81"
         "b"),
        ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
        "\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80",
    };
    static fsdp_token_work *work; /* one for all models, as its cache must not mix them up */
    if (!work && fsdp_token_work_create(&work) != FSDP_OK)
        abort();
    for (int32_t i = 0; i < 24; i++) {
        size_t length = i < 5 ? strlen(pieces[i]) : 0;
        const char *text = i < 5 ? pieces[i] : model->ops->text_of(model, i - 5, &length);
        char *copy = text && length ? malloc(length) : NULL;
        if (!copy)
            continue;
        memcpy(copy, text, length);
        fuzz_piece(model, work, copy, length);
        free(copy);
    }
    fsdp_token_model_destroy(model);
}
