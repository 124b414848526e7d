/* Conversations as prompts: a chat template renders a conversation as a text, which the model
 * continues with the assistant's answer. */
#pragma once
#include <fsdp/chat.h>
#include <fsdp/text.h>

#include "src/base/json.h"
#include "src/models/generation_config.h"

typedef struct fsdp_chat_prompts {
    const fsdp_chat_template *chat_template; /* borrowed; NULL: there is none */
    const char *why_none;                    /* why there is no template */
    const char *kwargs;                      /* chat_template_kwargs, a JSON object; NULL: none */
    const char *system; /* system message for prompts that are texts; NULL: none */
    /* Continue the last message instead of answering it, as continue_final_message=True of
     * transformers' apply_chat_template() does. */
    bool continue_final_message;
} fsdp_chat_prompts;

/* Return true if the row has a list of messages under "messages" or "prompt". */
bool fsdp_is_conversation(fsdp_json_node row);
/* Render a conversation, and append the ids of the text to *ids. The last message must not be the
 * assistant's, unless chat->continue_final_message is true. Error messages contain neither the file
 * nor the line. */
FSDP_MUST_CHECK fsdp_status fsdp_chat_prompt_encode(const fsdp_chat_prompts *chat,
                                                    const fsdp_tokenizer *tokenizer,
                                                    fsdp_json_node row, fsdp_token_list *ids);
/* Create a conversation with the user message `text`. If chat->system is not NULL, it becomes the
 * system message. The caller owns *doc. */
FSDP_MUST_CHECK fsdp_status fsdp_conversation_create(const fsdp_chat_prompts *chat,
                                                     const char *text, size_t length,
                                                     fsdp_json **doc);
/* Append a message to the conversation `row`. `text` [length] must be UTF-8. */
void fsdp_conversation_add(fsdp_json_node row, const char *role, const char *text, size_t length);
/* Add the assistant's answer to a conversation. If chat->continue_final_message is true, append it
 * to the last message. Otherwise, add a new message, which is put in "completion" if the row has
 * the key "prompt". */
FSDP_MUST_CHECK fsdp_status fsdp_conversation_answer(const fsdp_chat_prompts *chat,
                                                     fsdp_json_node row, const char *text);
/* If the template ends each assistant turn with a special token, add this token to
 * config->eos_token_ids, unless it is already there. */
FSDP_MUST_CHECK fsdp_status fsdp_chat_add_end_of_turn(const fsdp_chat_prompts *chat,
                                                      const fsdp_tokenizer *tokenizer,
                                                      fsdp_generation_config *config);
