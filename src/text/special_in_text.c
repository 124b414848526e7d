/* See special_in_text.h. */
#include "src/text/special_in_text.h"

#include "src/text/tokenizer_internal.h"

static _Thread_local fsdp_special_in_text of_thread;

fsdp_special_in_text *fsdp_special_in_text_of_thread(void)
{
    return &of_thread;
}

void fsdp_special_in_text_add(const char *token)
{
    of_thread.count++;
    of_thread.last = token;
}

void fsdp_special_in_text_search(const fsdp_tokenizer *tokenizer, const char *text, size_t length)
{
    for (int normalized = 0; normalized < 2; normalized++) {
        fsdp_added_search search = {.text = text,
                                    .length = length,
                                    .normalized = normalized,
                                    .keep_special = tokenizer->split_special_tokens};
        fsdp_added_match match;
        while (fsdp_added_tokens_next(tokenizer->added, &search, &match))
            if (match.token && match.token->special)
                fsdp_special_in_text_add(match.token->text);
    }
}
