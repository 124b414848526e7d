/* Decodes ids: passes the texts of the tokens to the decoder, which makes one text from them. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/text/tokenizer_internal.h"

/* Return the text of a token, as it must be passed to the decoder, and set *length. Return NULL if
 * there is no token with this id. */
static const char *decoded_text(const fsdp_tokenizer *tokenizer, int32_t id, size_t *length)
{
    const fsdp_added_token *added = fsdp_added_tokens_find_id(tokenizer->added, id);
    if (!added)
        return tokenizer->model->ops->text_of(tokenizer->model, id, length);
    const char *text = added->normalized_text ? added->normalized_text : added->text;
    *length = strlen(text);
    return text;
}

static fsdp_status add_id(const fsdp_tokenizer *tokenizer, int32_t id, size_t position,
                          unsigned flags, fsdp_token_texts *texts)
{
    const int32_t size = fsdp_tokenizer_vocab_size(tokenizer);
    if ((id < 0 || id >= size) && !(flags & FSDP_DECODE_SKIP_UNKNOWN))
        return fsdp_error(FSDP_ERR_INVALID, "id %d at position %zu is not a token: ids are 0 to %d",
                          (int)id, position, (int)size - 1);
    size_t length = 0;
    const char *text = id < 0 || id >= size ? NULL : decoded_text(tokenizer, id, &length);
    if (!text || ((flags & FSDP_DECODE_SKIP_SPECIAL) &&
                  fsdp_added_tokens_is_special(tokenizer->added, text, length)))
        return FSDP_OK;
    fsdp_str_append(&texts->bytes, text, length);
    return fsdp_token_texts_end(texts);
}

static fsdp_status decode(const fsdp_tokenizer *tokenizer, const int32_t *ids, size_t count,
                          unsigned flags, fsdp_token_texts *texts, fsdp_str *out)
{
    for (size_t i = 0; i < count; i++)
        FSDP_TRY(add_id(tokenizer, ids[i], i, flags, texts));
    FSDP_TRY(fsdp_token_decoder_run(tokenizer->decoder, texts, out));
    const bool clean_up =
        (flags & FSDP_DECODE_CLEAN_UP) || ((flags & FSDP_DECODE_CONFIGURED) && tokenizer->clean_up);
    const bool is_bpe = strcmp(tokenizer->model->ops->type, "BPE") == 0;
    if (!clean_up || (is_bpe && !tokenizer->clean_up_bpe))
        return FSDP_OK;
    fsdp_str clean = {0};
    fsdp_clean_up_tokenization(out->data ? out->data : "", out->len, false, &clean);
    fsdp_str_fini(out);
    *out = clean;
    return FSDP_OK;
}

/* Remove NUL characters. */
static void remove_nuls(fsdp_str *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->len; i++)
        if (s->data[i])
            s->data[kept++] = s->data[i];
    s->len = kept;
}

fsdp_status fsdp_tokenizer_decode(const fsdp_tokenizer *tokenizer, const int32_t *ids, size_t count,
                                  unsigned flags, char **text)
{
    fsdp_token_texts texts = {0};
    fsdp_str out = {0};
    char *taken = NULL;
    fsdp_status status = decode(tokenizer, ids, count, flags, &texts, &out);
    if (status == FSDP_OK && !out.failed)
        remove_nuls(&out);
    if (status == FSDP_OK && !(taken = fsdp_str_take(&out)))
        status = FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        *text = taken;
    fsdp_token_texts_fini(&texts);
    fsdp_str_fini(&out);
    return status;
}
