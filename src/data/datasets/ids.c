/* See ids.h. */
#include "src/data/datasets/ids.h"

int32_t fsdp_ids_eos(const fsdp_dataset_options *options)
{
    if (options->eos_id)
        return options->eos_id;
    return options->tokenizer ? fsdp_tokenizer_eos_id(options->tokenizer) : -1;
}

void fsdp_ids_cut(fsdp_token_list *list, size_t length, int32_t eos)
{
    size_t n = list->len;
    if (!length || n <= length)
        return;
    while (n && list->ids[n - 1] == FSDP_IGNORE_INDEX)
        n--;
    if (n > length && list->ids[n - 1] == eos)
        list->ids[length - 1] = eos;
    list->len = length;
}

static fsdp_status decode_ids(const fsdp_tokenizer *tokenizer, fsdp_id_list list, char **text)
{
    return fsdp_tokenizer_decode(tokenizer, list.ids, list.len, FSDP_DECODE_TEXT, text);
}

/* Return the number of tokens before the first token that has a loss. For rows of CAUSAL_LM. */
static size_t prompt_length(fsdp_id_list labels)
{
    size_t n = 0;
    while (n < labels.len && labels.ids[n] == FSDP_IGNORE_INDEX)
        n++;
    return n;
}

fsdp_status fsdp_ids_texts(const fsdp_tokenizer *tokenizer, fsdp_task task, fsdp_id_list source,
                           fsdp_id_list labels, char **source_text, char **target_text)
{
    char *decoded = NULL;
    if (task == FSDP_TASK_CLASSIFICATION)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "classes have no texts");
    if (!tokenizer)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "ids without a tokenizer have no texts");
    if (task == FSDP_TASK_CAUSAL_LM) {
        const size_t prompt = prompt_length(labels);
        labels = (fsdp_id_list){source.ids + prompt, source.len - prompt};
        source.len = prompt;
    }
    FSDP_TRY(decode_ids(tokenizer, source, &decoded));
    const fsdp_status status = decode_ids(tokenizer, labels, target_text);
    if (status != FSDP_OK) {
        fsdp_text_free(decoded);
        return status;
    }
    *source_text = decoded;
    return FSDP_OK;
}
