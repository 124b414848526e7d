/* See causal_text.h.
 *
 * Note [Where a prompt ends]. Prompt and completion are joined and tokenized as one text. To find
 * the ids of the prompt, the prompt is also tokenized alone, and the two lists of ids are compared.
 * Their longest common prefix counts as the prompt. One token may cover the end of the prompt and
 * the beginning of the completion. Such a token counts as part of the completion. */
#include "src/data/rows/causal_text.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"

fsdp_status fsdp_check_tokenizer(const char *path, const char *form,
                                 const fsdp_dataset_options *options)
{
    if (!options->tokenizer)
        return fsdp_error(FSDP_ERR_INVALID, "%s: %s needs a tokenizer", path, form);
    int32_t ids = fsdp_tokenizer_vocab_size(options->tokenizer);
    if (ids > options->vocab_size)
        return fsdp_error(FSDP_ERR_INVALID, "%s has %d ids, but the model's vocab_size is %" PRId64,
                          fsdp_tokenizer_path(options->tokenizer), (int)ids, options->vocab_size);
    return FSDP_OK;
}

/* Encode a text. Add the special tokens that the tokenizer adds, unless options->no_special_tokens
 * is set. If `with_eos` is true and options->no_eos is not set, the result ends with eos: if the
 * tokenizer does not add eos itself, this function adds it. In all other cases, an eos that the
 * tokenizer has added is removed. Most tokenizers of causal models add bos, but not eos. */
static fsdp_status encode_whole(const fsdp_dataset_options *options, fsdp_data_text text,
                                bool with_eos, fsdp_token_list *ids)
{
    const fsdp_tokenizer *tokenizer = options->tokenizer;
    const int32_t eos = fsdp_tokenizer_eos_id(tokenizer);
    const bool has_eos = !options->no_special_tokens && fsdp_tokenizer_appends_eos(tokenizer);
    ids->len = 0;
    if (options->no_special_tokens)
        FSDP_TRY(fsdp_tokenizer_encode_text(tokenizer, text.bytes, text.length, 0, ids));
    else
        FSDP_TRY(fsdp_tokenizer_encode(tokenizer, text.bytes, text.length, 0, ids));
    if (with_eos && !options->no_eos && !has_eos && eos >= 0) {
        if (!FSDP_GROW(ids->ids, ids->cap, ids->len + 1))
            return FSDP_ERR_NOMEM;
        ids->ids[ids->len++] = eos;
    } else if ((!with_eos || options->no_eos) && has_eos) {
        ids->len--;
    }
    return FSDP_OK;
}

static size_t common_length(const fsdp_token_list *a, const fsdp_token_list *b)
{
    size_t n = 0;
    while (n < a->len && n < b->len && a->ids[n] == b->ids[n])
        n++;
    return n;
}

/* Copy `ids` to `labels`, and replace the ids of the prompt by FSDP_IGNORE_INDEX. */
static fsdp_status mask_prompt(const fsdp_dataset_options *options, fsdp_data_text prompt,
                               const fsdp_token_list *ids, fsdp_token_list *labels)
{
    fsdp_token_list alone = {0};
    fsdp_status status = encode_whole(options, prompt, false, &alone);
    if (status == FSDP_OK)
        status = fsdp_token_list_set(labels, ids->ids, ids->len);
    if (status == FSDP_OK) {
        for (size_t i = 0, n = common_length(&alone, ids); i < n; i++)
            labels->ids[i] = FSDP_IGNORE_INDEX;
    }
    fsdp_token_list_fini(&alone);
    return status;
}

static void truncate_list(fsdp_token_list *list, int64_t length)
{
    if ((int64_t)list->len > length)
        list->len = (size_t)length;
}

/* Encode a prompt and a text as one text. */
static fsdp_status encode_joined(const fsdp_dataset_options *options, fsdp_data_text prompt,
                                 fsdp_data_text text, fsdp_token_list *ids)
{
    fsdp_str joined = {0};
    if (!prompt.length)
        return encode_whole(options, text, true, ids);
    fsdp_str_append(&joined, prompt.bytes, prompt.length);
    fsdp_str_append(&joined, text.bytes, text.length);
    const size_t length = joined.len;
    char *whole = fsdp_str_take(&joined);
    if (!whole)
        return FSDP_ERR_NOMEM;
    fsdp_status status = encode_whole(options, (fsdp_data_text){whole, length}, true, ids);
    fsdp_free(whole);
    return status;
}

fsdp_status fsdp_causal_text_encode(const fsdp_dataset_options *options, fsdp_data_text prompt,
                                    fsdp_data_text text, fsdp_example *example, int64_t *cut)
{
    fsdp_status status = encode_joined(options, prompt, text, &example->source);
    if (status == FSDP_OK && prompt.length &&
        options->chat.completion_loss != FSDP_COMPLETION_LOSS_ALL)
        status = mask_prompt(options, prompt, &example->source, &example->labels);
    const int64_t beyond = (int64_t)example->source.len - options->max_length;
    if (cut)
        *cut = status == FSDP_OK && beyond > 0 ? beyond : 0;
    truncate_list(&example->source, options->max_length);
    truncate_list(&example->labels, options->max_length);
    return status;
}
