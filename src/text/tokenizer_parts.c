/* Creates the parts of a tokenizer from the fields of a tokenizer.json. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/text/models/model_json.h"
#include "src/text/parts/token_json.h"
#include "src/text/tokenizer_internal.h"

/* ---- checks ---- */

static fsdp_status check_members(fsdp_json_node root)
{
    const char *version;
    FSDP_TRY(fsdp_token_json_fields(root, "version truncation padding added_tokens normalizer "
                                          "pre_tokenizer post_processor decoder model"));
    FSDP_TRY(fsdp_json_opt_str(root, "version", "1.0", &version));
    return strcmp(version, "1.0") == 0 ? FSDP_OK : fsdp_json_mismatch(root, "version", "\"1.0\"");
}

/* ---- the model ---- */

/* Create the model from `root`. If the pre-tokenizer ends with ByteLevel and the model is BPE, the
 * model works on raw bytes, so the pre-tokenizer need not spell the bytes in GPT-2's alphabet.
 * Other kinds of models cannot work on raw bytes. */
static fsdp_status make_model(fsdp_tokenizer *tokenizer, fsdp_json_node root)
{
    fsdp_json_node model;
    const char *type;
    FSDP_TRY(fsdp_json_get_object(root, "model", &model));
    FSDP_TRY(fsdp_json_opt_str(model, "type", "", &type));
    const bool is_bpe = strcmp(type, "BPE") == 0 || (!*type && fsdp_json_has(model, "merges"));
    const bool raw = is_bpe && fsdp_pre_tokenizer_ends_with_bytes(tokenizer->pre);
    FSDP_TRY(fsdp_token_model_from_json(model, raw, &tokenizer->model));
    if (raw)
        fsdp_pre_tokenizer_keep_bytes(tokenizer->pre);
    return FSDP_OK;
}

/* ---- added tokens ---- */

static fsdp_status check_id(const fsdp_tokenizer *tokenizer, fsdp_json_node node, const char *text,
                            int64_t expected, int32_t id)
{
    if (id < 0 || id == expected)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT,
                      "%s: the added token '%.100s' has the id %" PRId64
                      ", but the tokenizers library would give it the id %d, %s",
                      fsdp_json_name(node.doc), text, expected, (int)id,
                      tokenizer->model->ops->id_of(tokenizer->model, text, strlen(text)) >= 0
                          ? "which the vocabulary gives to this text"
                          : "the next one after all other ids: ids must have no holes");
}

static fsdp_status add_tokens(fsdp_tokenizer *tokenizer, fsdp_json_node root)
{
    fsdp_json_node all;
    FSDP_TRY(fsdp_json_opt_array(root, "added_tokens", &all));
    for (size_t i = 0; i < fsdp_json_len(all); i++) {
        fsdp_json_node node = fsdp_json_at(all, i);
        fsdp_added_token token;
        int64_t expected;
        int32_t id;
        FSDP_TRY(fsdp_token_json_fields(node,
                                        "id content single_word lstrip rstrip normalized special"));
        FSDP_TRY(fsdp_added_token_from_json(node, &token));
        FSDP_TRY(fsdp_json_get_i64(node, "id", 0, INT32_MAX, &expected));
        FSDP_TRY(fsdp_added_tokens_add(tokenizer->added, &token, &id));
        FSDP_TRY(check_id(tokenizer, node, token.text, expected, id));
    }
    return FSDP_OK;
}

/* ---- all parts ---- */

fsdp_status fsdp_tokenizer_set_post_processor(fsdp_tokenizer *tokenizer, fsdp_json_node root)
{
    fsdp_post_processor *post;
    FSDP_TRY(fsdp_post_processor_from_json(fsdp_json_find(root, "post_processor"), &post));
    fsdp_post_processor_destroy(tokenizer->post);
    tokenizer->post = post;
    return FSDP_OK;
}

fsdp_status fsdp_tokenizer_parse_post_processor(fsdp_tokenizer *tokenizer, char *text)
{
    fsdp_json *doc = NULL;
    fsdp_status status = FSDP_ERR_NOMEM;
    if (text)
        status = fsdp_json_parse(tokenizer->path, 1, text, strlen(text), &doc);
    if (status == FSDP_OK)
        status = fsdp_tokenizer_set_post_processor(tokenizer, fsdp_json_root(doc));
    fsdp_json_destroy(doc);
    fsdp_free(text);
    return status;
}

fsdp_status fsdp_tokenizer_make_parts(fsdp_tokenizer *tokenizer, fsdp_json_node root,
                                      fsdp_token_model *model)
{
    tokenizer->model = model;
    FSDP_TRY(check_members(root));
    FSDP_TRY(fsdp_char_classes_create(&tokenizer->classes));
    FSDP_TRY(fsdp_normalizer_from_json(fsdp_json_find(root, "normalizer"), tokenizer->classes,
                                       &tokenizer->normalizer));
    FSDP_TRY(fsdp_pre_tokenizer_from_json(fsdp_json_find(root, "pre_tokenizer"), tokenizer->classes,
                                          &tokenizer->pre));
    FSDP_TRY(fsdp_token_decoder_from_json(fsdp_json_find(root, "decoder"), &tokenizer->decoder));
    FSDP_TRY(fsdp_tokenizer_set_post_processor(tokenizer, root));
    if (!tokenizer->model)
        FSDP_TRY(make_model(tokenizer, root));
    FSDP_TRY(fsdp_added_tokens_create(tokenizer->classes, tokenizer->model, tokenizer->normalizer,
                                      &tokenizer->added));
    return add_tokens(tokenizer, root);
}

/* Find the sentinels of T5: the tokens <extra_id_0>, <extra_id_1> and so on, whose ids descend by
 * 1. */
static void find_sentinels(fsdp_tokenizer *tokenizer)
{
    char text[32];
    int32_t n = 0;
    tokenizer->first_sentinel = -1;
    for (;; n++) {
        snprintf(text, sizeof text, "<extra_id_%d>", (int)n);
        const fsdp_added_token *token =
            fsdp_added_tokens_find_text(tokenizer->added, text, strlen(text));
        if (!token || (n && token->id != tokenizer->first_sentinel - n))
            break;
        if (n == 0)
            tokenizer->first_sentinel = token->id;
    }
    tokenizer->extra_ids = n;
}

fsdp_status fsdp_tokenizer_finish(fsdp_tokenizer *tokenizer)
{
    FSDP_TRY(fsdp_added_tokens_finish(tokenizer->added));
    find_sentinels(tokenizer);
    const int32_t size = fsdp_added_tokens_size(tokenizer->added);
    const int32_t largest = fsdp_post_processor_largest_id(tokenizer->post);
    if (largest >= size)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: post_processor: the id %d of a special token is not in the "
                          "vocabulary, whose ids are 0 to %d",
                          tokenizer->path, (int)largest, (int)size - 1);
    tokenizer->always_tracked =
        tokenizer->normalizer && (fsdp_pre_tokenizer_needs_origin(tokenizer->pre) ||
                                  fsdp_normalizer_needs_alignment(tokenizer->normalizer));
    return fsdp_work_pool_create(&tokenizer->pool);
}
